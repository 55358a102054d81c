package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// naming returns the id of the worker that executes it.
func naming() activity.Binding {
	return echo.Bind(func(ctx context.Context, _ string) (string, error) { return activity.Info(ctx).Worker, nil })
}

// inSession publishes a task in a session, and returns the worker that has executed it.
func (w *world) inSession(session string, n int) string {
	w.t.Helper()
	w.send("i", events.Task{Activity: "echo", Session: session,
		Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(n + 2)}})
	_, result := w.done()
	return result
}

func TestASessionStaysWithItsWorker(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	workers := map[string]*running{}
	for _, id := range []string{"w-1", "w-2", "w-3"} {
		workers[fmt.Sprintf("%q", id)] = w.start(worker.Config{ID: id}, naming())
	}
	first := w.inSession("s", 0)
	for i := range 30 {
		if got := w.inSession("s", i+1); got != first {
			t.Fatalf("work %d went to %s, the session is with %s", i, got, first)
		}
	}
	for id, r := range workers {
		want := []string{"s"}
		if id != first {
			want = []string{}
		}
		if got := r.Status().Sessions; !slices.Equal(got, want) {
			t.Errorf("%s has sessions %q", id, got)
		}
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

func TestAnActivitySeesItsSession(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{}, echo.Bind(func(ctx context.Context, _ string) (string, error) {
		return activity.Info(ctx).Session, nil
	}))
	if got := w.inSession("cart 7/a.b", 0); got != `"cart 7/a.b"` {
		t.Errorf("got %s", got)
	}
}

func TestASessionMovesWhenItsWorkerDies(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		calls, others := make(chan call, 10), make(chan call, 10)
		first := w.start(worker.Config{ID: "w-1"}, held(block, calls))
		w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), Session: "s"})
		c := receive(t, calls, "the first worker has the session")
		w.start(worker.Config{ID: "w-2"}, held(block, others))
		first.kill()
		again := receive(t, others, "the second worker has the session and its work")
		again.done("y")
		w.done()
		if owner, err := w.bus.Owner(t.Context(), "s"); owner != "w-2" || err != nil {
			t.Errorf("the session is with %q, %v", owner, err)
		}
		w.settled(broker.TaskQueueName{Activity: "block"})
		c.done("too late")
	})
}

func TestASessionMovesAtOnceWhenItsWorkerDrains(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	first := w.start(worker.Config{ID: "w-1"}, naming())
	if got := w.inSession("s", 0); got != `"w-1"` {
		t.Errorf("executed by %s", got)
	}
	if err := first.drain(t); err != nil {
		t.Error(err)
	}
	if owner, err := w.bus.Owner(t.Context(), "s"); owner != "" || err != nil {
		t.Errorf("the session is with %q, %v", owner, err)
	}
	w.start(worker.Config{ID: "w-2"}, naming())
	if got := w.inSession("s", 1); got != `"w-2"` {
		t.Errorf("executed by %s", got)
	}
}

func TestASessionOutlivesItsWorkerOfTheSameName(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	if _, err := w.bus.Acquire(t.Context(), "s", "w-1"); err != nil {
		t.Fatal(err)
	}
	w.start(worker.Config{ID: "w-2"}, naming())
	w.start(worker.Config{ID: "w-1"}, naming()) // it had the session before its restart
	if got := w.inSession("s", 0); got != `"w-1"` {
		t.Errorf("executed by %s", got)
	}
}

func TestASessionIsRenewedAndGivenUpWhenItIsIdle(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		calls := make(chan call, 1)
		r := w.start(worker.Config{ID: "w-1", SessionIdle: 300 * time.Millisecond}, held(block, calls))
		w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), Session: "s"})
		c := receive(t, calls, "the activity is called")
		end := time.After(w.lease * 5 / 3)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-end:
				over = true
			case <-tick.C:
				if owner, err := w.bus.Owner(t.Context(), "s"); owner != "w-1" || err != nil {
					t.Fatalf("the session is with %q, %v", owner, err)
				}
			}
		}
		c.done("y")
		w.done()
		w.until("the session is given up", func() bool {
			owner, err := w.bus.Owner(t.Context(), "s")
			return owner == "" && err == nil && len(r.Status().Sessions) == 0
		})
	})
}

func TestAWorkerTakesSoManySessions(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	r := w.start(worker.Config{ID: "w-1", MaxSessions: 2, SessionIdle: 200 * time.Millisecond},
		held(block, calls), echoing())
	for i, s := range []string{"a", "b", "c"} {
		w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), Session: s,
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
	}
	first, second := receive(t, calls, "the first session"), receive(t, calls, "the second session")
	select {
	case <-calls:
		t.Fatal("a third session was taken")
	case <-time.After(300 * time.Millisecond):
	}
	if n := len(r.Status().Sessions); n != 2 {
		t.Errorf("it has %d sessions", n)
	}
	w.send("j", events.Task{Activity: "echo", Input: codec.Payload(`"plain"`)}) // needs no session
	w.done()
	first.done("y")
	w.done()
	third := receive(t, calls, "the third session, when one of the others was idle")
	third.done("y")
	second.done("y")
	w.done()
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
}

func TestAWorkerWithoutSessionsLeavesThemToOthers(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{ID: "w-1", MaxSessions: -1}, naming())
	w.start(worker.Config{ID: "w-2", MaxSessions: 1}, naming())
	for i := range 10 {
		if got := w.inSession("s", i); got != `"w-2"` {
			t.Errorf("executed by %s", got)
		}
	}
}

// A handover needs a slot like all tasks: those that exceed the owner's slots wait.
func TestManyHandoversShareTheSlots(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	var all gauge
	counting := echo.Bind(func(ctx context.Context, _ string) (string, error) {
		all.enter()
		defer all.leave()
		return activity.Info(ctx).Worker, nil
	})
	w.start(worker.Config{ID: "w-1", Slots: 2}, counting)
	w.inSession("s", 0)
	w.start(worker.Config{ID: "w-2", Slots: 50}, counting)
	const n = 200
	w.sendMany(n, events.Task{Activity: "echo", Session: "s"})
	for range n {
		if _, result := w.done(); result != `"w-1"` {
			t.Errorf("executed by %s", result)
		}
	}
	if most := all.most.Load(); most > 2 {
		t.Errorf("%d ran at once", most)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

// TestASessionOfTheEngineIsRefused: the leases of the engine's jobs begin with the same prefix.
func TestASessionOfTheEngineIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		calls := make(chan call, 1)
		w.start(worker.Config{ID: "w-1"}, held(block, calls))
		w.send("i", events.Task{Activity: "block", Session: "rondo.recovery", Input: codec.Payload(`"x"`)})
		if _, f := w.failed(); !f.Error.NonRetryable || !strings.Contains(f.Error.Message, "reserved") ||
			len(calls) > 0 {
			t.Errorf("%d calls, and it fails with %+v", len(calls), f.Error)
		}
		if owner, err := w.bus.Owner(t.Context(), "rondo.recovery"); owner != "" || err != nil {
			t.Errorf("%q has the lease, %v", owner, err)
		}
	})
}
