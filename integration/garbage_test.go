package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// What nobody can take waits, and holds up nobody else: neither does it fill the memory, nor is it
// taken for what kills processes because it comes again and again.
func TestWhatNobodyCanTakeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]func(i int) events.Message{
		"messages to instances that do not exist": func(i int) events.Message {
			return events.Message{ID: fmt.Sprint("g", i), Instance: fmt.Sprint("nobody", i%100),
				Content: &events.QueueSent{Queue: "notes", Data: events.Payload("1")}}
		},
		"starts of what is not registered": func(i int) events.Message {
			return events.Message{ID: fmt.Sprint("g", i), Instance: fmt.Sprint("stranger", i),
				Content: &events.Start{Orchestration: "not-deployed-yet"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, room, orders = 3000, 300, 20
			s := newSystem(t, openSQLite(t), basics...)
			s.orchestrate(func(c *orchestrator.Config) {
				c.MaxMessages, c.MaxInbox, c.SuspectAfter = room, 100, 1
				c.Round.UnknownFor = patience
			})
			s.employ([]activity.Binding{ping.With(func(_ context.Context, x string) (string, error) { return x, nil })})
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
			if waits < n {
				t.Errorf("%d of %d wait", waits, n)
			}
		})
	}
}

// redelivered counts what the broker hands out once more just now.
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
