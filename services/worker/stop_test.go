package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/worker"
)

// ---- Withdrawn tasks.

// TestWithdrawnWorkStopsAtOnce withdraws a task while it is executed. The worker extends the ack
// wait, and asks the broker whether the task is stored, only after the patience of the test: only
// the notification can end the activity sooner.
func TestWithdrawnWorkStopsAtOnce(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	w.start(worker.Config{}, obedient(block, calls))
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
	w.send("i", work)
	c := receive(t, calls, "the activity is called")
	w.withdraw("i", work)
	receive(t, c.ctx.Done(), "its context ends")
	if cause := context.Cause(c.ctx); !errors.Is(cause, orchestration.ErrCancelled) {
		t.Errorf("the cause is %v", cause)
	}
	if err := activity.Heartbeat(c.ctx, 1); err == nil {
		t.Error("a heartbeat says that it may go on")
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
	w.nothing(100 * time.Millisecond)
}

func TestTheResultOfWithdrawnWorkIsDropped(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	r := w.start(worker.Config{CancelGrace: time.Minute}, held(block, calls))
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
	w.send("i", work)
	c := receive(t, calls, "the activity is called")
	w.withdraw("i", work)
	receive(t, c.ctx.Done(), "its context ends")
	c.done("all the same")
	w.until("the slot is free", func() bool { return r.Status().Used == 0 })
	w.nothing(100 * time.Millisecond)
}

func TestAnActivityThatIgnoresItsContextKeepsItsSlot(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	r := w.start(worker.Config{Slots: 1}, held(block, calls), echoing())
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
	w.send("i", work)
	c := receive(t, calls, "the activity is called")
	w.withdraw("i", work)
	w.until("it is given up", func() bool {
		s := r.Status()
		return len(s.Holds) == 1 && s.Holds[0].GivenUp && s.Holds[0].Stopping != ""
	})
	if err := r.Live(); err == nil {
		t.Error("all slots are lost, and the worker says that it lives")
	}
	w.send("j", events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	w.nothing(200 * time.Millisecond)
	c.done("at last")
	if instance, _ := w.done(); instance != "j" {
		t.Errorf("the result of %q came", instance)
	}
	if err := r.Live(); err != nil {
		t.Error(err)
	}
}

// deaf is a broker whose notifications get lost.
type deaf struct{ *natsbroker.Bus }

func (deaf) Withdrawals([]string, func(string)) (func(), error) { return func() {}, nil }

func TestAWithdrawalThatWasMissedIsNoticed(t *testing.T) {
	t.Parallel()
	w := newHastyWorld(t)
	calls := make(chan call, 1)
	b := deaf{w.connect()}
	w.runs(&running{Worker: w.make(b, worker.Config{}, obedient(block, calls)), bus: b.Bus, err: make(chan error, 1)})
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
	w.send("i", work)
	c := receive(t, calls, "the activity is called")
	w.withdraw("i", work)
	receive(t, c.ctx.Done(), "its context ends")
	w.nothing(100 * time.Millisecond)
}

// The notification names the subject only. A task of a later incarnation of the instance has the
// same.
func TestAWithdrawalDoesNotStopLaterWorkOfTheSameName(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	w.start(worker.Config{}, obedient(block, calls))
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`)}
	w.withdraw("i", work)
	w.send("i", work)
	c := receive(t, calls, "the activity is called")
	select {
	case <-c.ctx.Done():
		t.Error("it was stopped")
	case <-time.After(time.Second):
	}
	c.done("y")
	w.done()
}

func TestWorkThatIsWithdrawnWhileItWaitsIsNotBegun(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.start(worker.Config{Slots: 1}, held(block, calls))
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "the activity is called")
	work := events.Task{Activity: "block", Input: codec.Payload(`"y"`)}
	w.send("j", work)
	w.withdraw("j", work)
	c.done("x")
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
	if len(calls) > 0 {
		t.Error("it was begun")
	}
}

// ---- Time limits.

func TestTimeLimits(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		calls := make(chan call, 1)
		w.start(worker.Config{}, obedient(block, calls))
		tests := []struct {
			work   events.Task
			within time.Duration // from the moment of its publishing
			want   string
			text   string
		}{
			{events.Task{StartToClose: time.Second}, 0, failure.TimeoutStartToClose, "it took longer than 1s"},
			{events.Task{StartToClose: time.Minute, HeartbeatTimeout: time.Second}, 0, failure.TimeoutHeartbeat,
				"it gave no heartbeat for 1s"},
			{events.Task{StartToClose: time.Minute}, 3 * time.Second, failure.TimeoutScheduleToClose,
				"it was not done within its time limit from schedule to close"},
		}
		for i, tt := range tests {
			tt.work.Activity, tt.work.Input, tt.work.Ref = "block", codec.Payload(`"x"`),
				events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}
			if tt.within > 0 {
				tt.work.Deadline = time.Now().Add(tt.within) // on a slow machine it is begun in time all the same
			}
			w.send("i", tt.work)
			c := receive(t, calls, "the activity is called")
			if err := activity.Heartbeat(c.ctx, "page 7"); err != nil {
				t.Error(err)
			}
			_, failed := w.failed()
			if e := failed.Error; e.Kind != failure.Timeout || e.Type != tt.want || e.Message != tt.text ||
				string(failed.Heartbeat) != `"page 7"` {
				t.Errorf("got %+v with heartbeat %s", e, failed.Heartbeat)
			}
			if cause := context.Cause(c.ctx); !errors.Is(cause, &failure.Error{Kind: failure.Timeout, Type: tt.want}) {
				t.Errorf("%s: the cause is %v", tt.want, cause)
			}
		}
		w.settled(broker.TaskQueueName{Activity: "block"})
	})
}

// Workers answer discovery requests with their tasks and their problems.
func TestWorkersTellWhatTheyHave(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls, before := make(chan call, 2), time.Now()
	w.start(worker.Config{ID: "a", Build: "shop 1.2", Slots: 1}, held(block, calls), echoing())
	w.start(worker.Config{ID: "b", Tags: worker.Tags("gpu")}, echoing())
	work := events.Task{Activity: "block", Input: codec.Payload(`"x"`), Attempt: 3}
	w.send("i", work)
	c := receive(t, calls, "the activity is called")
	ask := func() []process.Process {
		all, err := process.All(t.Context(), w.bus)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := ask()
	if len(all) != 2 {
		t.Fatalf("%+v, want two", all)
	}
	a, b := all[0], all[1]
	if a.Kind != process.Worker || a.ID != "a" || a.Build != "shop 1.2" || a.Problem != "" || a.Works.Used != 1 ||
		a.Works.Slots != 1 || a.Began.After(a.Now) || a.Began.Before(before) || a.Now.After(time.Now()) ||
		!slices.Equal(a.Works.Activities, []string{"block", "echo"}) || len(a.Works.Queues) != 2 {
		t.Errorf("a says %+v", a)
	}
	if len(a.Works.Holds) != 1 || a.Works.Holds[0].Instance != "i" || a.Works.Holds[0].Attempt != 3 {
		t.Errorf("a holds %+v", a.Works.Holds)
	}
	if b.ID != "b" || b.Works.Tags != "gpu" || b.Works.Used != 0 || b.Works.Holds == nil && len(b.Works.Holds) > 0 {
		t.Errorf("b says %+v", b)
	}
	w.withdraw("i", work)
	w.until("it says that its only slot is lost", func() bool { return ask()[0].Problem != "" })
	c.done("at last")
	w.until("it says that it has it again", func() bool { return ask()[0].Problem == "" })
}

func TestHeartbeatsKeepAnActivityGoing(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		const limit = 400 * time.Millisecond
		w.start(worker.Config{}, block.Bind(func(ctx context.Context, s string) (string, error) {
			tick := time.NewTicker(limit / 8)
			defer tick.Stop()
			for i := range 16 {
				<-tick.C
				if err := activity.Heartbeat(ctx, i); err != nil {
					return "", err
				}
			}
			return s, nil
		}))
		w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), HeartbeatTimeout: limit})
		if _, result := w.done(); result != `"x"` {
			t.Errorf("got %s", result)
		}
	})
}

func TestATimeLimitDoesNotWaitForWhoIgnoresIt(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	r := w.start(worker.Config{}, held(block, calls))
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), StartToClose: 50 * time.Millisecond,
		Heartbeat: codec.Payload("7")})
	c := receive(t, calls, "the activity is called")
	if _, failed := w.failed(); failed.Error.Type != failure.TimeoutStartToClose || string(failed.Heartbeat) != "7" {
		t.Errorf("got %+v", failed)
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
	if r.Status().Used != 1 {
		t.Errorf("its slot is free while it runs")
	}
	c.done("too late")
	w.until("the slot is free", func() bool { return r.Status().Used == 0 && len(r.Status().Holds) == 0 })
	w.nothing(50 * time.Millisecond)
}

func TestWorkWhoseTimeIsOverIsNotBegun(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	w.start(worker.Config{}, held(block, calls))
	past := time.Now().Add(-time.Second)
	for i, tt := range []struct {
		work events.Task
		want string
	}{
		{events.Task{StartBy: past}, failure.TimeoutScheduleToStart},
		{events.Task{Deadline: past}, failure.TimeoutScheduleToClose},
		{events.Task{StartBy: past, Deadline: past}, failure.TimeoutScheduleToClose},
	} {
		tt.work.Activity, tt.work.Ref = "block", events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}
		w.send("i", tt.work)
		if _, failed := w.failed(); failed.Error.Kind != failure.Timeout || failed.Error.Type != tt.want {
			t.Errorf("got %+v", failed.Error)
		}
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
	if len(calls) > 0 {
		t.Error("it was begun")
	}
}

func TestTheBeginningIsToldWhenThereIsATimeToStartBy(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	w.start(worker.Config{ID: "w-1"}, held(block, calls))
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`), StartBy: time.Now().Add(time.Minute)})
	m := w.next()
	begun, ok := m.Content.(*events.TaskBegun)
	if !ok || begun.Worker != "w-1" || begun.Pending || m.ID != events.MessageID(events.VerbBegun, "i", begun.Ref) {
		t.Errorf("%+v %+v came", m, m.Content)
	}
	receive(t, calls, "the activity is called").done("y")
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
}

// ---- Completion by another program.

func TestAnActivityIsCompletedByItsToken(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	tokens := make(chan string, 1)
	r := w.start(worker.Config{ID: "w-1"}, echo.Bind(func(ctx context.Context, s string) (string, error) {
		tokens <- activity.Token(ctx)
		return "", fmt.Errorf("somebody will call back: %w", activity.ErrResultPending)
	}))
	w.send("a/b", events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	m := w.next()
	begun, ok := m.Content.(*events.TaskBegun)
	if !ok || !begun.Pending || begun.Worker != "w-1" || m.ID != events.PendingID("a/b", begun.Ref) {
		t.Fatalf("%+v %+v came", m, m.Content)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
	if r.Status().Used != 0 {
		t.Error("a slot is taken")
	}
	instance, ref, err := events.ParseToken(<-tokens)
	if err != nil {
		t.Fatal(err)
	}
	w.publish(events.Message{ID: events.MessageID(events.VerbDone, instance, ref), Instance: instance,
		Content: &events.TaskDone{Ref: ref, Result: codec.Payload(`"yes"`)}})
	if instance, result := w.done(); instance != "a/b" || result != `"yes"` {
		t.Errorf("got %s for %q", result, instance)
	}
}

// ---- The shutdown of the worker.

func TestADrainLetsWhatRunsFinish(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	r := w.start(worker.Config{ShutdownTimeout: 2 * patience}, held(block, calls), echoing())
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "the activity is called")
	r.stop()
	w.until("it drains", func() bool { return r.Status().Draining })
	if err := r.Ready(); err == nil {
		t.Error("it drains, and is ready")
	}
	if err := r.Live(); err != nil {
		t.Errorf("it drains, and is not alive: %v", err)
	}
	w.send("j", events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	w.nothing(100 * time.Millisecond)
	if c.ctx.Err() != nil {
		t.Error("its context has ended")
	}
	c.done("y")
	if instance, _ := w.done(); instance != "i" {
		t.Errorf("the result of %q came", instance)
	}
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
	w.start(worker.Config{}, echoing())
	w.done()
}

func TestADrainGivesBackWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 2)
	r := w.start(worker.Config{CancelGrace: patience}, obedient(block, calls))
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "the activity is called")
	if err := activity.Heartbeat(c.ctx, "page 7"); err != nil {
		t.Fatal(err)
	}
	if err := r.drain(t); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(c.ctx); !errors.Is(cause, &failure.Error{Kind: failure.Infrastructure}) {
		t.Errorf("the cause is %v", cause)
	}
	w.start(worker.Config{}, obedient(block, calls)) // its lease would have lasted for half a minute
	again := receive(t, calls, "the activity is called again")
	if last, _, _ := activity.LastHeartbeat[string](again.ctx); last != "page 7" {
		t.Errorf("the last heartbeat is %q", last)
	}
	again.done("y")
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})
}

func TestADrainTellsOfActivitiesThatDoNotStop(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 2)
	r := w.start(worker.Config{}, held(block, calls))
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "the activity is called")
	if err := r.drain(t); err == nil {
		t.Error("nothing is said about it")
	} else {
		t.Log(err)
	}
	c.done("too late")
	w.start(worker.Config{}, held(block, calls))
	receive(t, calls, "the activity is called again").done("y")
	if _, result := w.done(); result != `"y"` {
		t.Errorf("got %s", result)
	}
}

func TestADrainUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const n = 3000
	var messages []events.Message
	for i := range n {
		work := events.Task{Activity: "echo", Input: codec.Payload(fmt.Sprintf(`"%d"`, i)),
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}}
		messages = append(messages, w.message("i", &work))
	}
	w.publish(messages...)
	r := w.start(worker.Config{Slots: 8, ShutdownTimeout: 2 * patience}, echoing())
	seen := make(map[string]bool)
	for range n / 10 {
		_, result := w.done()
		seen[result] = true
	}
	if err := r.drain(t); err != nil {
		t.Error(err)
	}
	w.start(worker.Config{Slots: 64}, echoing())
	for len(seen) < n {
		_, result := w.done()
		seen[result] = true
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

func TestAWorkerRunsOnce(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	r := w.start(worker.Config{}, echoing())
	if err := r.Run(t.Context()); err == nil {
		t.Error("it runs twice at the same time")
	}
	if err := r.drain(t); err != nil {
		t.Error(err)
	}
	if err := r.Run(t.Context()); err == nil {
		t.Error("it runs again")
	}
}

// deafBus is a connection over which no answer to the release of a session comes.
type deafBus struct{ *natsbroker.Bus }

func (b deafBus) Release(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// A worker with sessions ends in its time although NATS does not answer: its activities are told to
// stop, before its sessions are released.
func TestADrainDoesNotWaitForSessions(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 1)
	r := w.startOn(deafBus{w.connect()}, worker.Config{CancelGrace: patience}, echoing(), obedient(block, calls))
	w.send("i", events.Task{Activity: "echo", Session: "s", Input: codec.Payload(`"x"`)})
	w.done()
	w.send("j", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	c := receive(t, calls, "the activity is called")
	r.stop()
	receive(t, c.ctx.Done(), "the activity is told to stop")
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
}
