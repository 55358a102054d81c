package orchestrator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// formerSent is when the messages of the tests below say that they were sent: long ago.
var formerSent = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)

// formerHistories has instances of many executions, each of which has forgotten messages. A read
// takes a millisecond.
type formerHistories struct {
	executions func(instance string) int64
	events     func(execution int64) int // of an execution; nil: 2
	fail       func(ctx context.Context, instance string, execution int64) error
	reads      chan int64 // the executions that were read
}

func (f *formerHistories) Events(ctx context.Context, instance string, execution, after int64,
	limit int) ([]events.Event, error) {
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := f.fail(ctx, instance, execution); err != nil {
		return nil, err
	}
	if execution == f.executions(instance) {
		return []events.Event{{ID: 1, Fact: &events.Started{}}}, nil
	}
	f.reads <- execution
	started := &events.Started{}
	if execution > 1 {
		started.Forgotten = time.Now()
	}
	n := 2
	if f.events != nil {
		n = f.events(execution)
	}
	all := []events.Event{{ID: 1, At: time.Now(), Fact: started}}
	for len(all) < n-1 {
		all = append(all, events.Event{ID: int64(len(all) + 1), Fact: &events.TimerCreated{}})
	}
	all = append(all, events.Event{ID: int64(n), Fact: &events.ContinuedAsNew{}})[min(after, int64(n)):]
	return all[:min(len(all), limit)], nil
}

// newFormerSystem starts a system in which each message asks for all former executions.
func newFormerSystem(ctx context.Context, store *formerHistories) *deadSystem {
	s := newDeadSystem(ctx, 100, crowded{})
	store.reads = make(chan int64, 100_000)
	s.calls.ask(ctx, func() {
		s.former = &formerReader{store: store, done: make(chan *formerRead, maxFormerReads)}
		s.noops = &noops{store: emptyStore{}, timeout: time.Second, log: s.log, done: make(chan *checked, 1)}
	})
	s.question = func(e *entry) *round.Question {
		if e.former != nil && e.former.Next(formerSent) == 0 {
			return nil
		}
		return &round.Question{Execution: store.executions(e.id), Sent: formerSent}
	}
	return s
}

// acked waits until the next message is settled, which has to be with an acknowledgement.
func (s *deadSystem) acked(t *testing.T) {
	t.Helper()
	if how := <-s.how; how != "ack" {
		t.Errorf("the message is settled with %s", how)
	}
}

var errOnce = errors.New("the connection is lost")

func noFailure(context.Context, string, int64) error { return nil }

// TestAFailedReadOfFormerExecutionsGoesOn: pages read before a failure are not read again.
func TestAFailedReadOfFormerExecutionsGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 3
		store := &formerHistories{executions: func(string) int64 { return 91 },
			events: func(execution int64) int { return 2 + 999*int(execution%3) }, // 1, 2 and 3 pages
			fail: func(_ context.Context, _ string, execution int64) error {
				if execution%10 == 5 && failures > 0 {
					failures--
					return errOnce
				}
				return nil
			}}
		s := newFormerSystem(t.Context(), store)
		defer s.stop()
		s.deliver(1)
		s.acked(t)
		if n := len(store.reads); n != 30*(1+2+3) || failures > 0 {
			t.Errorf("%d reads of 180 pages, %d failures to come", n, failures)
		}
	})
}

// TestFormerExecutionsThatCannotBeRead: a message is dead-lettered if the executions that would
// tell whether it was taken cannot be read, although the database answers. While the database does
// not answer, the message waits.
func TestFormerExecutionsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := new(atomic.Bool)
		down.Store(true)
		store := &formerHistories{executions: func(string) int64 { return 10 },
			fail: func(_ context.Context, _ string, execution int64) error {
				if down.Load() || execution == 5 {
					return &history.Error{Class: history.Retry, Op: "read", Err: errOnce}
				}
				return nil
			}}
		s := newFormerSystem(t.Context(), store)
		defer s.stop()
		s.deliver(1)
		select {
		case how := <-s.how:
			t.Fatalf("the message is settled with %s while the database is down", how)
		case <-time.After(time.Hour):
		}
		down.Store(false)
		select {
		case how := <-s.how:
			if how != "ack" {
				t.Errorf("the message is settled with %s", how)
			}
		case <-time.After(time.Hour):
			t.Error("the message waits for ever")
		}
	})
}

// TestAGivenUpReadIsForOneRound: once the former executions can be read again, they are read for
// the next message.
func TestAGivenUpReadIsForOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 1 + maxFormerFailures // the first one comes after some pages
		store := &formerHistories{executions: func(string) int64 { return 10 },
			fail: func(_ context.Context, _ string, execution int64) error {
				if execution == 5 && failures > 0 {
					failures--
					return errOnce
				}
				return nil
			}}
		s := newFormerSystem(t.Context(), store)
		defer s.stop()
		delivered := false
		s.begun = func(e *entry) {
			if e.former != nil && e.former.Next(formerSent) == 0 && !delivered { // given up
				delivered = true
				s.deliverTo("one", 2)
			}
		}
		s.deliverTo("one", 1)
		for range 2 {
			s.acked(t)
		}
		if n := len(store.reads); n != 4+9 || failures > 0 {
			t.Errorf("%d reads, of 4 for the message that is dead-lettered and 9 for the next; %d failures to come",
				n, failures)
		}
	})
}

// TestFormerReadsAreOfOneIncarnation: they are forgotten once the instance is loaded with another
// one.
func TestFormerReadsAreOfOneIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeadSystem(t.Context(), 100, crowded{})
		defer s.stop()
		s.calls.ask(t.Context(), func() {
			e := &entry{id: "one"}
			for _, now := range []struct {
				incarnation string
				kept        bool
			}{{"a", false}, {"a", true}, {"b", false}} {
				e.reading, e.former = new(formerRead), new(round.Former)
				s.hydrate(e, round.Known{Instance: "one", Row: round.Row{Incarnation: now.incarnation}})
				s.table.evict(e)
				if (e.reading != nil) != now.kept || (e.former != nil) != now.kept {
					t.Errorf("loaded as incarnation %s: %v and %v are kept", now.incarnation, e.reading, e.former)
				}
			}
		})
	})
}

// TestSlowFormerReadsProgress: attempts that end with an error after some pages do not count as
// failures, however many they are.
func TestSlowFormerReadsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, executions = 5, 4 * maxFormerFailures * 5
		n := 0
		store := &formerHistories{executions: func(string) int64 { return executions },
			fail: func(_ context.Context, _ string, execution int64) error {
				if n++; execution < executions && n%(each+1) == 0 {
					return errOnce
				}
				return nil
			}}
		s := newFormerSystem(t.Context(), store)
		defer s.stop()
		s.deliver(1)
		s.acked(t)
		if n := len(store.reads); n != executions-1 {
			t.Errorf("%d of %d executions were read", n, executions-1)
		}
	})
}

// TestFormerReadsTakeTurns: instances with thousands of former executions do not keep the others
// from reading theirs.
func TestFormerReadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &formerHistories{fail: noFailure, executions: func(instance string) int64 {
			if instance == "9" {
				return 3
			}
			return maxFormerExecutions
		}}
		s := newFormerSystem(t.Context(), store)
		defer s.stop()
		for i := range uint64(4) {
			s.deliver(i + 1)
		}
		for range 10 {
			<-store.reads
		}
		s.deliver(9)
		<-s.how
		if n := len(store.reads); n > 1000 {
			t.Errorf("an instance with two former executions waited for %d reads of others", n)
		}
		for range 4 {
			s.acked(t)
		}
	})
}

// TestSlowFormerReadsLeaveASlot: instances whose former executions cannot be read in time do not
// hold all slots again and again.
func TestSlowFormerReadsLeaveASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan string, 100)
		store := &formerHistories{executions: func(string) int64 { return 10 },
			fail: func(ctx context.Context, instance string, execution int64) error {
				if instance != "9" && execution == 5 {
					<-ctx.Done()
					failed <- instance
					return ctx.Err()
				}
				return nil
			}}
		s := newFormerSystem(t.Context(), store)
		defer s.stop()
		for i := range uint64(4) {
			s.deliver(i + 1)
		}
		for seen := make(map[string]bool); len(seen) < 4; {
			seen[<-failed] = true
		}
		s.deliver(9)
		<-s.how
		if n := len(failed); n > 0 {
			t.Errorf("an instance whose former executions can be read waited for %d reads that failed", n)
		}
	})
}
