package integration_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

var (
	// an invoice is started by instances of the others, and is deployed when the broker has lost
	// its start.
	invoice = orchestration.Define[string, string]("invoice")
	talker  = orchestration.Define[string, string]("talker")
	roller  = orchestration.Define[int, string]("roller")
)

// talkers detach invoices: when they are approved, or at once.
func talkers() []orchestration.Binding {
	return append([]orchestration.Binding{
		talker.Bind(func(ctx *orchestration.Context, id string) (string, error) {
			_, err := invoice.Detach(ctx, id, orchestration.ID(id))
			if err == nil {
				_, err = approval.Wait(ctx)
			}
			if err == nil {
				_, err = invoice.Detach(ctx, id, orchestration.ID(id+"-at-the-end"))
			}
			return "said", err
		}),
		roller.Bind(func(ctx *orchestration.Context, n int) (string, error) {
			if _, err := approval.Wait(ctx); err != nil {
				return "", err
			}
			if _, err := invoice.Detach(ctx, "r", orchestration.ID("of-roller")); err != nil {
				return "", err
			}
			return roller.ContinueAsNew(ctx, n+1)
		}),
	}, basics...)
}

// behind has an orchestrator with a clock that is a quarter of an hour behind, so that all that it
// does was done that long ago.
func behind(c *orchestrator.Config) {
	c.Clocks.Now = func() time.Time { return time.Now().Add(-15 * time.Minute) }
	c.Clocks.MaxSkew = time.Hour
}

// invoiced loses the broker, and expects that invoices begin all the same.
func (s *system) invoiced(o *service, ids ...string) {
	s.t.Helper()
	s.eventually("all is published", func() error {
		if n, err := s.store.CountOutbox(s.t.Context(), 10); n > 0 || err != nil {
			return fmt.Errorf("%d outbox entries (%w)", n, err)
		}
		return nil
	})
	if err := o.end(); err != nil {
		s.t.Fatal(err)
	}
	s.loseBroker()
	s.deploy(append(talkers(), invoice.Bind(func(_ *orchestration.Context, x string) (string, error) {
		return x, nil
	}))...)
	s.orchestrate()
	for _, id := range ids {
		s.ended(id)
	}
}

func (s *system) approve(instance string) {
	s.t.Helper()
	s.say(events.Message{ID: "yes-" + instance, Instance: instance,
		Content: &events.EventRaised{Name: approval.Name(), Data: encode(s.t, "yes")}})
}

// What instances have said just before the broker lost it is said again, also if they began long
// before that, have ended, or have continued as new.
func TestWhatFormerExecutionsSaidIsSaidAgain(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), talkers()...)
	old := s.orchestrate(behind)
	s.start("talker", "old", "of-old")
	s.reaches("old", events.KindEventAwaited)
	if err := old.end(); err != nil {
		t.Fatal(err)
	}
	o := s.orchestrate()
	s.start("roller", "roller", 0)
	s.reaches("roller", events.KindEventAwaited)
	s.approve("old")
	s.approve("roller")
	s.completed("old", "said")
	s.eventually("it continues as new", func() error {
		i, err := s.store.Instance(t.Context(), "roller")
		if err == nil && i.Execution != 2 {
			return errors.New("it has not")
		}
		return err
	})
	s.invoiced(o, "of-old-at-the-end", "of-roller")
}

// The system comes back a quarter of an hour after the broker was lost.
func TestWhatWasSaidBeforeALongOutageIsSaidAgain(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), talkers()...)
	o := s.orchestrate(behind)
	s.start("talker", "talker", "of-talker")
	s.approve("talker")
	s.completed("talker", "said")
	s.invoiced(o, "of-talker", "of-talker-at-the-end")
}
