package orchestrator

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// nackedHold notes negative acknowledgements.
type nackedHold struct {
	broker.Hold
	after *[]time.Duration
}

func (h nackedHold) Nak(after time.Duration) { *h.after = append(*h.after, after) }

// TestNoInstanceStartsWhileTasksAreTooMany: starts wait in the broker while it has no room for
// more tasks, and count as nacked on purpose. Other messages are taken.
func TestNoInstanceStartsWhileTasksAreTooMany(t *testing.T) {
	full := true
	r := &receiver{prefix: "rondo", ackWait: time.Second, quarantineAfter: 3, arrivals: newArrivals(),
		returned: newReturned(), schedules: &scheduled{}, quarantine: newQuarantine(nil, time.Second, texts{}, nil,
			slog.New(slog.DiscardHandler)), crowded: func() error {
			if full {
				return broker.ErrFull
			}
			return nil
		}}
	var nacked []time.Duration
	deliver := func(m events.Message) {
		t.Helper()
		w, err := events.Encode("rondo", m)
		if err != nil {
			t.Fatal(err)
		}
		r.receive(context.Background(), broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, Sequence: 7,
			NumDelivered: 1, Hold: nackedHold{after: &nacked}}, false)
	}
	start := events.Message{ID: "s", Instance: "i", Content: &events.Start{Orchestration: "o"}}
	deliver(start)
	deliver(events.Message{ID: "e", Instance: "j", Content: &events.EventRaised{Name: "e"}})
	if len(nacked) != 1 || nacked[0] < time.Second || len(r.arrivals.in) != 1 {
		t.Errorf("%d nacked, %d taken", len(nacked), len(r.arrivals.in))
	}
	full = false
	deliver(start)
	if len(nacked) != 1 || len(r.arrivals.in) != 2 {
		t.Errorf("%d nacked, %d taken", len(nacked), len(r.arrivals.in))
	}
}
