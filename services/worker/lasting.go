package worker

import (
	"context"
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

// elsewhere hands a task over to the worker that has it already, or sends the answer of a task that
// is done once more. It returns false if neither is so.
func (m *admission) elsewhere(a *attempt) bool {
	if !a.d.Direct { // it is in the stream, although it is done: perhaps its answer is lost
		if answer, done := m.lasted.find(a.d, m.id, time.Now()); done {
			m.answerAgain(a, answer)
			return true
		}
	}
	by := first(a.d.Header[events.HeaderHeld])
	if by == "" {
		return false
	}
	if by == m.id {
		a.elsewhere.Store(true) // a former process with this id has begun it
		return false
	}
	if err := m.bus.Handover(m.ctx, by, a.d); err != nil {
		a.log().Info("worker: work was begun by a worker that does not have it any more", "worker", by, "error", err)
		a.elsewhere.Store(true)
		return false
	}
	m.settler.aside(a, dropped)
	return true
}

// answerAgain stores the answer of a task that is done, and then acknowledges the task.
func (m *admission) answerAgain(a *attempt, answer events.Wire) {
	if answer.Subject == "" {
		m.settler.aside(a, acked)
		return
	}
	a.decline()
	m.completer.send(completion{a: a, wire: answer})
}

// mine joins the delivery of a task that this worker has had since before it was stored.
func (w *Worker) mine(d broker.Delivery) error {
	for _, a := range w.held.of(d.Subject) {
		if a.incarnation() == incarnationOf(d) && a.join(d.Hold) {
			return nil
		}
	}
	answer, done := w.lasted.find(d, w.config.ID, time.Now())
	switch {
	case !done:
		return errors.New("it is not here any more")
	case answer.Subject == "":
		d.Hold.Ack()
	case !w.side.run(func(ctx context.Context) {
		if w.bus.Publish(ctx, answer) == nil { // otherwise the broker redelivers the task
			d.Hold.Ack()
		}
	}):
		return errors.New("it ends")
	}
	return nil
}

// maxLasted, maxAnswers and lastedFor limit how many tasks the worker remembers, how many bytes of
// their answers, and for how long: longer than the ack wait of a worker that has died before it
// could hand the stored task over.
const (
	maxLasted  = 100_000
	maxAnswers = 16 << 20
	lastedFor  = 10 * time.Minute
)

// lasted remembers directly delivered tasks that are done, from before the response until it is
// certain that the stream does not deliver them. It has their answers, too: a task is also stored
// once more when NATS has lost the answer, and then only the answer ends the wait of its instance.
type lasted struct {
	mu    sync.Mutex
	known map[string]doneTask
	order []doneTask // those that the stream may deliver, the oldest first
	bare  int        // so many of them, the oldest, have no answer any more
	bytes int        // of the answers of the others
}

type doneTask struct {
	key    string
	done   time.Time
	answer events.Wire // what the instance was sent; without a subject if it is not kept
}

func (t doneTask) size() int { return len(t.answer.Subject) + len(t.answer.Body) }

// note remembers a task, until it is kept or forgotten.
func (l *lasted) note(key string, now time.Time, answer events.Wire) {
	answer.DirectTo = "" // the stream keeps it, whatever has happened to its receiver
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[string]doneTask)
	}
	l.known[key] = doneTask{key, now, answer}
}

// keep keeps a task that was noted, and that the stream may deliver.
func (l *lasted) keep(key string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.order) > 0 && (len(l.order) >= maxLasted || now.Sub(l.order[0].done) > lastedFor) {
		oldest := l.order[0]
		if l.known[oldest.key].done.Equal(oldest.done) {
			delete(l.known, oldest.key)
		}
		if l.bare > 0 {
			l.bare--
		} else {
			l.bytes -= oldest.size()
		}
		l.order[0] = doneTask{}
		l.order = l.order[1:]
	}
	t := l.known[key]
	t.key, t.done = key, now
	l.known[key], l.order = t, append(l.order, t)
	for l.bytes += t.size(); l.bytes > maxAnswers; l.bare++ {
		l.strip(&l.order[l.bare])
	}
}

// strip drops the answer of a task that is kept.
func (l *lasted) strip(t *doneTask) {
	l.bytes -= t.size()
	t.answer = events.Wire{}
	if l.known[t.key].done.Equal(t.done) {
		l.known[t.key] = *t
	}
}

// forget forgets a task that the stream does not deliver.
func (l *lasted) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, key)
}

// find reports whether a stored task is done, and returns its answer. If the answer is not kept,
// only the copy that was stored while this worker executed the task counts as done: any other copy
// may have been stored because the answer was lost.
func (l *lasted) find(d broker.Delivery, worker string, now time.Time) (answer events.Wire, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, is := l.known[keyOf(d)]
	if !is || now.Sub(t.done) > lastedFor {
		return events.Wire{}, false
	}
	return t.answer, t.answer.Subject != "" || first(d.Header[events.HeaderHeld]) == worker
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
