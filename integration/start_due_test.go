package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// startDueProbe tells what the broker answers about starts that are due.
type startDueProbe struct {
	*probe
	due chan bool
}

func (p *startDueProbe) StartWaits(ctx context.Context, instance string, q broker.StartQuestion) (bool, error) {
	due, err := p.probe.StartWaits(ctx, instance, q)
	if err == nil {
		p.due <- due
	}
	return due, err
}

// TestMailboxMessagesWaitForAStartThatIsDue: a delayed start is due, and NATS does not hand it out
// for longer than mailbox messages wait for a start. They are not dead-lettered.
func TestMailboxMessagesWaitForAStartThatIsDue(t *testing.T) {
	t.Parallel()
	reminds := orchestration.Define[string, string]("reminds")
	notes := orchestration.DefineMailbox[string]("notes")
	s := newSystem(t, openSQLite(t), reminds.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
		return notes.Receive(ctx)
	}))
	v := s.prepare()
	p := &startDueProbe{v.broker, make(chan bool, 1000)}
	v.uses(p, s.hasty())
	v.start()
	js := s.raw().js
	if _, err := js.PauseConsumer(t.Context(), "RONDO_LATER", "due", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(5 * time.Second)
	s.say(events.Message{ID: "start-late", Instance: "late", NotBefore: due,
		Content: &events.Start{Orchestration: "reminds", Input: encode(t, "")}})
	kept := false // on a slow machine, its time is near when the orchestrator gets it, which then holds it
	s.eventually("the start waits for its time", func() error {
		page, err := s.bus.PendingStarts(t.Context(), broker.StartFilter{Instance: "late"}, broker.StartCursor{}, 1)
		kept = len(page.Starts) > 0 && !page.Starts[0].AcceptedAt.IsZero()
		if err != nil || !kept && time.Now().Before(due) {
			return fmt.Errorf("starts: %v, %w", page.Starts, err)
		}
		return nil
	})
	<-time.After(time.Until(due)) // the test is about a start that is due
	s.say(events.Message{ID: "note", Instance: "late",
		Content: &events.MailboxMessage{Mailbox: "notes", Data: encode(t, "call ann")}})
	if kept {
		s.eventually("the note has waited in vain", func() error {
			select {
			case due := <-p.due:
				if !due {
					t.Error("the broker has no start that is due")
				}
				return nil
			default:
				return errors.New("it waits")
			}
		})
	}
	if _, err := js.ResumeConsumer(t.Context(), "RONDO_LATER", "due"); err != nil {
		t.Fatal(err)
	}
	s.completed("late", "call ann")
}
