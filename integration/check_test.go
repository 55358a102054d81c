package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/worker"
)

// This file tests the checker on running systems, and on systems that have lost messages. The tests
// of package check show that each rule finds its violations.

// TestCheckerIsRightWhileEverythingMoves checks again and again while orchestrators and workers are
// killed: it must never find anything.
func TestCheckerIsRightWhileEverythingMoves(t *testing.T) {
	onEach(t, func(t *testing.T, s *system) {
		a := s.orchestrate()
		killWorker := s.labour()
		s.labour(func(c *worker.Config) { c.Slots = 5 })
		jobs := mixed("moving", 120)
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		defer wait.Wait()
		defer stop()
		checks := 0
		wait.Go(func() {
			for ctx.Err() == nil {
				// The orchestrators find a lost message after three seconds here: see hasty.
				r, err := check.System(ctx, s.store, check.Options{Broker: s.bus, Dead: s.bus, Prefix: s.bus.Prefix(),
					Overdue: 90 * time.Second, Acknowledgements: s.acks()})
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if err := r.Err(); err != nil {
					t.Errorf("check %d, of %d instances and %d acknowledgements, has found:\n%v", checks, r.Instances,
						r.Acknowledgements, err)
				}
				checks++
			}
		})
		s.begin(jobs, true)
		s.reaches("moving0", events.KindActivityCompleted)
		a.kill()
		killWorker()
		b := s.orchestrate()
		s.letGo(jobs)
		b.kill()
		s.orchestrate()
		s.finished(jobs, patience)
		s.settled()
		stop()
		wait.Wait()
		t.Logf("checked %d times", checks)
		if checks < 3 {
			t.Errorf("it was checked only %d times", checks)
		}
	}, plays...)
}

// TestCheckerFindsWhatTheBrokerHasLost loses all messages while no service runs. The checker must
// find the loss, and find nothing once the services have recovered from it.
func TestCheckerFindsWhatTheBrokerHasLost(t *testing.T) {
	onEach(t, func(t *testing.T, s *system) {
		o := s.orchestrate()
		s.start("chain", "lost", 1)
		s.start("nap", "waits", 1)
		s.reaches("lost", events.KindActivityScheduled)
		s.reaches("waits", events.KindActivityScheduled)
		s.settled()
		look := func(change func(*check.Options)) check.Report {
			t.Helper()
			c := check.Options{Broker: s.bus, Dead: s.bus, Prefix: s.bus.Prefix(), Overdue: time.Millisecond}
			change(&c)
			r, err := check.System(t.Context(), s.store, c)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		o.kill()
		if err := o.wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Log(err) // it was killed
		}
		s.eventually("the work is in the broker", func() error {
			if r := look(func(*check.Options) {}); r.Found[check.TaskLost] > 0 {
				return r.Err()
			}
			return nil
		})
		if r := look(func(c *check.Options) { c.Quiescent = true }); r.Found[check.Outstanding] != 2 {
			t.Errorf("outstanding are %v:\n%v", r.Found, r.Err())
		}
		said := check.Acknowledged{What: check.AcknowledgedMailbox, Instance: "lost", Mailbox: "letters",
			Message: "letter",
			At:      time.Now()}
		s.say(events.Message{ID: said.Message, Instance: said.Instance,
			Content: &events.MailboxMessage{Mailbox: said.Mailbox, Data: codec.Payload("1")}})
		promised := func(c *check.Options) {
			c.Acknowledgements = []check.Acknowledgements{{Name: "a client", Each: func(yield func(check.Acknowledged,
				error) bool) {
				yield(said, nil)
			}}}
		}
		if r := look(promised); r.InFlight != 1 || r.Found[check.MailboxLost] > 0 {
			t.Errorf("what waits in the broker is reported as %+v", r)
		}

		s.loseBroker()
		r := look(promised)
		if r.Found[check.TaskLost] != 2 || r.Found[check.MailboxLost] != 1 {
			t.Errorf("found are %v:\n%v", r.Found, r.Err())
		}

		s.labour()
		s.orchestrate()
		s.completed("lost", 8)
		s.completed("waits", 2)
		s.settled()
		s.eventually("nothing is outstanding", func() error {
			r := look(func(c *check.Options) { c.Quiescent = true })
			if r.Total() > 0 {
				return fmt.Errorf("found is %w", r.Err())
			}
			return nil
		})
	}, plays...)
}

// `acks` returns the acknowledgements that the test has received so far.
func (s *system) acks() []check.Acknowledgements {
	s.mu.Lock()
	defer s.mu.Unlock()
	promised := slices.Clone(s.acked)
	return []check.Acknowledgements{{Name: "the test", Each: func(yield func(check.Acknowledged, error) bool) {
		for _, p := range promised {
			if !yield(p, nil) {
				return
			}
		}
	}}}
}
