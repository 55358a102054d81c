package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// TestWhatNobodyCanTakeHoldsUpNobody: messages that no orchestrator can process wait, and do not
// hold up other messages. They do not fill the memory, and the orchestrator does not take them for
// poison, however often they are redelivered.
func TestWhatNobodyCanTakeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]func(i int) events.Message{
		"messages to instances that do not exist": func(i int) events.Message {
			return events.Message{ID: fmt.Sprint("g", i), Instance: fmt.Sprint("nobody", i%100),
				Content: &events.MailboxMessage{Mailbox: "notes", Data: codec.Payload("1")}}
		},
		"starts of what is not registered": func(i int) events.Message {
			return events.Message{ID: fmt.Sprint("g", i), Instance: fmt.Sprint("stranger", i),
				Content: &events.Start{Orchestration: "not-deployed-yet"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const orders = 20
			n, room, inbox := 3000, 300, 100
			if testing.Short() {
				n, room, inbox = 600, 60, 20
			}
			s := newSystem(t, openSQLite(t), basics...)
			s.orchestrate(func(c *orchestrator.Config) {
				c.Memory.MaxMessages, c.MaxInbox, c.QuarantineAfter = room, inbox, 1
				c.Round.UnknownFor = patience
			})
			s.employ([]activity.Binding{ping.Bind(func(_ context.Context, x string) (string, error) { return x, nil })})
			var garbage []events.Message
			for i := range n {
				garbage = append(garbage, message(i))
			}
			s.say(garbage...)
			s.eventually("more of it has come again than there is room for", func() error {
				if again := s.redelivered(); again < 2*room {
					return fmt.Errorf("%d", again)
				}
				return nil
			})
			for i := range orders {
				s.start("once", fmt.Sprint("order", i), "x")
				s.ended(fmt.Sprint("order", i))
			}
			var waits int64
			for p := range 4 {
				b, err := s.bus.Backlog(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				waits += b.Held + b.Waiting
			}
			if waits < int64(n) {
				t.Errorf("%d of %d wait", waits, n)
			}
		})
	}
}

// redelivered counts the messages that the broker has redelivered and that are in flight.
func (s *system) redelivered() (n int) {
	st, err := s.raw().js.Stream(s.t.Context(), "RONDO")
	if err != nil {
		s.t.Fatal(err)
	}
	list := st.ListConsumers(s.t.Context())
	for i := range list.Info() {
		n += i.NumRedelivered
	}
	if list.Err() != nil {
		s.t.Fatal(list.Err())
	}
	return n
}
