package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// pausedBus is the connection of a worker that freezes at two moments: when a task is delivered to
// it directly, and when one arrives from a stream.
type pausedBus struct {
	*natsbroker.Bus
	passed, stored func()
}

func (b pausedBus) OpenTaskQueue(ctx context.Context, q broker.TaskQueueName) (broker.TaskQueue, error) {
	w, err := b.Bus.OpenTaskQueue(ctx, q)
	return pausedQueue{w, b}, err
}

type pausedQueue struct {
	broker.TaskQueue
	b pausedBus
}

func (q pausedQueue) Offer(name string, take func(broker.Delivery) bool) (stop func(), err error) {
	return q.TaskQueue.Offer(name, func(d broker.Delivery) bool {
		q.b.passed()
		return take(d)
	})
}

func (q pausedQueue) Take(ctx context.Context, n int, take func(broker.Delivery)) (int, error) {
	return q.TaskQueue.Take(ctx, n, func(d broker.Delivery) {
		q.b.stored()
		take(d)
	})
}

// startPaused runs a worker on a pausedBus.
func (w *world) startPaused(passed, stored func(), calls chan call) {
	b := w.connect()
	r := &running{bus: b, err: make(chan error, 1)}
	r.Worker = w.make(pausedBus{b, passed, stored}, worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
	w.runs(r)
}

// The worker freezes between the arrival of a task and its acceptance, so that the task is stored
// when it has just begun. The task is done before its stored copy arrives.
func TestDirectTaskIsDoneOnceHoweverLateItIsTaken(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls, settled := make(chan call, 10), make(chan struct{})
	w.startPaused(func() { <-time.After(broker.LastsAfter * 3 / 4) }, func() { <-settled }, calls)
	kept := w.pass("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "it is begun")
	w.kept(kept) // it is stored, because it takes its time
	c.done("y")
	if _, result := w.done(); result != `"y"` {
		t.Errorf("got %s", result)
	}
	close(settled)
	w.settled(broker.TaskQueueName{Activity: "block"})
	if len(calls) > 0 {
		t.Error("it is executed twice")
	}
}

// The worker freezes for so long that its tasks are stored before it has accepted them. It does not
// begin them as if no other worker had them.
func TestDirectTaskThatIsTakenTooLateIsExecutedOnce(t *testing.T) {
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
			kept := w.pass("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
			w.kept(kept)
			w.start(worker.Config{ID: "w-2", Slots: 1}, held(block, others))
			select {
			case c := <-calls:
				c.done("y")
			case c := <-others:
				c.done("y")
			}
			w.done()
			w.settled(broker.TaskQueueName{Activity: "block"})
			w.nothing(time.Second / 2)
			if len(calls)+len(others) > 0 {
				t.Error("it is executed twice")
			}
		})
	}
}
