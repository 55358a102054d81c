package worker

import (
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// prefixed is a broker that is asked for nothing but its prefix.
type prefixed struct{ Broker }

func (prefixed) Prefix() string { return "rondo" }

// The result of a task that is redelivered is stored: it may be why its receiver dies, and only the
// broker counts how often it was delivered.
func TestResultsOfRedeliveredTasksAreStored(t *testing.T) {
	w := &Worker{bus: prefixed{}}
	for deliveries, want := range map[int]string{1: "there", 2: "", 3: ""} {
		a := &attempt{
			w: w, m: events.Message{Instance: "i"},
			work: &events.Work{Ref: events.Ref{Incarnation: "incarnation", Execution: 1, Event: 2}},
			d:    broker.Delivery{NumDelivered: deliveries, Header: events.Header{events.HeaderBack: {"there"}}},
		}
		wire, err := w.encode(a, events.Message{ID: "m", Content: &events.WorkDone{Ref: a.work.Ref}})
		if err != nil || wire.Back != want {
			t.Errorf("delivery %d: the result goes to %q (%v), want %q", deliveries, wire.Back, err, want)
		}
	}
}

// acks counts what is acknowledged.
type acks struct {
	broker.Hold
	n int
}

func (a *acks) Ack() { a.n++ }

// A task that is handed over to the worker that held it, and that does not have it any more, stays
// with who hands it over: the worker was restarted under the same id, say.
func TestNoHoldIsTakenOverWithoutItsTask(t *testing.T) {
	w := &Worker{held: newHeld()}
	var hold acks
	if err := w.mine(broker.Delivery{Subject: "rondo.work._.a.1-2.i", Hold: &hold}); err == nil || hold.n > 0 {
		t.Errorf("it takes a task that it does not have (%v), and has acknowledged %d", err, hold.n)
	}
}
