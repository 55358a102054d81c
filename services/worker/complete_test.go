package worker

import (
	"testing"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
)

// prefixed is a broker that is asked for nothing but its prefix.
type prefixed struct{ Broker }

func (prefixed) Prefix() string { return "rondo" }

// The result of a task that is redelivered is stored: it may be why its receiver dies, and only the broker counts how often it
// was delivered.
func TestResultsOfRedeliveredTasksAreStored(t *testing.T) {
	w := &Worker{bus: prefixed{}}
	for deliveries, want := range map[int]string{1: "there", 2: "", 3: ""} {
		a := &attempt{
			w: w, m: events.Message{Instance: "i"}, work: &events.Work{Ref: events.Ref{Life: "life", Execution: 1, Event: 2}},
			d: bus.Delivery{Deliveries: deliveries, Header: events.Header{events.HeaderBack: {"there"}}},
		}
		wire, err := w.encode(a, events.Message{ID: "m", Content: &events.WorkDone{Ref: a.work.Ref}})
		if err != nil || wire.Back != want {
			t.Errorf("delivery %d: the result goes to %q (%v), want %q", deliveries, wire.Back, err, want)
		}
	}
}
