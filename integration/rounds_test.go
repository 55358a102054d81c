package integration_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// These tests are about the two ways to keep inbox and history together: a round commits both at
// once; and where a step in between can fail (here, from the store to the broker and back), the
// steps are idempotent. Each test kills the orchestrator at one arrow of the loop, and has another
// one go on.

// A crash is a point at which an orchestrator is killed.
type crash struct {
	name string
	// at arms it: the orchestrator is killed the first time it gets there with something that
	// concerns the subject or the instance.
	at func(v *service, die func() bool)
}

// crashes are all points between taking a message and settling it.
var crashes = []crash{
	{"after the message was received", func(v *service, die func() bool) {
		v.broker.onReceive = func(broker.Delivery) { die() }
	}},
	{"before the commit", func(v *service, die func() bool) {
		v.store.before = func(history.Batch) error { return failIf(die()) }
	}},
	{"after the commit", func(v *service, die func() bool) {
		v.store.after = func(history.Batch) error { return failIf(die()) }
	}},
	{"before anything is published", func(v *service, die func() bool) {
		v.broker.onPublish = func([]events.Wire) error { return failIf(die()) }
	}},
	{"after it was published, before the outbox entry is removed", func(v *service, die func() bool) {
		v.broker.afterPublish = func([]events.Wire) { die() }
	}},
	{"before the acknowledgement", func(v *service, die func() bool) {
		v.broker.onAck = func(broker.Delivery) bool { return !die() }
	}},
}

func failIf(died bool) error {
	if died {
		return &history.Error{Class: history.Retry, Op: "commit", Err: errors.New("killed")}
	}
	return nil
}

// armed starts an orchestrator that is killed when it reaches a point the nth time. It returns a
// function that waits for that.
func (s *system) armed(c crash, nth int32) (*service, func()) {
	v := s.prepare()
	killed := v.arm(c, nth)
	v.start()
	return v, func() {
		s.t.Helper()
		s.await(killed, "the orchestrator gets to where it is killed")
	}
}

// arm has an orchestrator killed at a point when it gets there the nth time.
func (v *service) arm(c crash, nth int32) <-chan struct{} {
	killed := make(chan struct{})
	var passed atomic.Int32
	c.at(v, func() bool {
		switch n := passed.Add(1); {
		case n < nth:
			return false
		case n == nth:
			v.kill()
			close(killed)
		}
		return true
	})
	return killed
}

// The messages of a turn and its events: both or neither, and each message is taken up once,
// whatever happens in between.
func TestRoundSchedulesOnceWhereverItCrashes(t *testing.T) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			onBasics(t, func(t *testing.T, s *system) {
				_, killed := s.armed(c, 1)
				s.start("once", "i", "a")
				killed()
				s.orchestrate()
				d, m, _ := s.take("ping")
				d.Hold.Ack()
				s.say(done(m, "b"))
				s.completed("i", "b")
				s.wantKinds("i", events.KindStarted, events.KindActivityScheduled, events.KindActivityCompleted,
					events.KindCompleted)
				s.settled()
				s.outboxIsEmpty()
			})
		})
	}
}

// TestRoundCompletesOnceWhereverItCrashes: a completion is in history once, and its consequences
// happen once.
func TestRoundCompletesOnceWhereverItCrashes(t *testing.T) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			onBasics(t, func(t *testing.T, s *system) {
				first := s.orchestrate()
				s.start("parent", "other", "other") // so that there are other things to do
				s.start("rolling", "i", 2)
				d, m, _ := s.take("ping")
				d.Hold.Ack()
				s.completed("other", "child of other")
				s.settled()
				if err := first.end(); err != nil {
					t.Fatal(err)
				}
				_, killed := s.armed(c, 1)
				s.say(done(m, "b"))
				killed()
				s.orchestrate()
				d, m, _ = s.take("ping")
				d.Hold.Ack()
				s.say(done(m, "b"))
				s.completed("i", "done")
				for execution := range int64(2) {
					kinds := s.kindsOf("i", execution+1)
					want := fmt.Sprint([]events.Kind{events.KindStarted, events.KindActivityScheduled,
						events.KindActivityCompleted, events.KindContinuedAsNew})
					if got := fmt.Sprint(kinds); got != want {
						t.Errorf("execution %d has %s, want %s", execution+1, got, want)
					}
				}
				s.settled()
				s.outboxIsEmpty()
			})
		})
	}
}

// onOne runs a test on one database of those that there are, by turns.
func onOne(t *testing.T, turn int, test func(t *testing.T, s *system)) {
	t.Helper()
	t.Parallel()
	db := databases[turn%len(databases)]
	test(t, newSystem(t, db.open(t), basics...))
}

// A timer, and a child with its result to the parent.
func TestRoundOfTimersAndChildrenWhereverItCrashes(t *testing.T) {
	for _, c := range crashes {
		for nth := int32(1); nth <= 2; nth++ {
			t.Run(fmt.Sprint(c.name, ", time ", nth), func(t *testing.T) {
				onOne(t, int(nth), func(t *testing.T, s *system) {
					s.armed(c, nth) // when much is done in one go, it does not get there so often
					s.start("sleeper", "t", 20)
					s.start("parent", "p", "p")
					s.orchestrate()
					s.completed("t", "slept")
					s.completed("p", "child of p")
					s.wantKinds("t", events.KindStarted, events.KindTimerCreated, events.KindTimerFired,
						events.KindCompleted)
					s.wantKinds("p", events.KindStarted, events.KindChildStarted, events.KindChildCompleted,
						events.KindCompleted)
					s.settled()
				})
			})
		}
	}
}

// TestRoundIsRepeatedWhenItsCommitFails: the commit fails some times and then works: there is one
// set of events and one set of messages.
func TestRoundIsRepeatedWhenItsCommitFails(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare(func(c *orchestrator.Config) { c.Round.Patience = time.Minute }) // no other recovery
		var commits atomic.Int32
		v.store.before = func(history.Batch) error { return failIf(commits.Add(1)%3 != 0) }
		v.start()
		s.start("parent", "p", "p")
		s.start("once", "i", "a")
		_, m, _ := s.take("ping")
		s.say(done(m, "b"))
		s.completed("p", "child of p")
		s.completed("i", "b")
		for subject, want := range map[string]int{"published rondo.internal_start.childless.p-child": 1,
			"published rondo.task._.ping.1-2-": 1, "published rondo.child-ended.1-2.p": 1} {
			if n := len(s.journal.find(subject)); n != want {
				t.Errorf("%q happened %d times, want %d", subject, n, want)
			}
		}
	})
}

// A commit begins beside another one when many turns wait, and not when few do; there is never a
// third. After one has failed, there is one at a time.
func TestRoundsAreCommittedBesideOthers(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare(func(c *orchestrator.Config) {
			c.Round.Patience = time.Minute
			c.Commit.Timeout = time.Hour // on a slow machine, a commit would fail before the test says so
		})
		begun, answers := make(chan int, 1000), make(chan error)
		var under, most atomic.Int32
		most.Store(2)
		v.store.before = func(b history.Batch) error {
			if n := under.Add(1); n > most.Load() {
				t.Errorf("%d commits are in flight at once, want %d at most", n, most.Load())
			}
			begun <- len(b.Turns)
			err := <-answers
			under.Add(-1)
			return err
		}
		next := func() (turns int) {
			t.Helper()
			select {
			case turns = <-begun:
			case <-time.After(patience):
				t.Fatal("no commit begins")
			}
			return turns
		}
		started := 0
		start := func(n int) {
			for range n {
				s.start("childless", fmt.Sprint("i", started), "x")
				started++
			}
			s.journal.await("received rondo.start.childless.", started)
		}
		v.start()
		start(1)
		next()
		start(20)
		start(80)
		if n := next(); n < 48 {
			t.Errorf("a commit of %d turns has begun beside another one, which costs more than to wait for that", n)
		}
		start(80) // a third would be noticed, now or while the others end
		answers <- nil
		next()
		answers <- failIf(true)
		answers <- failIf(true)
		most.Store(1)
		for range 5 {
			next()
			answers <- failIf(true)
		}
		close(answers)
		for i := range started {
			s.ended(fmt.Sprint("i", i))
		}
	})
}

// A commit that began beside another one publishes the outbox entry of its turns. No sweep helps
// here.
func TestTheSecondCommitPublishes(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	v := s.prepare(func(c *orchestrator.Config) {
		c.Round.Patience, c.Sweep.OutboxAfter, c.Sweep.Every = time.Minute, time.Hour, time.Hour
	})
	begun, answers := make(chan int, 1000), make(chan error)
	v.store.before = func(b history.Batch) error {
		begun <- len(b.Turns)
		return <-answers
	}
	v.start()
	s.start("parent", "i0", "x0")
	<-begun
	const many = 100
	for n := 1; n <= many; n++ {
		s.start("parent", fmt.Sprint("i", n), fmt.Sprint("x", n))
	}
	<-begun // beside the first one, which still waits for its answer
	close(answers)
	for n := range many + 1 {
		s.completed(fmt.Sprint("i", n), fmt.Sprint("child of x", n))
	}
}

// TestTheSecondCommitFails: two concurrent commits share no turn. If the second one fails, its
// turns are committed later.
func TestTheSecondCommitFails(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), basics...)
	log := &lockedBuffer{}
	v := s.prepare(func(c *orchestrator.Config) {
		c.Round.Patience, c.Sweep.OutboxAfter, c.Sweep.Every = time.Minute, time.Hour, time.Hour
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	first, second, release := make(chan struct{}), make(chan history.Batch, 1), make(chan struct{})
	var commits atomic.Int32
	v.store.before = func(b history.Batch) error {
		switch commits.Add(1) {
		case 1:
			close(first)
			<-release
		case 2:
			second <- b
			return &history.Error{Class: history.Retry, Op: "commit",
				Err: errors.New("the database has no connection left")}
		}
		return nil
	}
	v.start()
	s.start("parent", "i0", "x0")
	<-first
	const many = 100
	for n := 1; n <= many; n++ {
		s.start("parent", fmt.Sprint("i", n), fmt.Sprint("x", n))
	}
	for _, x := range (<-second).Turns {
		if x.Turn.Instance == "i0" {
			t.Error("i0 is in two commits at once")
		}
	}
	s.eventually("the orchestrator knows that the commit has failed", func() error {
		if !strings.Contains(log.String(), "a commit failed") {
			return errors.New(log.String())
		}
		return nil
	})
	close(release)
	for n := range many + 1 {
		s.completed(fmt.Sprint("i", n), fmt.Sprint("child of x", n))
	}
}

// TestRoundEventsEarlyAndLate: an event that is raised before an instance waits for it is dropped
// and acknowledged; an event that is raised afterwards is received once.
func TestRoundEventsEarlyAndLate(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		event := func(id, data string) events.Message {
			return events.Message{ID: id, Instance: "i",
				Content: &events.EventRaised{Name: "approval", Data: codec.Payload(`"` + data + `"`)}}
		}
		s.say(event("before the start", "lost"))
		s.journal.await("acknowledged rondo.event.approval.i", 1)
		s.start("waiter", "i", "")
		s.reaches("i", events.KindEventAwaited)
		s.say(event("in time", "taken"), event("in time", "taken"), event("too late", "lost"))
		s.completed("i", "taken")
		s.settled()
		s.wantKinds("i", events.KindStarted, events.KindEventAwaited, events.KindEventReceived, events.KindCompleted)
	})
}

// To continue as new ends one execution and begins the next in the same commit.
func TestRoundContinuesAsNewAtOnce(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		v := s.prepare()
		v.store.before = func(b history.Batch) error {
			for _, d := range b.Turns {
				for i, x := range d.Turn.Executions {
					last := x.Events[len(x.Events)-1].Fact.Kind()
					if d.Turn.Instance == "i" && last == events.KindContinuedAsNew && i == len(d.Turn.Executions)-1 {
						s.journal.note("an execution ended without its successor")
					}
				}
			}
			return nil
		}
		v.start()
		s.start("rolling", "i", 3)
		for range 3 {
			d, m, _ := s.take("ping")
			d.Hold.Ack()
			s.say(done(m, "b"))
		}
		s.completed("i", "done")
		if len(s.journal.find("an execution ended")) > 0 {
			t.Error(s.journal)
		}
	})
}

// outboxIsEmpty waits until the outbox is empty.
func (s *system) outboxIsEmpty() {
	s.t.Helper()
	s.eventually("all outbox entries are published and removed", func() error {
		n, err := s.store.CountOutbox(s.t.Context(), 100)
		if err == nil && n > 0 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

func (s *system) kindsOf(instance string, execution int64) []events.Kind {
	s.t.Helper()
	var kinds []events.Kind
	for _, e := range s.events(instance, execution) {
		kinds = append(kinds, e.Fact.Kind())
	}
	return kinds
}
