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
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// pass publishes work that may be passed on, and tells when nobody has to keep it any more: it is
// done, or stored.
func (w *world) pass(instance string, work events.Work) (kept <-chan error) {
	w.t.Helper()
	wire, err := events.Encode(w.bus.Prefix(), w.message(instance, &work))
	if err != nil {
		w.t.Fatal(err)
	}
	wire.Pass = true
	done := make(chan error, 1)
	go func() { done <- w.bus.Publish(w.t.Context(), wire) }()
	return done
}

// kept waits for that.
func (w *world) kept(done <-chan error) {
	w.t.Helper()
	if err := receive(w.t, done, "somebody else keeps the work"); err != nil {
		w.t.Fatal(err)
	}
}

// passed checks how much work was passed on, and how much was stored after all.
func (w *world) passed(done, stored uint64) {
	w.t.Helper()
	if is := w.bus.Traffic(); is.ShortWay != done || is.PassedOn != stored {
		w.t.Errorf("%d were passed on, %d stored after all; want %d and %d", is.ShortWay, is.PassedOn, done, stored)
	}
}

// stored checks that so much of block's work is in the stream.
func (w *world) stored(want int64) {
	w.t.Helper()
	b, err := w.bus.WorkBacklog(w.t.Context(), broker.Queue{Activity: "block"})
	if err != nil || b.Waiting+b.Held != want {
		w.t.Errorf("%d are stored (%v), want %d", b.Waiting+b.Held, err, want)
	}
}

func TestPassedWorkIsExecuted(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{ID: "w-1"}, echo.With(func(ctx context.Context, s string) (string, error) {
		return s + "!", nil
	}))
	kept := w.pass("i", events.Work{Activity: "echo", Input: events.Payload(`"x"`)})
	if _, result := w.done(); result != `"x!"` {
		t.Errorf("got %s", result)
	}
	w.kept(kept)
	w.passed(1, 0)
	w.settled(broker.Queue{Activity: "echo"})
}

// Without a slot, work is for whoever has one.
func TestPassedWorkNeedsASlot(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.start(worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
	w.pass("i", events.Work{Activity: "block", Input: events.Payload(`"i"`)})
	first := receive(t, calls, "the first is begun")
	w.kept(w.pass("j", events.Work{Activity: "block", Input: events.Payload(`"j"`)}))
	w.stored(1)
	other := make(chan call, 10)
	w.start(worker.Config{ID: "w-2", Slots: 1}, held(block, other))
	receive(t, other, "the other worker has a slot").done("j")
	w.done()
	first.done("i")
	w.done()
	w.settled(broker.Queue{Activity: "block"})
}

// Work of a session is for the worker that has the session, and what a rate holds back waits in the
// broker.
func TestSomeWorkIsNotPassed(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{ID: "w-1", RatePerActivity: map[string]float64{"block": 1000}}, naming(),
		block.With(func(_ context.Context, s string) (string, error) {
			return s, nil
		}))
	for i, work := range []events.Work{{Activity: "echo", Session: "s"},
		{Activity: "block", Input: events.Payload(`"x"`)}} {
		w.kept(w.pass(fmt.Sprint("i", i), work))
		w.done()
		w.passed(0, uint64(i+1))
	}
}

// What takes its time is stored, and whoever takes it from there hands it to the one that executes
// it.
func TestPassedWorkThatLastsStaysWhereItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	calls, others := make(chan call, 10), make(chan call, 10)
	w.start(worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
	kept := w.pass("i", events.Work{Activity: "block", Input: events.Payload(`"x"`)})
	c := receive(t, calls, "it is begun")
	w.start(worker.Config{ID: "w-2"}, held(block, others))
	w.kept(kept)
	w.passed(0, 1)
	w.stored(1)
	w.nothing(2 * w.wait) // for so long nobody has it handed out again
	c.done("y")
	if _, result := w.done(); result != `"y"` {
		t.Errorf("got %s", result)
	}
	w.settled(broker.Queue{Activity: "block"})
	if len(calls)+len(others) > 0 {
		t.Error("it was executed twice")
	}
}

// lastsAt passes work to workers, and stores none of it: it gives what to store when all of it
// takes its time.
func (w *world) lastsAt(q string, instances int) (store []events.Wire) {
	w.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(w.server))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	var body []byte
	text := func(s string) { body = append(binary.AppendUvarint(body, uint64(len(s))), s...) }
	for i := range instances {
		wire, err := events.Encode(w.bus.Prefix(),
			w.message(fmt.Sprint("i", i), &events.Work{Activity: "block", Input: events.Payload(`"x"`)}))
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
	inbox := nc.NewInbox()
	said, err := nc.SubscribeSync(inbox)
	if err == nil {
		err = nc.PublishMsg(&nats.Msg{Subject: "rondo.notice.handover.to.work-w___" + q, Reply: inbox,
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

// It ends before what is stored of it is taken, by its own worker or by another one.
func TestPassedWorkIsDoneBeforeItIsTaken(t *testing.T) {
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
	w.settled(broker.Queue{Activity: "block"})
	w.nothing(time.Second / 2)
	if len(calls) > 0 {
		t.Error("it is executed twice")
	}
}

// Who has it dies, and it is executed once more.
func TestPassedWorkOfAWorkerThatDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lasts bool
		next  string
	}{"soon": {false, "w-2"}, "when it was stored": {true, "w-2"}, "and the next has the same name": {true, "w-1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			calls, again := make(chan call, 10), make(chan call, 10)
			first := w.start(worker.Config{ID: "w-1", Slots: 1}, held(block, calls))
			kept := w.pass("i", events.Work{Activity: "block", Input: events.Payload(`"x"`)})
			lost := receive(t, calls, "it is begun")
			if c.lasts {
				w.kept(kept)
			}
			first.kill()
			w.start(worker.Config{ID: c.next}, held(block, again))
			second := receive(t, again, "it is executed once more")
			if n := activity.InfoOf(second.ctx); n.Worker != c.next {
				t.Errorf("it is executed by %s", n.Worker)
			}
			second.done("y")
			if _, result := w.done(); result != `"y"` {
				t.Errorf("got %s", result)
			}
			w.settled(broker.Queue{Activity: "block"})
			lost.done("too late")
		})
	}
}

// A worker that ends gives it back, so that another one begins at once.
func TestPassedWorkOfAWorkerThatEnds(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls, again := make(chan call, 10), make(chan call, 10)
	first := w.start(worker.Config{ID: "w-1"}, obedient(block, calls))
	kept := w.pass("i", events.Work{Activity: "block", Input: events.Payload(`"x"`)})
	receive(t, calls, "it is begun")
	if err := first.drain(t); err != nil {
		t.Fatal(err)
	}
	w.kept(kept)
	w.start(worker.Config{ID: "w-2"}, obedient(block, again))
	receive(t, again, "it is executed by the next").done("y")
	w.done()
	w.settled(broker.Queue{Activity: "block"})
}

// What nobody wants any more stops, also if it was passed on.
func TestPassedWorkIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.start(worker.Config{ID: "w-1", Slots: 1}, obedient(block, calls))
	work := events.Work{Activity: "block", Input: events.Payload(`"x"`)}
	kept := w.pass("i", work)
	c := receive(t, calls, "it is begun")
	w.kept(kept) // until then a withdrawal waits, where work is published
	w.withdraw("i", work)
	receive(t, c.ctx.Done(), "it is stopped")
	w.settled(broker.Queue{Activity: "block"})
	w.nothing(time.Second / 2)
}
