package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// run is one run of a variant of a workload.
type run struct {
	*system
	workload, variant string
	result            *Result
	started           int            // instances, for their ids
	stalls            []stall        // of the disk, while it was measured
	countsBefore      databaseCounts // before it was measured
}

// once starts a system, runs a variant on it, and checks the result.
func (b *bench) once(ctx context.Context, w workload, v variant) (_ *Result, err error) {
	s, err := b.start(ctx, w.name, v.needs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := &run{system: s, workload: w.name, variant: v.name, result: &Result{
		Workload: w.name, Variant: v.name, Database: s.database.kind, Unit: w.unit, Size: b.o.size,
		At: time.Now().UTC().Truncate(time.Second), comparison: comparison{Runs: 1},
		conditions: conditions{Load: load()}, machine: b.machine,
		versions: versions{DatabaseSettings: b.o.settings}, Figures: make(map[string]float64),
	}}
	r.result.Switch = pace().Nanoseconds()
	if s.database.dir != "" {
		took, err := syncTime(s.database.dir)
		if err != nil {
			return nil, err
		}
		r.result.Sync = rounded(inMilliseconds(took), 3)
	}
	if err := v.run(ctx, r); err != nil {
		for _, p := range s.services() {
			err = errors.Join(err, p.died())
		}
		return nil, err
	}
	if err := r.check(ctx, v); err != nil {
		return nil, err
	}
	r.result.Checked = true
	return r.result, nil
}

// pick gives the value for the size: tiny, small or full.
func pick[T any](r *run, tiny, small, full T) T {
	switch r.o.size {
	case "tiny":
		return tiny
	case "full":
		return full
	}
	return small
}

// plan makes the plan of the next instance, which ends with count answers. Each has data of its
// own.
func (r *run) plan(orchestration string, count int, in job) plan {
	r.started++
	in.Data = hundredBytes(r.started)
	return plan{instance: r.driver.all.id(r.started), number: r.started, orchestration: orchestration,
		in: in, count: count}
}

// some gives n plans, one after the other.
func some(n int, next func() plan) func() (plan, bool) {
	return func() (p plan, more bool) {
		if n == 0 {
			return p, false
		}
		n--
		return next(), true
	}
}

// forAWhile gives plans until a time is over.
func forAWhile(d time.Duration, next func() plan) func() (plan, bool) {
	until := time.Now().Add(d)
	return func() (p plan, more bool) {
		if time.Now().After(until) {
			return p, false
		}
		return next(), true
	}
}

// measure measures while do runs, and records the result. do returns how many of the workload's
// units it has done.
func (r *run) measure(ctx context.Context, do func() (n int, err error)) error {
	version, counts, err := r.database.read(ctx)
	if err != nil {
		return err
	}
	stopRecording, err := r.record()
	if err != nil {
		return err
	}
	before, err := r.read(ctx)
	if err != nil {
		return err
	}
	stopWatching := watchDisk(ctx, r.database.dir)
	n, err := do()
	r.stalls = stopWatching()
	if err != nil {
		return err
	}
	seconds := time.Since(before.at).Seconds()
	after, err := r.read(ctx)
	if err := errors.Join(err, stopRecording()); err != nil {
		return err
	}
	r.result.throughput = throughputOf(n, seconds)
	r.result.note(before, after)
	r.result.noteStalls(r.stalls)
	r.result.DatabaseVersion, r.countsBefore = version, counts
	return nil
}

// note notes the difference between two readings. N is known.
func (r *Result) note(before, after reading) {
	r.counted = true
	r.noteMemory(after.usage)
	r.noteCPU(max(1, r.N), before, after)
	r.commitCounts.note(before.orchestrator, after.orchestrator)
	r.allocations.note(before, after)
	r.NATSVersion = after.nats.Version
	r.natsTraffic.note(before.nats, after.nats)
}

// noteMemory notes the memory that processes have at the end.
func (r *resources) noteMemory(of map[string]usage) {
	r.RSS = make(map[string]float64)
	for name, u := range of {
		r.RSS[name] = rounded(float64(u.rss)/(1<<20), 1)
	}
}

// noteCPU notes the CPU time between two readings, in which n units were done.
func (r *resources) noteCPU(n int, before, after reading) {
	r.CPU = make(map[string]float64)
	own := time.Duration(0)
	for name, u := range after.usage {
		took := u.cpu - before.usage[name].cpu
		r.CPU[name] = rounded(inMilliseconds(took)/float64(n), 4)
		own += took
	}
	if all := float64(after.machine.all - before.machine.all); all > 0 {
		r.Own = rounded(100*float64(own)/all, 1)
		r.Busy = rounded(100*float64(after.machine.busy-before.machine.busy)/all, 1)
		r.Steal = rounded(100*float64(after.machine.stolen-before.machine.stolen)/all, 1)
	}
}

// note notes how much the counters of the orchestrators have grown between two readings.
func (c *commitCounts) note(before, after counters) {
	grown := func(name string, having ...string) float64 {
		return after.sum(name, having...) - before.sum(name, having...)
	}
	c.Commits = grown("rondo_commit_attempts_total", `outcome="stored"`)
	c.Again = grown("rondo_commit_attempts_total") - c.Commits
	c.Conflicts = grown("rondo_turns_total", `outcome="conflict"`)
	c.Events = grown("rondo_commit_events_sum")
}

// note notes the allocations between two readings.
func (a *allocations) note(before, after reading) {
	a.Allocations, a.Allocated = make(map[string]float64), make(map[string]float64)
	for name := range after.allocations {
		a.Allocations[name] = after.allocations[name] - before.allocations[name]
		a.Allocated[name] = after.allocated[name] - before.allocated[name]
	}
}

// note notes the traffic between two readings.
func (t *natsTraffic) note(before, after natsCounters) {
	t.Messages = after.stored - before.stored
	t.NATSIn = after.InMessages - before.InMessages
	t.NATSBytes = after.InBytes + after.OutBytes - before.InBytes - before.OutBytes
}

// tracedFor is how long an execution trace is: it grows by megabytes each second.
const tracedFor = 3 * time.Second

// record begins to write profiles and traces of all processes, if flags ask for them.
func (r *run) record() (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	for name, p := range r.services() {
		file := func(dir, ending string) string {
			return filepath.Join(dir, strings.ReplaceAll(strings.Join([]string{r.workload, r.variant, r.database.kind,
				name}, "-"), " ", "-")+ending)
		}
		if r.o.profile != "" {
			if err := p.begin(r.o.profile, "profile", file(r.o.profile, ".pprof")); err != nil {
				return stop, err
			}
			stops = append(stops, func() error {
				_, err := p.order("profiled")
				_, errAllocs := p.order("allocs", file(r.o.profile, ".allocs"))
				return errors.Join(err, errAllocs)
			})
		}
		if r.o.trace != "" && name != "nats" {
			if err := p.begin(r.o.trace, "trace", file(r.o.trace, ".trace")); err != nil {
				return stop, err
			}
			ended := make(chan error, 1)
			timer := time.AfterFunc(tracedFor, func() { _, err := p.order("traced"); ended <- err })
			stops = append(stops, func() error {
				if timer.Stop() {
					_, err := p.order("traced")
					return err
				}
				return <-ended
			})
		}
	}
	return stop, nil
}

func (p *process) begin(dir, what, file string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := p.order(what, file)
	return err
}

// durationsOf lists how long instances have taken.
func durationsOf(all []*instance) []time.Duration {
	took := make([]time.Duration, len(all))
	for n, i := range all {
		took[n] = i.took()
	}
	return took
}
