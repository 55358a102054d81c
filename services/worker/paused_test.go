package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// pausedBus is the connection of a worker that stands still at two moments: when work comes to it
// past the streams, and when it comes from a stream.
type pausedBus struct {
	*natsbroker.Bus
	passed, stored func()
}

func (b pausedBus) OpenQueue(ctx context.Context, q broker.Queue) (broker.WorkQueue, error) {
	w, err := b.Bus.OpenQueue(ctx, q)
	return pausedQueue{w, b}, err
}

type pausedQueue struct {
	broker.WorkQueue
	b pausedBus
}

func (q pausedQueue) Offer(name string, take func(broker.Delivery) bool) (stop func(), err error) {
	return q.WorkQueue.Offer(name, func(d broker.Delivery) bool {
		q.b.passed()
		return take(d)
	})
}

func (q pausedQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	return q.WorkQueue.Take(ctx, n, func(d broker.Delivery) {
		q.b.stored()
		take(d)
	})
}

// startPaused runs a worker on such a connection.
func (w *world) startPaused(passed, stored func(), calls chan call) {
	b := w.connect()
	r := &running{bus: b, err: make(chan error, 1)}
	r.Worker = w.make(pausedBus{b, passed, stored}, worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
	w.runs(r)
}

// The worker stands still between when work has come and when it takes it, so that the work is
// stored when it has begun only just now. It is done before what is stored comes.
func TestPassedWorkIsDoneOnceHoweverLateItIsTaken(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls, settled := make(chan call, 10), make(chan struct{})
	w.startPaused(func() { <-time.After(broker.LastsAfter * 3 / 4) }, func() { <-settled }, calls)
	kept := w.pass("i", events.Work{Activity: "block", Input: events.Payload(`"x"`)})
	c := receive(t, calls, "it is begun")
	w.kept(kept) // it is stored, because it takes its time
	c.done("y")
	if _, result := w.done(); result != `"y"` {
		t.Errorf("got %s", result)
	}
	close(settled)
	w.settled(broker.Queue{Activity: "block"})
	if len(calls) > 0 {
		t.Error("it is executed twice")
	}
}

// The worker stands still for so long that what has come to it is stored before it was asked. It
// does not begin with that as if nobody else had it.
func TestPassedWorkThatIsTakenTooLateIsExecutedOnce(t *testing.T) {
	t.Parallel()
	pauses := map[string]time.Duration{"a moment": broker.LastsAfter + broker.LastsAfter/4,
		"longer": 4 * broker.LastsAfter}
	for name, pause := range pauses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPatientWorld(t)
			calls, others := make(chan call, 10), make(chan call, 10)
			first := make(chan struct{}, 1)
			first <- struct{}{}
			w.startPaused(func() {
				select {
				case <-first:
					<-time.After(pause)
				default:
				}
			}, func() {}, calls)
			kept := w.pass("i", events.Work{Activity: "block", Input: events.Payload(`"x"`)})
			w.kept(kept)
			w.start(worker.Config{ID: "w-2", Slots: 1}, held(block, others))
			select {
			case c := <-calls:
				c.done("y")
			case c := <-others:
				c.done("y")
			}
			w.done()
			w.settled(broker.Queue{Activity: "block"})
			w.nothing(time.Second / 2)
			if len(calls)+len(others) > 0 {
				t.Error("it is executed twice")
			}
		})
	}
}
