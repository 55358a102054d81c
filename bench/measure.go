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
	started           int     // instances, for their ids
	stalls            []stall // of the disk, while it was measured
}

// once starts a system, runs a variant on it, and checks what has come of it.
func (b *bench) once(ctx context.Context, w workload, v variant) (_ *Result, err error) {
	s, err := b.start(ctx, w.name, v.needs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := &run{system: s, workload: w.name, variant: v.name, result: &Result{
		Workload: w.name, Variant: v.name, Database: s.database.kind, Unit: w.unit, Size: b.o.size, Runs: 1,
		At: time.Now().UTC().Truncate(time.Second), Load: load(), machine: b.machine, DatabaseSettings: b.o.settings,
		Figures: make(map[string]float64),
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

// pick gives what is right for the size: tiny, small or full.
func pick[T any](r *run, tiny, small, full T) T {
	switch r.o.size {
	case "tiny":
		return tiny
	case "full":
		return full
	}
	return small
}

// plan makes the next instance, which has to give so many answers in the end. Each has data of its
// own.
func (r *run) plan(orchestration string, count int, in job) plan {
	r.started++
	in.Data = hundredBytes(r.started)
	return plan{instance: r.driver.all.id(r.started), number: r.started, orchestration: orchestration,
		in: in, count: count}
}

// some gives so many plans, one after the other.
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

// measure measures what is done meanwhile, and notes it. What is done gives how often it did what
// the workload counts.
func (r *run) measure(ctx context.Context, do func() (n int, err error)) error {
	database, err := r.database.read(ctx)
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
	r.result.N, r.result.Seconds = n, rounded(seconds, 3)
	r.result.PerSecond = rounded(float64(n)/seconds, 1)
	r.result.note(before, after)
	r.result.noteStalls(r.stalls)
	r.result.DatabaseVersion = database.version
	r.result.Transactions, r.result.Rows = -database.transactions, -database.rows
	r.result.Syncs, r.result.Logged, r.result.Pages = -database.flushes, -database.logged, -database.pages
	return nil
}

// note notes the difference between two readings. N is known.
func (r *Result) note(before, after reading) {
	n := float64(max(1, r.N))
	r.counted = true
	r.noteMemory(after.usage)
	r.CPU = make(map[string]float64)
	for name, u := range after.usage {
		r.CPU[name] = rounded(inMilliseconds(u.cpu-before.usage[name].cpu)/n, 4)
	}
	if all := float64(after.machine.all - before.machine.all); all > 0 {
		own := time.Duration(0)
		for name, u := range after.usage {
			own += u.cpu - before.usage[name].cpu
		}
		r.Own = rounded(100*float64(own)/all, 1)
		r.Busy = rounded(100*float64(after.machine.busy-before.machine.busy)/all, 1)
		r.Steal = rounded(100*float64(after.machine.stolen-before.machine.stolen)/all, 1)
	}
	counted := func(name string, having ...string) float64 {
		return after.orchestrator.sum(name, having...) - before.orchestrator.sum(name, having...)
	}
	r.Commits = counted("rondo_commit_attempts_total", `outcome="stored"`)
	r.Again = counted("rondo_commit_attempts_total") - r.Commits
	r.Conflicts = counted("rondo_turns_total", `outcome="conflict"`)
	r.Events = counted("rondo_commit_events_sum")
	r.Allocations, r.Allocated = make(map[string]float64), make(map[string]float64)
	for name := range after.allocations {
		r.Allocations[name] = after.allocations[name] - before.allocations[name]
		r.Allocated[name] = after.allocated[name] - before.allocated[name]
	}
	r.NATSVersion = after.nats.Version
	r.Messages = after.nats.stored - before.nats.stored
	r.NATSIn = after.nats.InMessages - before.nats.InMessages
	r.NATSBytes = after.nats.InBytes + after.nats.OutBytes - before.nats.InBytes - before.nats.OutBytes
}

func (r *Result) noteMemory(of map[string]usage) {
	r.RSS = make(map[string]float64)
	for name, u := range of {
		r.RSS[name] = rounded(float64(u.rss)/(1<<20), 1)
	}
}

// tracedFor is how long an execution trace is: it grows by megabytes each second.
const tracedFor = 3 * time.Second

// record begins to write profiles and traces of all processes, if somebody wants them.
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

// latencies notes how long those instances have taken that ended since a moment.
func (r *run) latencies(of []*instance) {
	took := make([]time.Duration, len(of))
	for n, i := range of {
		took[n] = i.took()
	}
	r.noteLatencies(took)
}

func (r *run) noteLatencies(took []time.Duration) {
	sorted := milliseconds(took)
	r.result.P50, r.result.P99, r.result.P999 = rounded(percentile(sorted, 0.5), 3),
		rounded(percentile(sorted, 0.99), 3), rounded(percentile(sorted, 0.999), 3)
}
