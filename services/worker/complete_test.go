package worker

import (
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// The result of a task that is redelivered is stored: it may be why its receiver dies, and only the
// broker counts how often it was delivered.
func TestResultsOfRedeliveredTasksAreStored(t *testing.T) {
	c := &completer{prefix: "rondo"}
	for deliveries, want := range map[int]string{1: "there", 2: "", 3: ""} {
		a := &attempt{
			m:    events.Message{Instance: "i"},
			work: &events.Task{Ref: events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2}},
			d:    broker.Delivery{NumDelivered: deliveries, Header: events.Header{events.HeaderDirectReply: {"there"}}},
		}
		wire, err := c.encode(a, events.Message{ID: "m", Content: &events.TaskDone{Ref: a.work.Ref}})
		if err != nil || wire.DirectTo != want {
			t.Errorf("delivery %d: the result goes to %q (%v), want %q", deliveries, wire.DirectTo, err, want)
		}
	}
}

// acks counts acknowledgements.
type acks struct {
	broker.Hold
	n int
}

func (a *acks) Ack() { a.n++ }

// A task is handed over to the worker that held it, but that worker does not have it any more,
// because it was restarted under the same id, say. The task stays with the sender.
func TestNoHoldIsTakenOverWithoutItsTask(t *testing.T) {
	w := &Worker{held: newHeld(), lasted: new(lasted)}
	var hold acks
	if err := w.mine(broker.Delivery{Subject: "rondo.task._.a.1-2.i", Hold: &hold}); err == nil || hold.n > 0 {
		t.Errorf("it takes a task that it does not have (%v), and has acknowledged %d", err, hold.n)
	}
}
