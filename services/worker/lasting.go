package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

// Work that has come past the broker and takes its time is stored while it is executed, marked with the id of the worker that has it. Whoever takes it from the broker hands it over to that one, who from then on keeps
// and settles what is stored. If that one is gone, it is executed once more.

// elsewhere gives work to the worker that has it already, and reports false if nobody has.
func (w *Worker) elsewhere(a *attempt) bool {
	by := first(a.d.Header[events.HeaderHeld])
	if by == "" {
		return false
	}
	if by == w.config.ID {
		if !w.lasted.has(keyOf(a.d)) {
			a.d.Deliveries++ // this worker was there before under the same id, and has begun it
			return false
		}
		a.settleAside(acked)
		return true
	}
	if err := w.bus.Handover(w.publishing, by, a.d); err != nil {
		a.log().Info("worker: work was begun by a worker that does not have it any more", "worker", by, "error", err)
		a.d.Deliveries++
		return false
	}
	a.settleAside(dropped)
	return true
}

// mine takes over the hold of work that this worker has had since before it was stored.
func (w *Worker) mine(d bus.Delivery) error {
	for _, a := range w.held.of(d.Subject) {
		if a.life() == lifeOf(d) && a.join(d.Hold) {
			return nil
		}
	}
	if !w.lasted.has(keyOf(d)) {
		return errors.New("it is not here any more")
	}
	d.Hold.Ack()
	return nil
}

// settleAside settles work of which this is not the worker.
func (a *attempt) settleAside(o outcome) {
	a.mu.Lock()
	a.decided = true
	a.mu.Unlock()
	a.finish(o, 0)
}

// maxLasted bounds how much is remembered.
const maxLasted = 10_000

// lasted remembers work that was done before what is stored of it came to be settled, the oldest first. That it comes is all but sure: not, if it was settled and not stored after all.
type lasted struct {
	mu    sync.Mutex
	known map[string]bool
	order []string
}

// note remembers work that is done, if it may be stored and nobody here holds that.
func (l *lasted) note(a *attempt, holds int) {
	if !a.d.Passed || holds > 1 || time.Since(a.since) < bus.LastsAfter*9/10 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(a.d)
	if l.known[key] {
		return
	}
	if l.known == nil {
		l.known = make(map[string]bool)
	}
	if len(l.order) >= maxLasted {
		delete(l.known, l.order[0])
		l.order = l.order[1:]
	}
	l.known[key], l.order = true, append(l.order, key)
}

func (l *lasted) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[key]
}

// keyOf tells work apart from work of the same place in another life.
func keyOf(d bus.Delivery) string { return d.Subject + " " + lifeOf(d) }

func lifeOf(d bus.Delivery) string { return first(d.Header[events.HeaderLife]) }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
