package orchestrator

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/awake"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// This file watches the code of orchestrations while it is decided. A wall clock would blame code
// for time in which the whole process stood still (SIGSTOP, a paused virtual machine) or got no CPU
// (a throttled container, a machine that swaps), and an interrupted instance fails for good. So the
// watch counts what it has seen itself.

const (
	// watchTicks is how often the watch looks within the time that code may compute.
	watchTicks = 10
	// blockedFor times StuckAfter, code that blocks is interrupted, so that it ends if it ever
	// calls its context again.
	blockedFor = 2
)

// clocks are the two clocks of the watch. Both advance at its ticks only, and a pause of the whole
// process is one tick.
type clocks struct {
	// ran is at least the CPU time that any one goroutine can have used: a goroutine runs on one
	// thread at a time, and no thread uses more than the process.
	ran time.Duration
	// went is the time in which the process did not stand still.
	went time.Duration
}

// watcher advances the clocks.
type watcher struct {
	now    clocks
	period time.Duration

	at   time.Time     // of the last tick
	used time.Duration // CPU time by then
}

func newWatcher(period time.Duration, now time.Time, used time.Duration) *watcher {
	return &watcher{period: period, at: now, used: used}
}

// tick advances the clocks, given how much CPU time the process has used, if that is known.
func (w *watcher) tick(now time.Time, used time.Duration, known bool) {
	passed := awake.Passed(w.period, now.Sub(w.at))
	ran := passed
	if known { // otherwise pauses do no harm, but a starved machine may
		ran = max(0, min(passed, used-w.used))
	}
	w.now = clocks{ran: w.now.ran + ran, went: w.now.went + passed}
	w.at, w.used = now, used
}

// watch interrupts code that does not return, and reports code on which that has no effect.
func (d *deciders) watch(ctx context.Context, wait *sync.WaitGroup, stuck func(ctx context.Context, e *entry)) {
	used, known := d.config.cpu()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watcher.tick(time.Now(), used, known)
	for j := range d.busy {
		if j.seen == nil { // time before the watch has seen the job does not count
			j.seen = new(d.watcher.now)
			continue
		}
		ran, went := d.watcher.now.ran-j.seen.ran, d.watcher.now.went-j.seen.went
		if !j.interrupted &&
			(ran > d.config.runawayAfter || went > blockedFor*d.config.stuckAfter) {
			j.interrupted = true
			d.logOf(j).Warn("the code of an instance takes too long; interrupting it", "for",
				went.Round(time.Millisecond))
			j.live.Interrupt()
		}
		if went > d.config.stuckAfter && !j.reported {
			d.replace(ctx, wait, stuck, j, went)
		}
	}
}

// replace continues without the goroutine of a job, which most likely is blocked, and starts
// another one in its place.
func (d *deciders) replace(ctx context.Context, wait *sync.WaitGroup, stuck func(ctx context.Context, e *entry),
	j *job, went time.Duration) {
	j.reported = true
	d.lost++
	d.logOf(j).Error("the code of an instance does not return: "+
		"it must not block outside of steps and activities; going on without that goroutine", "for",
		went.Round(time.Millisecond))
	go stuck(ctx, j.entry)
	if d.lost < d.limit {
		wait.Go(func() { d.work(ctx) })
	}
}

func (d *deciders) logOf(j *job) *slog.Logger {
	return telemetry.LogOf(d.log, j.entry.id, j.row)
}

// longRound is the time after which a round counts as long: operators are told of it.
const longRound = 2 * time.Second

// longRounds lists the rounds that have been running for long, the oldest first. The store has
// nothing of a first round until it ends.
func (d *deciders) longRounds() []report.Round {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []report.Round
	for j := range d.busy {
		if time.Since(j.began) >= longRound {
			out = append(out, report.Round{Instance: j.entry.id, Orchestration: j.row.Name, Version: j.row.Version,
				Since: j.began.UTC(), Abandoned: j.reported})
		}
	}
	slices.SortFunc(out, func(a, b report.Round) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Instance, b.Instance))
	})
	return out
}
