package worker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// pass publishes a task for direct delivery. The channel gets the error of Publish when the task is
// done, or stored.
func (w *world) pass(instance string, work events.Task) (kept <-chan error) {
	w.t.Helper()
	wire, err := events.Encode(w.bus.Prefix(), w.message(instance, &work))
	if err != nil {
		w.t.Fatal(err)
	}
	wire.Direct = true
	done := make(chan error, 1)
	go func() { done <- w.bus.Publish(w.t.Context(), wire) }()
	return done
}

// kept waits for the end of a pass.
func (w *world) kept(done <-chan error) {
	w.t.Helper()
	if err := receive(w.t, done, "somebody else keeps the work"); err != nil {
		w.t.Fatal(err)
	}
}

// passed checks how many tasks were delivered directly, and how many were stored after all.
func (w *world) passed(done, stored uint64) {
	w.t.Helper()
	if is := w.bus.(*natsbroker.Bus).Traffic(); is.Direct != done || is.DirectRefused != stored {
		w.t.Errorf("%d were passed on, %d stored after all; want %d and %d", is.Direct, is.DirectRefused, done, stored)
	}
}

// stored waits until so many of block's tasks are in the stream. The server confirms a message
// before it has counted it as pending for the consumer.
func (w *world) stored(want int64) {
	w.t.Helper()
	w.until(fmt.Sprint("stored: ", want), func() bool {
		b, err := w.bus.TaskBacklog(w.t.Context(), broker.TaskQueueName{Activity: "block"})
		if err != nil {
			w.t.Fatal(err)
		}
		return b.Waiting+b.Held == want
	})
}

func TestDirectTaskIsExecuted(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{ID: "w-1"}, echo.Bind(func(ctx context.Context, s string) (string, error) {
		return s + "!", nil
	}))
	kept := w.pass("i", events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	if _, result := w.done(); result != `"x!"` {
		t.Errorf("got %s", result)
	}
	w.kept(kept)
	w.passed(1, 0)
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

// If a worker has no free slot, another one gets the task.
func TestDirectTaskNeedsASlot(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.start(worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
	w.pass("i", events.Task{Activity: "block", Input: codec.Payload(`"i"`)})
	first := receive(t, calls, "the first is begun")
	w.kept(w.pass("j", events.Task{Activity: "block", Input: codec.Payload(`"j"`)}))
	w.stored(1)
	other := make(chan call, 10)
	w.start(worker.Config{ID: "w-2", Slots: 1}, held(block, other))
	receive(t, other, "the other worker has a slot").done("j")
	w.done()
	first.done("i")
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
}

// A task of a session is for the worker that has the session, and tasks that exceed a rate wait in
// the broker.
func TestSomeWorkIsNotPassed(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{ID: "w-1", RatePerActivity: map[string]float64{"block": 1000}}, naming(),
		block.Bind(func(_ context.Context, s string) (string, error) {
			return s, nil
		}))
	for i, work := range []events.Task{{Activity: "echo", Session: "s"},
		{Activity: "block", Input: codec.Payload(`"x"`)}} {
		w.kept(w.pass(fmt.Sprint("i", i), work))
		w.done()
		w.passed(0, uint64(i+1))
	}
}

// A task whose execution takes long is stored. Another worker that takes it from the stream hands
// it over to the one that executes it.
func TestDirectTaskThatLastsStaysWhereItIs(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, w *world, lasts time.Duration) {
		calls, others := make(chan call, 10), make(chan call, 10)
		w.start(worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
		kept := w.pass("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
		c := receive(t, calls, "it is begun")
		w.start(worker.Config{ID: "w-2"}, held(block, others))
		w.kept(kept)
		if w.server != nil { // the simulated broker does not count
			w.passed(0, 1)
		}
		w.stored(1)
		w.nothing(lasts)
		c.done("y")
		if _, result := w.done(); result != `"y"` {
			t.Errorf("got %s", result)
		}
		w.settled(broker.TaskQueueName{Activity: "block"})
		if len(calls)+len(others) > 0 {
			t.Error("it was executed twice")
		}
	}
	t.Run("for a moment", func(t *testing.T) {
		t.Parallel()
		test(t, newPatientWorld(t), time.Second)
	})
	t.Run("for longer than the ack wait", func(t *testing.T) {
		t.Parallel()
		inVirtualTime(t, func(t *testing.T, w *world) { test(t, w, 2*w.wait) })
	})
}

// lastsAt delivers tasks directly to workers, and stores none of them. When all executions take
// long, it returns the tasks to store.
func (w *world) lastsAt(q string, instances int) (store []events.Wire) {
	w.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(w.server), nats.Timeout(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	var body []byte
	text := func(s string) { body = append(binary.AppendUvarint(body, uint64(len(s))), s...) }
	for i := range instances {
		wire, err := events.Encode(w.bus.Prefix(),
			w.message(fmt.Sprint("i", i), &events.Task{Activity: "block", Input: codec.Payload(`"x"`)}))
		if err != nil {
			w.t.Fatal(err)
		}
		text(wire.Subject)
		body = binary.AppendUvarint(body, uint64(len(wire.Header)))
		for name, values := range wire.Header {
			text(name)
			text(values[0])
		}
		text(string(wire.Body))
		store = append(store, wire)
	}
	inbox := "rondo.direct.answer.task.test.1"
	said, err := nc.SubscribeSync(inbox)
	if err == nil {
		err = nc.PublishMsg(&nats.Msg{Subject: "rondo.direct.task.to.w___" + q, Reply: inbox,
			Header: nats.Header{"Rondo-Results": {fmt.Sprint(instances)}}, Data: body})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		m, err := said.NextMsg(patience)
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.Count(string(m.Data), "L") == instances {
			for i := range store {
				store[i].Header[events.HeaderHeld] = m.Header[events.HeaderWorker]
			}
			return store
		}
	}
}

// The task is done before its stored copy is taken, by its own worker or by another one.
func TestDirectTaskIsDoneBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const n = 40
	calls := make(chan call, 2*n)
	first := w.start(worker.Config{ID: "w-1"}, held(block, calls))
	stored := w.lastsAt("block", n)
	for range n {
		receive(t, calls, "it is begun").done("y")
		w.done()
	}
	w.until("the worker has settled it", func() bool { return len(first.Status().Holds) == 0 })
	w.start(worker.Config{ID: "w-2"}, held(block, calls))
	if err := w.bus.Publish(t.Context(), stored...); err != nil {
		t.Fatal(err)
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
	w.nothing(time.Second / 2)
	if len(calls) > 0 {
		t.Error("it is executed twice")
	}
}

// The worker of a task dies, and another one executes the task once more.
func TestDirectTaskOfAWorkerThatDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lasts bool
		next  string
	}{"soon": {false, "w-2"}, "when it was stored": {true, "w-2"}, "and the next has the same name": {true, "w-1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newHastyWorld(t)
			calls, again := make(chan call, 10), make(chan call, 10)
			first := w.start(worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
			kept := w.pass("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
			lost := receive(t, calls, "it is begun")
			if c.lasts {
				w.kept(kept)
			}
			first.kill()
			w.start(worker.Config{ID: c.next}, held(block, again))
			second := receive(t, again, "it is executed once more")
			if n := activity.Info(second.ctx); n.Worker != c.next {
				t.Errorf("it is executed by %s", n.Worker)
			}
			second.done("y")
			if _, result := w.done(); result != `"y"` {
				t.Errorf("got %s", result)
			}
			w.settled(broker.TaskQueueName{Activity: "block"})
			lost.done("too late")
		})
	}
}

// A worker that shuts down nacks the task, so that another one begins at once.
func TestDirectTaskOfAWorkerThatEnds(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls, again := make(chan call, 10), make(chan call, 10)
	first := w.start(worker.Config{ID: "w-1", CancelGrace: patience}, obedient(block, calls))
	kept := w.pass("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	receive(t, calls, "it is begun")
	if err := first.drain(t); err != nil {
		t.Fatal(err)
	}
	w.kept(kept)
	w.start(worker.Config{ID: "w-2"}, obedient(block, again))
	receive(t, again, "it is executed by the next").done("y")
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
}

// A withdrawn task stops, even if it was delivered directly.
func TestDirectTaskIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.start(worker.Config{ID: "w-1", Slots: 1}, obedient(block, calls))
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
	kept := w.pass("i", work)
	c := receive(t, calls, "it is begun")
	w.kept(kept) // a withdrawal waits for that, where the task is published
	w.withdraw("i", work)
	receive(t, c.ctx.Done(), "it is stopped")
	w.settled(broker.TaskQueueName{Activity: "block"})
	w.nothing(time.Second / 2)
}

// NATS loses its files after the worker has sent the answer. Recovery stores the task once more.
// The worker sends the answer again, and does not execute the task a second time.
func TestDirectTaskWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		calls := make(chan call, 10)
		w.start(worker.Config{ID: "w-1"}, held(block, calls))
		work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
		kept := w.pass("i", work)
		c := receive(t, calls, "it is begun")
		w.kept(kept)
		w.stored(1)
		c.done("y")
		w.done()
		w.settled(broker.TaskQueueName{Activity: "block"})
		for _, again := range []string{"once", "twice"} {
			w.sim.Forget()
			w.send("i", work)
			if _, result := w.done(); result != `"y"` {
				t.Errorf("%s: the answer is %s", again, result)
			}
			w.settled(broker.TaskQueueName{Activity: "block"})
		}
		w.nothing(9 * time.Minute)
		if len(calls) > 0 {
			t.Error("it is executed twice")
		}
		w.nothing(2 * time.Minute)
		w.sim.Forget()
		w.send("i", work)
		receive(t, calls, "it is executed, since the answer is not kept any more").done("z")
		if _, result := w.done(); result != `"z"` {
			t.Errorf("later the answer is %s", result)
		}
		w.settled(broker.TaskQueueName{Activity: "block"})
	})
}
