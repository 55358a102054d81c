package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// Work that has come past the broker and takes its time is stored while it is executed, marked with
// the id of the worker that has it. Whoever takes it from the broker hands it over to that one, who
// from then on keeps and settles what is stored. If that one is gone, it is executed once more.

// elsewhere gives work to the worker that has it already, and reports false if nobody has.
func (w *Worker) elsewhere(a *attempt) bool {
	if !a.d.Passed && w.lasted.has(keyOf(a.d)) { // whatever the stream says of it, it is done
		a.settleAside(acked)
		return true
	}
	by := first(a.d.Header[events.HeaderHeld])
	if by == "" {
		return false
	}
	if by == w.config.ID {
		a.d.NumDelivered++ // this worker was there before under the same id, and has begun it
		return false
	}
	if err := w.bus.Handover(w.publishing, by, a.d); err != nil {
		a.log().Info("worker: work was begun by a worker that does not have it any more", "worker", by, "error", err)
		a.d.NumDelivered++
		return false
	}
	a.settleAside(dropped)
	return true
}

// mine takes over the hold of work that this worker has had since before it was stored.
func (w *Worker) mine(d broker.Delivery) error {
	for _, a := range w.held.of(d.Subject) {
		if a.incarnation() == incarnationOf(d) && a.join(d.Hold) {
			return nil
		}
	}
	if !w.lasted.has(keyOf(d)) {
		return errors.New("it is not here any more")
	}
	d.Hold.Ack()
	return nil
}

// mayBegin reports whether work that was passed on may be executed: not if it has stood for so long
// that somebody else has it.
func (a *attempt) mayBegin() bool {
	passed, ok := a.d.Hold.(broker.PassedHold)
	if !ok || passed.Begin() {
		return true
	}
	a.settleAside(returned)
	return false
}

// acknowledge acknowledges a delivery. What was passed on is remembered as done before that is
// said, and as long as it is not certain that it was heard in time.
func (a *attempt) acknowledge(h broker.Hold) {
	passed, ok := h.(broker.PassedHold)
	switch {
	case !ok:
		h.Ack()
	case passed.Finish():
		a.w.lasted.forget(keyOf(a.d))
	default:
		a.w.lasted.keep(keyOf(a.d), time.Now())
	}
}

// settleAside settles work of which this is not the worker.
func (a *attempt) settleAside(o outcome) {
	a.mu.Lock()
	a.decided = true
	a.mu.Unlock()
	a.finish(o, 0)
}

// maxLasted and lastedFor bound how much is remembered, and for how long: longer than what is
// stored stays with a worker that has died before it could hand it over.
const (
	maxLasted = 100_000
	lastedFor = 10 * time.Minute
)

// lasted remembers work that was passed on and is done, from before that is said until it is
// certain that nothing of it comes from the stream.
type lasted struct {
	mu    sync.Mutex
	known map[string]time.Time
	order []doneWork // of what may come, the oldest first
}

type doneWork struct {
	key  string
	done time.Time
}

// note remembers work, until it is kept or forgotten.
func (l *lasted) note(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[string]time.Time)
	}
	l.known[key] = now
}

// keep keeps work in mind of which something may come from the stream.
func (l *lasted) keep(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.order) > 0 && (len(l.order) >= maxLasted || now.Sub(l.order[0].done) > lastedFor) {
		if oldest := l.order[0]; l.known[oldest.key].Equal(oldest.done) {
			delete(l.known, oldest.key)
		}
		l.order = l.order[1:]
	}
	l.known[key], l.order = now, append(l.order, doneWork{key, now})
}

// forget forgets work of which nothing comes.
func (l *lasted) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, key)
}

func (l *lasted) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, is := l.known[key]
	return is
}

// keyOf tells work apart from work of the same place in another incarnation.
func keyOf(d broker.Delivery) string { return d.Subject + " " + incarnationOf(d) }

func incarnationOf(d broker.Delivery) string { return first(d.Header[events.HeaderIncarnation]) }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
