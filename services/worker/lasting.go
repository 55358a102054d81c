package worker

import (
	"errors"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// A directly delivered task whose execution takes long is stored meanwhile, with the id of its
// worker. If another worker takes it from the broker, that one hands it over to its worker, which
// from then on extends and settles the stored task. If its worker is gone, the other one executes
// it once more.

// elsewhere hands a task over to the worker that has it already, or acknowledges a task that is
// done. It returns false if neither is so.
func (m *admission) elsewhere(a *attempt) bool {
	if !a.d.Direct && m.lasted.has(keyOf(a.d)) { // it is done, whatever the stream says
		m.settler.aside(a, acked)
		return true
	}
	by := first(a.d.Header[events.HeaderHeld])
	if by == "" {
		return false
	}
	if by == m.id {
		a.d.NumDelivered++ // a former process with this id has begun it
		return false
	}
	if err := m.bus.Handover(m.ctx, by, a.d); err != nil {
		a.log().Info("worker: work was begun by a worker that does not have it any more", "worker", by, "error", err)
		a.d.NumDelivered++
		return false
	}
	m.settler.aside(a, dropped)
	return true
}

// mine joins the delivery of a task that this worker has had since before it was stored.
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

// maxLasted and lastedFor limit how many tasks the worker remembers, and for how long: longer than
// the ack wait of a worker that has died before it could hand the stored task over.
const (
	maxLasted = 100_000
	lastedFor = 10 * time.Minute
)

// lasted remembers directly delivered tasks that are done, from before the answer until it is
// certain that the stream does not deliver them.
type lasted struct {
	mu    sync.Mutex
	known map[string]time.Time
	order []doneTask // those that the stream may deliver, the oldest first
}

type doneTask struct {
	key  string
	done time.Time
}

// note remembers a task, until it is kept or forgotten.
func (l *lasted) note(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[string]time.Time)
	}
	l.known[key] = now
}

// keep keeps a task that the stream may deliver.
func (l *lasted) keep(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.order) > 0 && (len(l.order) >= maxLasted || now.Sub(l.order[0].done) > lastedFor) {
		if oldest := l.order[0]; l.known[oldest.key].Equal(oldest.done) {
			delete(l.known, oldest.key)
		}
		l.order = l.order[1:]
	}
	l.known[key], l.order = now, append(l.order, doneTask{key, now})
}

// forget forgets a task that the stream does not deliver.
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

// keyOf distinguishes tasks with one event reference in different incarnations.
func keyOf(d broker.Delivery) string { return d.Subject + " " + incarnationOf(d) }

func incarnationOf(d broker.Delivery) string { return first(d.Header[events.HeaderIncarnation]) }

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
