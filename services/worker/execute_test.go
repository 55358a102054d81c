package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/services/worker"
)

var (
	echo  = activity.Define[string, string]("echo")
	block = activity.Define[string, string]("block")
	other = activity.Define[string, string]("other")
)

func echoing() activity.Binding {
	return echo.Bind(func(_ context.Context, s string) (string, error) { return s, nil })
}

// call is a call of an activity that waits for the test.
type call struct {
	ctx    context.Context
	input  string
	answer chan answer
}

type answer struct {
	result string
	err    error
}

// done lets the call return.
func (c call) done(result string) { c.answer <- answer{result, nil} }

// held makes an activity that calls the test and waits for its answer, even after the end of its
// context.
func held(d activity.Definition[string, string], calls chan call) activity.Binding {
	return d.Bind(func(ctx context.Context, s string) (string, error) {
		c := call{ctx, s, make(chan answer, 1)}
		calls <- c
		a := <-c.answer
		return a.result, a.err
	})
}

// obedient makes an activity that calls the test and waits for its answer, or for the end of its
// context.
func obedient(d activity.Definition[string, string], calls chan call) activity.Binding {
	return d.Bind(func(ctx context.Context, s string) (string, error) {
		c := call{ctx, s, make(chan answer, 1)}
		calls <- c
		select {
		case a := <-c.answer:
			return a.result, a.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
}

func TestWorkIsExecutedAndAnswered(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	infos := make(chan activity.ExecutionInfo, 1)
	r := w.start(worker.Config{ID: "w-1"}, echo.Bind(func(ctx context.Context, s string) (string, error) {
		infos <- activity.Info(ctx)
		return s + "!", nil
	}))
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	m := w.message("order-7",
		&events.Task{Activity: "echo", Input: codec.Payload(`"hello"`), Attempt: 3, Deadline: deadline})
	m.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	w.publish(m)
	came := w.next()
	done, ok := came.Content.(*events.TaskDone)
	if !ok || came.Instance != "order-7" || string(done.Result) != `"hello!"` || done.Worker != "w-1" ||
		done.Ref != (events.Ref{Incarnation: incarnation, Execution: 1, Event: 2}) {
		t.Errorf("%+v %+v came", came, came.Content)
	}
	if came.Trace != m.Trace || came.ID != events.MessageID(events.VerbDone, "order-7", done.Ref) {
		t.Errorf("id %q, trace %q", came.ID, came.Trace)
	}
	want := activity.ExecutionInfo{
		Activity: "echo", Instance: "order-7", Execution: 1, Orchestration: "test", Version: "1.0.0", Attempt: 3,
		IdempotencyKey: "order-7/" + incarnation + "/1/2", Worker: "w-1", Deadline: deadline,
	}
	if got := <-infos; got != want {
		t.Errorf("the activity is told\n%+v, want\n%+v", got, want)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
	if s := r.Status(); s.Used != 0 || len(s.Holds) != 0 || len(s.Queues) != 1 || s.Slots != 100 {
		t.Errorf("status %+v", s)
	}
}

func TestWhatAnActivityMayDoWrong(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	w.start(worker.Config{Slots: 1},
		echo.Bind(func(_ context.Context, s string) (string, error) {
			switch s {
			case "panic":
				panic("out of cheese")
			case "goexit":
				runtime.Goexit()
			case "nil error":
				var e *failure.Error
				return "", e
			case "large":
				return strings.Repeat("x", events.MaxPayload), nil
			case "typed":
				return "", activity.NonRetryable(activity.Errorf("declined", "no"))
			case "long":
				return "", errors.New(strings.Repeat("\x01é", 100_000))
			}
			return "", errors.New("no: " + s)
		}))
	tests := []struct {
		input string
		want  failure.Error
		text  string
	}{
		{`"no luck"`, failure.Error{Kind: failure.Application}, "no: no luck"},
		{`"panic"`, failure.Error{Kind: failure.Panicked}, "out of cheese"},
		{`"goexit"`, failure.Error{Kind: failure.Panicked}, "runtime.Goexit"},
		{`"nil error"`, failure.Error{Kind: failure.Application}, "nil *failure.Error"},
		{`"large"`, failure.Error{Kind: failure.LimitExceeded, NonRetryable: true}, "keep the data in a store"},
		{`"typed"`, failure.Error{Kind: failure.Application, Type: "declined", NonRetryable: true}, "no"},
		{`"long"`, failure.Error{Kind: failure.Application}, "…"},
		{`{"a":1}`, failure.Error{Kind: failure.Application, Type: "type_mismatch", NonRetryable: true},
			"its input is not what it takes"},
	}
	for i, tt := range tests {
		w.send("i", events.Task{Activity: "echo", Input: codec.Payload(tt.input),
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
		_, failed := w.failed()
		e := failed.Error
		if tt.want.Type == "type_mismatch" {
			tt.want.Type = e.Type // the test does not compare the type
		}
		if e.Kind != tt.want.Kind || e.Type != tt.want.Type || e.NonRetryable != tt.want.NonRetryable ||
			!strings.Contains(e.Error(), tt.text) {
			t.Errorf("%s: got %+v", tt.input, e)
		}
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

func TestALeaseIsExtendedWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, w *world) {
		calls := make(chan call, 10)
		w.start(worker.Config{}, held(block, calls))
		w.start(worker.Config{}, held(block, calls))
		w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
		c := receive(t, calls, "the activity is called")
		select {
		case <-calls:
			t.Error("the task was redelivered while it was being executed")
		case <-time.After(2 * w.wait):
		}
		c.done("y")
		if _, result := w.done(); result != `"y"` {
			t.Errorf("got %s", result)
		}
		w.settled(broker.TaskQueueName{Activity: "block"})
		if c.ctx.Err() == nil {
			t.Error("its context does not end when it has returned")
		}
	})
}

func TestWorkOfAWorkerThatDiesIsExecutedElsewhere(t *testing.T) {
	t.Parallel()
	w := newHastyWorld(t)
	calls, others := make(chan call, 1), make(chan call, 1)
	r := w.start(worker.Config{ID: "first"}, held(block, calls))
	w.send("i", events.Task{Activity: "block", Input: codec.Payload(`"x"`),
		Heartbeat: codec.Payload(`"of the attempt before"`)})
	c := receive(t, calls, "the activity is called")
	if last, ok, err := activity.LastHeartbeat[string](c.ctx); last != "of the attempt before" || !ok || err != nil {
		t.Errorf("the last heartbeat is %q, %v, %v", last, ok, err)
	}
	if err := activity.Heartbeat(c.ctx, "page 7"); err != nil {
		t.Fatal(err)
	}
	w.noted("i")
	r.kill()
	w.start(worker.Config{ID: "second"}, held(block, others))
	again := receive(t, others, "the activity is called again")
	if last, _, err := activity.LastHeartbeat[string](again.ctx); last != "page 7" || err != nil {
		t.Errorf("the last heartbeat is %q, %v", last, err)
	}
	again.done("y")
	if _, result := w.done(); result != `"y"` {
		t.Errorf("got %s", result)
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
	c.done("too late") // the result is dropped
	w.nothing(50 * time.Millisecond)
	w.until("the note is gone", func() bool { return w.note("i") == nil })
}

// noted waits until there is a note about the task of an instance.
func (w *world) noted(instance string) {
	w.t.Helper()
	w.until("progress is noted", func() bool { return w.note(instance) != nil })
}

func (w *world) note(instance string) []byte {
	w.t.Helper()
	data, err := w.bus.Get(context.Background(),
		broker.KeyTask+events.Token(instance, events.Ref{Incarnation: incarnation, Execution: 1, Event: 2}))
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

func TestWorkThatIsHandedOutTwiceIsJoined(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	calls := make(chan call, 10)
	w.start(worker.Config{}, held(block, calls))
	m := w.message("i", &events.Task{Activity: "block", Input: codec.Payload(`"x"`)})
	w.publish(m)
	c := receive(t, calls, "the activity is called")
	m.ID += "/again" // as if the broker had forgotten the id
	w.publish(m)
	marker := w.message("j", &events.Task{Activity: "block", Input: codec.Payload(`"marker"`)})
	w.publish(marker)
	if next := receive(t, calls, "the activity is called for the other instance"); next.input != "marker" {
		t.Fatalf("the activity was called twice at the same time, with %q", next.input)
	} else {
		next.done("marker")
	}
	w.done()
	c.done("y")
	w.done()
	w.settled(broker.TaskQueueName{Activity: "block"})

	m.Content.(*events.Task).Ref.Incarnation = "another" // the same reference in another incarnation is another task
	m.ID += "/another"
	w.publish(m)
	receive(t, calls, "the activity is called for the other incarnation").done("z")
	if came := w.next(); came.Content.(*events.TaskDone).Ref.Incarnation != "another" {
		t.Errorf("%+v came", came.Content)
	}
	w.settled(broker.TaskQueueName{Activity: "block"})
}

func TestWorkThatCannotBeReadIsPutAside(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	dead := w.deadLetters()
	w.start(worker.Config{Slots: 1}, echoing())
	good := w.message("good", &events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	wire, err := events.Encode("rondo", good)
	if err != nil {
		t.Fatal(err)
	}
	with := func(key, value string) events.Header {
		h := events.Header{}
		for k, v := range wire.Header {
			h[k] = v
		}
		h[key] = []string{value}
		delete(h, events.HeaderMsgID)
		return h
	}
	bad := []events.Wire{
		{Subject: "rondo.task._.echo.1-2.i"},
		{Subject: "rondo.task._.echo.nowhere.i", Header: with("X", "1")},
		{Subject: "rondo.task._.echo.0-0.i", Header: with("X", "1")},
		{Subject: "rondo.task._.echo.1-3.%zz", Header: with("X", "1")},
		{Subject: "rondo.task._.echo.1-4.%00", Header: with("X", "1")},
		{Subject: "rondo.task._.echo.1-5.i", Header: with(events.HeaderAttempt, "-1")},
		{Subject: "rondo.task._.echo.1-6.i", Header: with(events.HeaderStartToClose, "soon")},
		{Subject: "rondo.task._.echo.1-7.i", Header: with(events.HeaderDeadline, "9999999-01-01")},
		{Subject: "rondo.task._.echo.1-8.i", Header: with(events.HeaderHeartbeat, "{")},
		{Subject: "rondo.task._.echo.1-9.i", Header: with("X", "1"), Body: make([]byte, events.MaxPayload+1)},
	}
	if err := w.bus.Publish(t.Context(), bad...); err != nil {
		t.Fatal(err)
	}
	for range bad {
		d := receive(t, dead, "a dead letter")
		if d.reason != "unreadable" || d.detail == "" || d.subject == "" {
			t.Errorf("the dead letter says %+v", d)
		}
	}
	w.publish(good)
	if instance, _ := w.done(); instance != "good" {
		t.Errorf("instance %q", instance)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

// refusing is a broker that refuses some messages.
type refusing struct {
	*natsbroker.Bus
	refuse func(events.Wire) error
}

func (b *refusing) Publish(ctx context.Context, messages ...events.Wire) error {
	var refused broker.Refused
	var rest []events.Wire
	for _, m := range messages {
		if err := b.refuse(m); err != nil {
			refused.Messages, refused.Reasons = append(refused.Messages, m), append(refused.Reasons, err)
		} else {
			rest = append(rest, m)
		}
	}
	if err := b.Bus.Publish(ctx, rest...); err != nil {
		return err
	}
	if len(refused.Messages) > 0 {
		return &refused
	}
	return nil
}

func TestAResultThatTheBrokerRefusesIsAFailure(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	b := &refusing{w.connect(), func(m events.Wire) error {
		if len(m.Body) > 1000 {
			return errors.New("maximum payload exceeded")
		}
		return nil
	}}
	r := &running{Worker: w.make(b, worker.Config{}, echoing()), bus: b.Bus, err: make(chan error, 1)}
	w.runs(r)
	for i, input := range []string{strings.Repeat("x", 2000), "short"} {
		w.send("i", events.Task{Activity: "echo", Input: codec.Payload(`"` + input + `"`),
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}})
	}
	var failed *events.TaskFailed
	for range 2 {
		switch c := w.next().Content.(type) {
		case *events.TaskDone:
			if string(c.Result) != `"short"` {
				t.Errorf("got %s", c.Result)
			}
		case *events.TaskFailed:
			failed = c
		default:
		}
	}
	if failed == nil || failed.Error.Kind != failure.LimitExceeded || !failed.Error.NonRetryable ||
		!strings.Contains(failed.Error.Message, "maximum payload exceeded") {
		t.Errorf("got %+v", failed)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

// A worker that may not publish results keeps them until it may. It does not execute the activities
// again, and no task is dead-lettered.
func TestResultsWaitForAPermission(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	dead := w.deadLetters()
	var denied atomic.Bool
	denied.Store(true)
	refused := make(chan bool, 100)
	b := &refusing{w.connect(), func(m events.Wire) error {
		if denied.Load() && strings.HasPrefix(m.Subject, "rondo.task-done.") {
			refused <- true
			return fmt.Errorf("%w: no permission", broker.ErrMisconfigured)
		}
		return nil
	}}
	var executed atomic.Int64
	counting := echo.Bind(func(_ context.Context, s string) (string, error) { executed.Add(1); return s, nil })
	w.runs(&running{Worker: w.make(b, worker.Config{}, counting), bus: b.Bus, err: make(chan error, 1)})
	w.send("i", events.Task{Activity: "echo", Input: codec.Payload(`"x"`),
		Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: 2}})
	for range 3 {
		<-refused
	}
	denied.Store(false)
	if instance, result := w.done(); instance != "i" || result != `"x"` {
		t.Errorf("instance %q has the result %s", instance, result)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
	if len(dead) > 0 || executed.Load() != 1 {
		t.Errorf("%d dead letters, executed %d times", len(dead), executed.Load())
	}
}

// Results that a setting prevents hold up no others, however many there are.
func TestResultsThatWaitForAPermissionHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	const many = 40 // more than are published at once
	var denied atomic.Bool
	denied.Store(true)
	var before sync.Map
	refused := make(chan string, many)
	b := &refusing{w.connect(), func(m events.Wire) error {
		if denied.Load() && strings.HasPrefix(m.Subject, "rondo.task-done.") &&
			strings.Contains(m.Subject, ".denied-") {
			if _, again := before.LoadOrStore(m.Subject, true); !again {
				refused <- m.Subject
			}
			return fmt.Errorf("%w: no permission", broker.ErrMisconfigured)
		}
		return nil
	}}
	w.runs(&running{Worker: w.make(b, worker.Config{}, echoing()), bus: b.Bus, err: make(chan error, 1)})
	for i := range many { // one after the other, so that each is in a batch of its own
		id := fmt.Sprint("denied-", i)
		w.send(id, events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
		if got := receive(t, refused, "the result of "+id+" is refused"); !strings.HasSuffix(got, "."+id) {
			t.Fatalf("%s is refused, want the result of %s", got, id)
		}
	}
	w.send("good", events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	if instance, _ := w.done(); instance != "good" {
		t.Errorf("the instance %s has a result first", instance)
	}
	denied.Store(false)
	for range many {
		w.done()
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

func TestWhatCannotBeToldAtAllIsPutAside(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	dead := w.deadLetters()
	b := &refusing{w.connect(), func(m events.Wire) error {
		if strings.HasPrefix(m.Subject, "rondo.task-done.") || strings.HasPrefix(m.Subject, "rondo.task-failed.") {
			return errors.New("no such subject")
		}
		return nil
	}}
	w.runs(&running{Worker: w.make(b, worker.Config{}, echoing()), bus: b.Bus, err: make(chan error, 1)})
	w.send("i", events.Task{Activity: "echo"})
	if d := receive(t, dead, "a dead letter"); d.reason != "unsendable" ||
		!strings.Contains(d.detail, "no such subject") {
		t.Errorf("the dead letter says %+v", d)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

// forgetful is a broker that does not store the first dead letters.
type forgetful struct {
	*refusing
	failures atomic.Int32
}

func (b *forgetful) StoreDeadLetter(ctx context.Context, d broker.Delivery, why broker.Cause) error {
	if b.failures.Add(-1) >= 0 {
		return errors.New("the stream of dead letters is away")
	}
	return b.refusing.StoreDeadLetter(ctx, d, why)
}

// TestUnsendableResultIsRedelivered lets the dead letter of an unsendable result fail: the worker
// nacks the task, and dead-letters it at its redelivery.
func TestUnsendableResultIsRedelivered(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	dead := w.deadLetters()
	b := &forgetful{refusing: &refusing{w.connect(), func(m events.Wire) error {
		if strings.HasPrefix(m.Subject, "rondo.task-done.") || strings.HasPrefix(m.Subject, "rondo.task-failed.") {
			return errors.New("no such subject")
		}
		return nil
	}}}
	b.failures.Store(1)
	w.runs(&running{Worker: w.make(b, worker.Config{}, echoing()), bus: b.Bus, err: make(chan error, 1)})
	w.send("i", events.Task{Activity: "echo"})
	if d := receive(t, dead, "a dead letter"); d.reason != "unsendable" {
		t.Errorf("the dead letter says %+v", d)
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
}

func TestWhatCannotBePublishedGoesBackWhenTheWorkerEnds(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	stuck := make(chan struct{}, 10)
	b := &blocking{w.connect(), stuck}
	r := &running{Worker: w.make(b, worker.Config{}, echoing()), bus: b.Bus, err: make(chan error, 1)}
	w.runs(r)
	w.send("i", events.Task{Activity: "echo", Input: codec.Payload(`"x"`)})
	receive(t, stuck, "it tries to publish")
	if err := r.drain(t); err != nil {
		t.Error(err)
	}
	w.start(worker.Config{}, echoing()) // it need not wait for the end of the lease
	w.done()
}

// blocking is a broker that never confirms a result.
type blocking struct {
	*natsbroker.Bus
	tried chan struct{}
}

func (b *blocking) Publish(ctx context.Context, _ ...events.Wire) error {
	b.tried <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func TestManyActivitiesAreEachExecutedOnce(t *testing.T) {
	t.Parallel()
	w := newPatientWorld(t)
	var executed [2000]atomic.Int32
	count := activity.Define[int, int]("count").Bind(func(_ context.Context, n int) (int, error) {
		executed[n].Add(1)
		return n, nil
	})
	for range 3 {
		w.start(worker.Config{Slots: 16}, count)
	}
	var messages []events.Message
	for i := range executed {
		work := events.Task{Activity: "count", Input: codec.Payload(fmt.Sprint(i)),
			Ref: events.Ref{Incarnation: incarnation, Execution: 1, Event: int64(i + 2)}}
		messages = append(messages, w.message(fmt.Sprint("i", i%7), &work))
	}
	w.publish(messages...)
	for seen := make(map[string]bool); len(seen) < len(executed); { // on a slow machine, a result may come twice
		_, result := w.done()
		seen[result] = true
	}
	w.settled(broker.TaskQueueName{Activity: "echo"})
	for i := range executed {
		if n := executed[i].Load(); n != 1 {
			t.Errorf("activity %d was executed %d times", i, n)
		}
	}
}
