package integration_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// These tests are the rules for acknowledgements, one by one: a service acknowledges a message
// after it has committed the message's effect, or at once if there is none. The worker is the test
// itself, so that the test decides the order of messages.

var (
	ping     = activity.Define[string, string]("ping")
	approval = orchestration.DefineEvent[string]("approval")

	once      = orchestration.Define[string, string]("once")
	sleeper   = orchestration.Define[int, string]("sleeper")
	waiter    = orchestration.Define[string, string]("waiter")
	childless = orchestration.Define[string, string]("childless")
	parent    = orchestration.Define[string, string]("parent")
	rolling   = orchestration.Define[int, string]("rolling")
)

// basics are orchestrations that wait for one thing each.
var basics = []orchestration.Binding{
	once.Bind(func(ctx *orchestration.Context, s string) (string, error) { return ping.Call(ctx, s) }),
	sleeper.Bind(func(ctx *orchestration.Context, ms int) (string, error) {
		return "slept", ctx.Sleep(time.Duration(ms) * time.Millisecond)
	}),
	waiter.Bind(func(ctx *orchestration.Context, _ string) (string, error) { return approval.Wait(ctx) }),
	childless.Bind(func(ctx *orchestration.Context, s string) (string, error) { return "child of " + s, nil }),
	parent.Bind(func(ctx *orchestration.Context, s string) (string, error) {
		return childless.Call(ctx, s, orchestration.ID(s+"-child"))
	}),
	rolling.Bind(func(ctx *orchestration.Context, n int) (string, error) {
		if n > 0 {
			if _, err := ping.Call(ctx, fmt.Sprint(n)); err != nil {
				return "", err
			}
			return rolling.ContinueAsNew(ctx, n-1)
		}
		return "done", nil
	}),
}

// onBasics runs a test on each database, with the orchestrations above.
func onBasics(t *testing.T, test func(t *testing.T, s *system)) { onEach(t, test, basics...) }

// take takes an activity task, as a worker.
func (s *system) take(name string) (broker.Delivery, events.Message, *events.Task) {
	s.t.Helper()
	q, err := s.bus.OpenTaskQueue(s.t.Context(), broker.TaskQueueName{Activity: name})
	if err != nil {
		s.t.Fatal(err)
	}
	var d broker.Delivery
	s.eventually("work for "+name+" comes", func() error {
		n, err := q.Take(s.t.Context(), 1, func(x broker.Delivery) { d = x })
		if err == nil && n == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	m, err := events.Decode(s.bus.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		s.t.Fatal(err)
	}
	return d, m, m.Content.(*events.Task)
}

// done is the message with which a worker brings a result.
func done(m events.Message, result string) events.Message {
	ref := m.Content.(*events.Task).Ref
	return events.Message{
		ID: events.MessageID(events.VerbDone, m.Instance, ref), Instance: m.Instance,
		Content: &events.TaskDone{Ref: ref, Result: codec.Payload(`"` + result + `"`), Worker: "test"},
	}
}

func TestAckStartAfterItIsCommitted(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("once", "i", "a")
		s.journal.await("acknowledged rondo.start.once.i", 1)
		s.journal.inOrder("received rondo.start.once.i", "committed i: committed", "acknowledged rondo.start.once.i")
	})
}

func TestAckStartOfExistingInstanceAtOnce(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("once", "i", "a")
		s.journal.await("acknowledged rondo.start.once.i", 1)
		s.say(events.Message{ID: "another", Instance: "i", Content: &events.Start{Orchestration: "sleeper"}})
		s.journal.await("acknowledged rondo.start.sleeper.i", 1)
		if n := len(s.journal.find("committed i: committed")); n != 1 {
			t.Errorf("%d commits, want that of the first start alone:\n%s", n, s.journal)
		}
		s.wantKinds("i", events.KindStarted, events.KindActivityScheduled)
	})
}

func TestAckCompletionAfterItIsCommitted(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("once", "i", "a")
		d, m, _ := s.take("ping")
		s.say(done(m, "b"))
		d.Hold.Ack()
		s.completed("i", "b")
		ack := s.journal.await("acknowledged rondo.task-done.1-2.i", 1)
		if commit := s.journal.await("committed i: committed", 2); commit > ack {
			t.Errorf("it was acknowledged before it was committed:\n%s", s.journal)
		}
	})
}

func TestAckDuplicateCompletionAtOnce(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("rolling", "i", 1)
		_, m, work := s.take("ping")
		s.say(done(m, "b"))
		s.completed("i", "done")
		s.journal.await("acknowledged rondo.task-done."+work.Ref.Place()+".i", 1)
		before := len(s.journal.find("committed i"))
		again := done(m, "c")
		again.ID = "by somebody else"
		s.say(again)
		s.journal.await("acknowledged rondo.task-done."+work.Ref.Place()+".i", 2)
		if after := len(s.journal.find("committed i")); after != before {
			t.Errorf("a duplicate was committed:\n%s", s.journal)
		}
	})
}

func TestAckCompletionOfAnotherExecutionAtOnce(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("rolling", "i", 2)
		_, m, _ := s.take("ping")
		s.say(done(m, "b"))
		_, next, work := s.take("ping")
		if work.Ref.Execution != 2 {
			t.Fatalf("the second call is of execution %d", work.Ref.Execution)
		}
		before := s.events("i", 0)
		late, early := done(m, "late"), done(next, "early")
		late.ID = "late"
		early.ID, early.Content.(*events.TaskDone).Ref.Execution = "early", 3
		s.say(late, early)
		s.journal.await("acknowledged rondo.task-done.1-2.i", 2)
		s.journal.await("acknowledged rondo.task-done.3-2.i", 1)
		if after := s.events("i", 0); len(after) != len(before) {
			t.Errorf("history went from %d events to %d", len(before), len(after))
		}
		s.say(done(next, "b"))
		s.completed("i", "done")
	})
}

// TestAckCompletionOfColdInstance: a completion for an instance that is not in memory is not
// nacked: the orchestrator loads the instance and takes the completion in the same round.
func TestAckCompletionOfColdInstance(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		first := s.orchestrate()
		s.start("once", "i", "a")
		_, m, _ := s.take("ping")
		if err := first.end(); err != nil {
			t.Fatal(err)
		}
		s.orchestrate()
		s.say(done(m, "b"))
		s.completed("i", "b")
		if n := len(s.journal.find("returned rondo.task-done")); n > 0 {
			t.Errorf("it was nacked:\n%s", s.journal)
		}
	})
}

func TestAckTimerAfterItIsCommitted(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("sleeper", "i", 50)
		s.completed("i", "slept")
		ack := s.journal.await("acknowledged rondo.timer-due.1-2-", 1)
		if commit := s.journal.await("committed i: committed", 2); commit > ack {
			t.Errorf("it was acknowledged before it was committed:\n%s", s.journal)
		}
		s.wantKinds("i", events.KindStarted, events.KindTimerCreated, events.KindTimerFired, events.KindCompleted)
	})
}

func TestAckEventAfterItIsCommitted(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("waiter", "i", "")
		s.reaches("i", events.KindEventAwaited)
		s.say(events.Message{ID: "e", Instance: "i",
			Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"yes"`)}})
		s.completed("i", "yes")
		ack := s.journal.await("acknowledged rondo.event.approval.i", 1)
		if commit := s.journal.await("committed i: committed", 2); commit > ack {
			t.Errorf("it was acknowledged before it was committed:\n%s", s.journal)
		}
	})
}

func TestAckEventThatNobodyWaitsForAtOnce(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("once", "i", "")
		s.reaches("i", events.KindActivityScheduled)
		s.say(events.Message{ID: "e", Instance: "i", Content: &events.EventRaised{Name: "approval"}})
		s.journal.await("acknowledged rondo.event.approval.i", 1)
		s.wantKinds("i", events.KindStarted, events.KindActivityScheduled)
	})
}

func TestAckChildResultAfterItIsCommitted(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("parent", "i", "i")
		s.completed("i", "child of i")
		ack := s.journal.await("acknowledged rondo.child-ended.1-2.i", 1)
		if commit := s.journal.await("committed i: committed", 2); commit > ack {
			t.Errorf("it was acknowledged before it was committed:\n%s", s.journal)
		}
		s.journal.inOrder("committed i: committed", "published rondo.internal_start.childless.i-child",
			"committed i-child: committed", "published rondo.child-ended.1-2.i")
	})
}

// ---- What fails.

var errAppend = &history.Error{Class: history.Retry, Op: "commit", Err: errors.New("made up")}

func TestAppendFails(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare()
		var failures atomic.Int32
		v.store.before = func(history.Batch) error {
			if failures.Add(1) <= 5 {
				s.journal.note("failed to commit")
				return errAppend
			}
			return nil
		}
		v.start()
		s.start("once", "i", "a")
		s.journal.await("acknowledged rondo.start.once.i", 1)
		s.journal.inOrder("failed to commit", "committed i: committed", "acknowledged rondo.start.once.i")
		s.wantKinds("i", events.KindStarted, events.KindActivityScheduled)
	})
}

// TestCrashBeforeAppend: the process dies before the commit: NATS redelivers the message to another
// one.
func TestCrashBeforeAppend(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare()
		v.store.before = func(history.Batch) error {
			v.kill()
			return errAppend
		}
		v.start()
		s.start("once", "i", "a")
		_ = v.wait() // it was killed
		if n := len(s.journal.find("acknowledged")); n > 0 {
			t.Errorf("something was acknowledged:\n%s", s.journal)
		}
		s.orchestrate()
		s.journal.await("acknowledged rondo.start.once.i", 1)
		s.wantKinds("i", events.KindStarted, events.KindActivityScheduled)
	})
}

// TestCrashBetweenAppendAndAck: the process dies between the commit and the acknowledgement: NATS
// redelivers the message, which changes nothing and is acknowledged at once. The next orchestrator
// publishes the outbox entry.
func TestCrashBetweenAppendAndAck(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare()
		v.store.after = func(history.Batch) error {
			v.kill()
			return errAppend
		}
		v.start()
		s.start("once", "i", "a")
		_ = v.wait() // it was killed
		s.wantKinds("i", events.KindStarted, events.KindActivityScheduled)
		if n := len(s.journal.find("acknowledged")) + len(s.journal.find("published")); n > 0 {
			t.Errorf("something was acknowledged or published:\n%s", s.journal)
		}
		s.orchestrate()
		s.journal.await("acknowledged rondo.start.once.i", 1)
		d, m, _ := s.take("ping")
		d.Hold.Ack()
		s.say(done(m, "b"))
		s.completed("i", "b")
		s.wantKinds("i", events.KindStarted, events.KindActivityScheduled, events.KindActivityCompleted,
			events.KindCompleted)
	})
}

// TestAmbiguousAppend: the outcome of a commit is unknown: the orchestrator loads the instance
// again, and history has the outcome.
func TestAmbiguousAppend(t *testing.T) {
	for _, happened := range []bool{false, true} {
		t.Run(fmt.Sprint("happened=", happened), func(t *testing.T) {
			onBasics(t, func(t *testing.T, s *system) {
				v := s.prepare()
				var first atomic.Bool
				doubt := func(history.Batch) error {
					if first.CompareAndSwap(false, true) {
						return &history.Error{Class: history.Ambiguous, Op: "commit", Err: errors.New("made up")}
					}
					return nil
				}
				if happened {
					v.store.after = doubt
				} else {
					v.store.before = doubt
				}
				v.start()
				s.start("once", "i", "a")
				s.journal.await("acknowledged rondo.start.once.i", 1)
				_, m, _ := s.take("ping")
				s.say(done(m, "b"))
				s.completed("i", "b")
				s.wantKinds("i", events.KindStarted, events.KindActivityScheduled, events.KindActivityCompleted,
					events.KindCompleted)
			})
		})
	}
}

// TestLostAcknowledgement: the acknowledgement is lost: NATS redelivers the message, which changes
// nothing.
func TestLostAcknowledgement(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare()
		var lost atomic.Int32
		v.broker.onAck = func(broker.Delivery) bool { return lost.Add(1) > 2 }
		v.start()
		s.start("sleeper", "i", 1)
		s.completed("i", "slept")
		s.settled()
		s.wantKinds("i", events.KindStarted, events.KindTimerCreated, events.KindTimerFired, events.KindCompleted)
	})
}

// failures lets the first calls fail, and checks that no call is repeated too soon.
type failures struct {
	t        *testing.T
	what     string
	left     int
	mu       sync.Mutex
	earliest map[string]time.Time // when each object may be tried again
}

func newFailures(t *testing.T, what string) *failures {
	return &failures{t: t, what: what, left: 4, earliest: make(map[string]time.Time)}
}

// leastDelay is less than all delays before a repetition.
const leastDelay = 200 * time.Millisecond

func (f *failures) fail(objects ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, o := range objects {
		if now.Before(f.earliest[o]) {
			f.t.Errorf("%s %q: repeated %v after a failure, want at least %v", f.what, o,
				leastDelay-f.earliest[o].Sub(now), leastDelay)
		}
	}
	if f.left == 0 {
		return nil
	}
	f.left--
	for _, o := range objects {
		f.earliest[o] = now.Add(leastDelay)
	}
	return &history.Error{Class: history.Retry, Op: "made up", Err: errors.New("made up")}
}

// used checks that all failures have happened.
func (f *failures) used() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 0 {
		f.t.Errorf("%s: %d were to fail, and were not tried", f.what, f.left)
	}
}

// TestReceivingAndReadingFailForAWhile: receiving and loading fail a few times. The orchestrator
// then processes every message of that time, and it retries after a delay.
func TestReceivingAndReadingFailForAWhile(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare()
		subscriptions, loads := newFailures(t, "subscription"), newFailures(t, "load")
		v.broker.onSubscribe = func(partition int) error { return subscriptions.fail(fmt.Sprint(partition)) }
		v.store.onLoad = func(ids []string) error { return loads.fail(ids...) }
		v.start()
		// the orchestrator must load this instance
		s.say(events.Message{ID: "e", Instance: "nobody", Content: &events.EventRaised{Name: "approval"}})
		s.start("sleeper", "i", 1)
		s.completed("i", "slept")
		s.journal.await("acknowledged rondo.event.approval.nobody", 1)
		subscriptions.used()
		loads.used()
	})
}
