package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// tiny are limits that everything runs into all the time.
func tiny(c *orchestrator.Config) {
	c.Memory.MaxInstances, c.Memory.MaxMessages, c.MaxInbox = 2, 4, 2
	c.Commit.MaxTurns, c.Commit.MaxEvents, c.Commit.MaxBytes = 1, 1, 1
	c.RoundConcurrency, c.StepConcurrency = 1, 1
}

// With room for hardly anything, everything takes longer, and ends all the same.
func TestTinyLimits(t *testing.T) {
	t.Parallel()
	s := newCalmSystem(t, openSQLite(t), plays...)
	v := s.orchestrate(tiny)
	s.labour()
	jobs := mixed("j", racetest.Size(100, 40))
	s.begin(jobs, false)
	s.letGo(jobs)
	s.finished(jobs, patience)
	s.settled()
	s.eventually("hardly anything is in memory", func() error {
		st, err := v.Status(t.Context())
		if err == nil && (st.Hydrated > 2 || st.Messages > 0 || st.Steps > 0) {
			err = fmt.Errorf("there is %+v", st)
		}
		return err
	})
}

// One instance that gets very many messages does not hold up the others, and reads them in their
// order.
func TestOneBusyInstance(t *testing.T) {
	t.Parallel()
	n := racetest.Size(2000, 300)
	reader := orchestration.Define[int, int]("busy-reader")
	s := newCalmSystem(t, openSQLite(t),
		append([]orchestration.Binding{reader.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			for i := range n {
				x, err := work.Letters.Receive(ctx)
				if err != nil || x != i {
					return i, fmt.Errorf("letter %d is %d (%v)", i, x, err)
				}
			}
			return n, nil
		})}, plays...)...)
	s.orchestrate()
	s.labour()
	s.start("busy-reader", "busy", n)
	var all []events.Message
	for i := range n {
		all = append(all, events.Message{ID: fmt.Sprint("l", i), Instance: "busy",
			Content: &events.MailboxMessage{Mailbox: "letters", Data: codec.Payload(fmt.Sprint(i))}})
	}
	s.say(all...)
	jobs := mixed("j", 50)
	s.begin(jobs, false)
	s.letGo(jobs)
	s.finished(jobs, patience)
	s.completed("busy", n)
	s.check()
}

// TestStatusTellsWhatIsGoingOn: an orchestrator reports its instances in memory, its readiness and
// its liveness.
func TestStatusTellsWhatIsGoingOn(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), plays...)
	v := s.orchestrate()
	s.start("asking", "a", 1)
	s.reaches("a", events.KindEventAwaited)
	s.eventually("it is in memory", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		st, err := v.Status(ctx)
		if err == nil && (st.Hydrated != 1 || len(st.Partitions) != 4 || st.ID != v.ID()) {
			err = fmt.Errorf("there is %+v", st)
		}
		return err
	})
	if err := v.Ready(t.Context()); err != nil {
		t.Errorf("it is not ready: %v", err)
	}
	if err := v.Live(); err != nil {
		t.Errorf("it is not alive: %v", err)
	}
	if err := v.end(); err != nil {
		t.Fatal(err)
	}
	if err := v.Ready(t.Context()); err == nil {
		t.Error("it is ready after its end")
	}
}
