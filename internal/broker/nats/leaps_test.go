package natsbroker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestMessagesFromTheFutureAreRedelivered nacks messages for an hour that count as stored in the
// future: a process that was not there during a leap of NATS's clock finds them. Each of them is
// redelivered once, although it is nacked again, with those before it.
func TestMessagesFromTheFutureAreRedelivered(t *testing.T) {
	t.Parallel()
	b := natstest.Connect(t, natstest.Start(t), natsbroker.Config{Partitions: 1})
	b.ReconcileEvery(100 * time.Millisecond)
	b.FutureAfter(-time.Hour)
	came := make(chan broker.Delivery, 100)
	go func() {
		for t.Context().Err() == nil {
			_ = b.Receive(t.Context(), 0, func(d broker.Delivery) {
				d.Hold.Nak(time.Hour)
				came <- d
			})
		}
	}()
	publish := func(id string) {
		t.Helper()
		if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.e.i",
			Header: events.Header{events.HeaderMsgID: {id}}}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(ids ...string) {
		t.Helper()
		for _, want := range ids {
			select {
			case d := <-came:
				if id := d.Header[events.HeaderMsgID][0]; id != want {
					t.Fatalf("%q came, want %q of %q", id, want, ids)
				}
			case <-time.After(5 * time.Minute):
				t.Fatalf("%q of %q does not come", want, ids)
			}
		}
	}
	publish("1")
	expect("1", "1")
	publish("2")
	expect("2", "1", "2")
	publish("3")
	expect("3", "1", "2", "3")
}

// TestTasksAreRedeliveredAfterALeap takes a task, and does not settle it. When the clock of NATS is
// right again after a leap, the task comes again.
func TestTasksAreRedeliveredAfterALeap(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1, TaskAckWait: time.Hour})
	go func() { _ = b.Receive(t.Context(), 0, func(broker.Delivery) {}) }()
	q, err := b.OpenTaskQueue(t.Context(), broker.TaskQueueName{Activity: "act"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.task._.act.1-2.i",
		Header: events.Header{events.HeaderMsgID: {"1"}}}); err != nil {
		t.Fatal(err)
	}
	take := func() {
		t.Helper()
		for n := 0; n == 0; {
			if n, err = q.Take(t.Context(), 1, func(broker.Delivery) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	take()
	js := rawJetStream(t, s)
	natstest.Eventually(t, "the process receives", func() bool { // and compares
		var c jetstream.Consumer
		c, err = js.Consumer(t.Context(), "RONDO", "p-0")
		return err == nil && c.CachedInfo().NumWaiting > 0
	})
	b.RedeliverAfterLeap(time.Now(), time.Hour)
	take()
}
