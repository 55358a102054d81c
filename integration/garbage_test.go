package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// ackWaitOfGarbage is the ack wait of a test, in seconds. NATS must not redeliver a message that no
// orchestrator can process because its ack wait is over: that counts against it ever after.
const ackWaitOfGarbage = 60

// TestWhatNobodyCanTakeHoldsUpNobody: messages that no orchestrator can process wait, and do not
// hold up other messages. They do not fill the memory, and the orchestrator does not take them for
// poison, however often they are redelivered. The same orders run once without them, and once
// beside them. The test compares deliveries and counted attempts, because the time of both depends
// on the machine.
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
			slowtest.Room(t)
			s := newSystemAt(t, ackWaitOfGarbage, openSQLite(t), basics...)
			s.orchestrate(func(c *orchestrator.Config) {
				c.Memory.MaxMessages, c.MaxInbox, c.QuarantineAfter = room, inbox, 1
				c.Round.UnknownFor = patience
			})
			s.employ([]activity.Binding{ping.Bind(func(_ context.Context, x string) (string, error) { return x, nil })})
			calm := s.costOf("calm", orders)
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
			beside := s.costOf("beside", orders)
			beside.isLike(t, calm, room)
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

// cost is the cost of some orders for the broker: the messages of the inbox that it delivered
// meanwhile, and the writes of counted attempts, which only quarantined messages have.
type cost struct {
	deliveries, attempts int
	took                 time.Duration
}

// costOf runs orders one after the other.
func (s *system) costOf(name string, orders int) (c cost) {
	began, deliveries, attempts := time.Now(), s.delivered(), s.written()
	for i := range orders {
		id := fmt.Sprint(name, i)
		s.start("once", id, "x")
		s.ended(id)
	}
	return cost{s.delivered() - deliveries, s.written() - attempts, time.Since(began)}
}

// returnRate is the number of messages without a receiver that come again in a second at most.
const returnRate = 250

// isLike compares the cost of orders with that of the same orders without other messages. Messages
// that no orchestrator can process are not quarantined, so that few attempts are counted: only
// those of a machine so slow that the ack wait is over. Their redeliveries stay near the rate.
func (c cost) isLike(t *testing.T, calm cost, room int) {
	t.Helper()
	if more := c.attempts - calm.attempts; more > c.deliveries/2 {
		t.Errorf("%d writes of attempts for %d deliveries; without other messages %d for %d", more, c.deliveries,
			calm.attempts, calm.deliveries)
	}
	most := room + int(4*returnRate*c.took.Seconds())
	if more := c.deliveries - calm.deliveries; more > most {
		t.Errorf("%d deliveries more than the %d without other messages; at most %d are expected in %v", more,
			calm.deliveries, most, c.took)
	}
}

// delivered counts all deliveries of the inbox.
func (s *system) delivered() (n int) {
	st, err := s.raw().js.Stream(s.t.Context(), "RONDO")
	if err != nil {
		s.t.Fatal(err)
	}
	list := st.ListConsumers(s.t.Context())
	for i := range list.Info() {
		n += int(i.Delivered.Consumer)
	}
	if list.Err() != nil {
		s.t.Fatal(list.Err())
	}
	return n
}

// written counts the writes of small values, among them the counts of attempts.
func (s *system) written() int {
	st, err := s.raw().js.Stream(s.t.Context(), "KV_RONDO_KV")
	if err != nil {
		s.t.Fatal(err)
	}
	return int(st.CachedInfo().State.LastSeq)
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
