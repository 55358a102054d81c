package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

const (
	// withdrawnFor is how long the worker remembers a withdrawal for a task that is just arriving.
	withdrawnFor = 2 * time.Second
	// maxAsking bounds the concurrent requests whether a task is still wanted.
	maxAsking = 16
	// surelyStored is the time after which the broker reports a directly delivered task as stored
	// only if it is. Before that, it also reports a task that may be stored soon.
	surelyStored = 3 * broker.LastsAfter
)

// recheck are the delays of further requests whether a withdrawn task is stored: a replica may be
// behind.
var recheck = []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}

// withdrawals finds out which held tasks are no longer wanted, and stops them.
type withdrawals struct {
	bus interface {
		Stored(ctx context.Context, d broker.Delivery) (bool, error)
	}
	side   *side
	held   *held
	stop   func(*attempt)
	asking chan struct{} // bounds the concurrent requests
	recent recent
}

// told handles the notification that a task is withdrawn.
func (w *withdrawals) withdrawn(subject string) {
	w.recent.add(subject, time.Now())
	for _, a := range w.held.of(subject) {
		w.doubt(a)
	}
}

// doubt soon finds out whether a task is still wanted.
func (w *withdrawals) doubt(a *attempt) {
	w.side.run(func(ctx context.Context) {
		for _, after := range recheck {
			select {
			case <-time.After(after):
			case <-ctx.Done():
				return
			}
			if !w.isWanted(ctx, a, true) {
				return
			}
		}
	})
}

// wonder asks whether a task is still wanted, unless many others ask just now.
func (w *withdrawals) wonder(a *attempt) {
	select {
	case w.asking <- struct{}{}:
	default:
		return
	}
	if !w.side.run(func(ctx context.Context) {
		defer func() { <-w.asking }()
		w.isWanted(ctx, a, false)
	}) {
		<-w.asking
	}
}

// isWanted asks the broker, and stops a task whose result is no longer wanted. Only the broker
// distinguishes the task from a later one on the same subject, of an instance that was started
// again. A directly delivered task may be stored late, because its publisher may be frozen. So its
// absence counts only if it was stored before, or if the broker has notified its withdrawal, which
// happens after the storing.
func (w *withdrawals) isWanted(ctx context.Context, a *attempt, told bool) bool {
	stored, err := w.bus.Stored(ctx, a.d)
	switch {
	case err != nil, stored && time.Since(a.since) < surelyStored:
		return true
	case stored:
		a.isStored()
		return true
	case !told && a.d.Direct && !a.wasStored():
		return true
	}
	w.stop(a)
	return false
}

// recent remembers the tasks that were withdrawn a moment ago: they may be in flight to this
// worker.
type recent struct {
	mu       sync.Mutex
	subjects []string
	at       []time.Time
}

const maxRecent = 1024

func (r *recent) add(subject string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	if len(r.subjects) >= maxRecent {
		r.subjects, r.at = r.subjects[1:], r.at[1:]
	}
	r.subjects, r.at = append(r.subjects, subject), append(r.at, now)
}

func (r *recent) forget(now time.Time) {
	n := 0
	for n < len(r.at) && now.Sub(r.at[n]) > withdrawnFor {
		n++
	}
	r.subjects, r.at = r.subjects[n:], r.at[n:]
}

func (r *recent) has(subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.subjects) == 0 {
		return false
	}
	r.forget(time.Now())
	return slices.Contains(r.subjects, subject)
}
