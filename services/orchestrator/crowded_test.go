package orchestrator

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		returned: newReturned(), quarantine: newQuarantine(nil, time.Second, texts{}, nil,
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

// slowBroker stores nothing before go is closed. It counts the bytes that wait.
type slowBroker struct {
	broker.Publisher
	store <-chan struct{}
	held  *atomic.Int64
}

func (s slowBroker) wait(ctx context.Context, body []byte) error {
	s.held.Add(int64(len(body)))
	select {
	case <-s.store:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slowBroker) Publish(ctx context.Context, all ...events.Wire) error {
	return s.wait(ctx, all[0].Body)
}

func (s slowBroker) StoreDeadLetter(ctx context.Context, d broker.Delivery, _ broker.Cause) error {
	return s.wait(ctx, d.Body)
}

// TestMessagesThatPassTheLoopAreBounded: a client publishes many large messages that nothing can
// decode, while the broker stores little. The process must not have all of them in memory. Those
// without room are nacked, and taken when there is room.
func TestMessagesThatPassTheLoopAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, held, log := make(chan struct{}), new(atomic.Int64), slog.New(slog.DiscardHandler)
		b, background := slowBroker{store: store, held: held}, newBackground()
		defer background.end()
		dead := &deadLetters{broker: b, background: background, now: time.Now, log: log}
		r := &receiver{prefix: "rondo", ackWait: time.Second, quarantineAfter: 3, arrivals: newArrivals(),
			returned: newReturned(), dead: dead, crowded: func() error { return nil }}
		const n, size = 500, 1_000_000
		body := []byte(`{"input":"` + strings.Repeat("x", size))[:size]
		how := make(chan string, 2*n)
		deliver := func(place uint64) {
			r.receive(t.Context(), broker.Delivery{Subject: "rondo.start.o.i", Header: events.Header{}, Body: body,
				Sequence: place, StoredAt: time.Now(), NumDelivered: 1, Hold: settled{how: how}}, false)
		}
		for i := range uint64(n) {
			deliver(i + 1)
		}
		synctest.Wait()
		if is := held.Load(); is == 0 || is > 17*size {
			t.Errorf("%d MB are in memory", is/size)
		}
		waiting := n - len(how)
		close(store)
		synctest.Wait()
		for range len(how) {
			<-how
		}
		deliver(n + 1)
		synctest.Wait()
		if got := <-how; waiting == 0 || got != "ack" {
			t.Errorf("%d waited, and a message afterwards: %s", waiting, got)
		}
	})
}

// Messages that the loop has not taken yet are bounded by their size.
func TestMessagesOnTheWayToTheLoopAreBounded(t *testing.T) {
	const n, size = 24, events.MaxPayload
	w, err := events.Encode("rondo", events.Message{ID: "m", Instance: "i", Content: &events.EventRaised{Name: "e",
		Data: []byte(`"` + strings.Repeat("x", size-2) + `"`)}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		r := &receiver{prefix: "rondo", arrivals: newArrivals(), returned: newReturned(), quarantineAfter: 3}
		var receiving sync.WaitGroup
		var nacked atomic.Int64
		deliver := func(place uint64) {
			d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, Sequence: place, NumDelivered: 1,
				Hold: countedNaks{n: &nacked}}
			receiving.Go(func() { r.receive(ctx, d, false) })
		}
		for place := range uint64(n) {
			deliver(place + 1)
		}
		for taken := range n {
			synctest.Wait()
			if is := len(r.arrivals.in); is == 0 || is > maxArrivalBytes/size {
				t.Fatalf("%d messages of %d bytes are on the way", is, size)
			}
			if taken == 0 && r.takeOver(ctx, broker.Delivery{}) == nil {
				t.Error("a message that another orchestrator forwards waits for room")
			}
			i := <-r.arrivals.in
			i.arrive()
		}
		receiving.Wait()
		if r.arrivals.crowded() {
			t.Error("not all of the room is free")
		}
		larger := &item{bytes: 2 * maxArrivalBytes}
		if !r.arrivals.pass(ctx, larger) || !r.arrivals.crowded() {
			t.Error("one that is larger than the bound does not pass alone")
		}
		<-r.arrivals.in
		larger.arrive()
		for place := range uint64(n) {
			deliver(n + place + 1)
		}
		synctest.Wait()
		stop()
		receiving.Wait()
		if is := int64(len(r.arrivals.in)); is+nacked.Load() != n {
			t.Errorf("when the process ends, %d messages are on the way and %d nacked, of %d", is, nacked.Load(), n)
		}
	})
}

type countedNaks struct {
	broker.Hold
	n *atomic.Int64
}

func (h countedNaks) Nak(time.Duration) { h.n.Add(1) }
