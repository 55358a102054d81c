package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/outbox"
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
// decode, or starts with the header of schedules, while the broker stores little. The process must
// not have all of them in memory. Those without room are nacked, and taken when there is room.
func TestMessagesThatPassTheLoopAreBounded(t *testing.T) {
	for name, header := range map[string]events.Header{"malformed": {}, "each": {query.HeaderEach: {"true"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, held, log := make(chan struct{}), new(atomic.Int64), slog.New(slog.DiscardHandler)
				b, background := slowBroker{store: store, held: held}, newBackground()
				defer background.end()
				dead := &deadLetters{broker: b, background: background, now: time.Now, log: log}
				r := &receiver{prefix: "rondo", ackWait: time.Second, quarantineAfter: 3, arrivals: newArrivals(),
					returned: newReturned(), dead: dead, crowded: func() error { return nil },
					schedules: &scheduled{broker: b, prefix: "rondo", dead: dead, background: background, log: log}}
				const n, size = 500, 1_000_000
				body := []byte(`{"input":"` + strings.Repeat("x", size) + `"}`)
				if name == "malformed" {
					body = body[:size]
				}
				how := make(chan string, 2*n)
				deliver := func(place uint64) {
					r.receive(t.Context(), broker.Delivery{Subject: "rondo.start.o.i", Header: header, Body: body,
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
		})
	}
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

// refusing is a broker that refuses all messages for a reason.
type refusing struct {
	Broker
	reason error
	dead   chan broker.Cause
}

func (r refusing) Publish(_ context.Context, all ...events.Wire) error {
	e := &broker.Refused{Messages: all}
	for range all {
		e.Reasons = append(e.Reasons, r.reason)
	}
	return e
}

func (r refusing) StoreDeadLetter(_ context.Context, _ broker.Delivery, why broker.Cause) error {
	r.dead <- why
	return nil
}

// TestAStartOfAScheduleThatIsRefused: what NATS will never store is dead-lettered with the reason,
// and what a setting prevents is redelivered, with one warning a minute.
func TestAStartOfAScheduleThatIsRefused(t *testing.T) {
	for _, x := range []struct {
		reason error
		how    string
	}{
		{errors.New("nats: maximum payload exceeded"), "ack"},
		{fmt.Errorf("%w: no permission", broker.ErrMisconfigured), "nak 1s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			b, background := refusing{reason: x.reason, dead: make(chan broker.Cause, 2)}, newBackground()
			defer background.end()
			l := slog.New(slog.NewTextHandler(&log, nil))
			s := &scheduled{broker: b, prefix: "rondo", background: background, log: l,
				refusals: rate.Sometimes{Interval: outbox.RefusedEvery},
				dead:     &deadLetters{broker: b, background: background, now: time.Now, log: l}}
			how := make(chan string, 2)
			for range 2 {
				s.startEach(broker.Delivery{Subject: "rondo.start.o.i", StoredAt: time.Now(), Hold: settled{how: how}},
					events.Message{Instance: "i", Content: &events.Start{Orchestration: "o"}})
				if got := <-how; got != x.how {
					t.Errorf("%v: %s", x.reason, got)
				}
			}
			synctest.Wait()
			warnings, dead := 2, 2 // one for each dead letter
			if x.how != "ack" {
				warnings, dead = 1, 0
			}
			if n := strings.Count(log.String(), "WARN"); n != warnings || len(b.dead) != dead {
				t.Errorf("%v: %d dead letters, and %d warnings: %s", x.reason, len(b.dead), n, &log)
			}
			if len(b.dead) > 0 {
				if why := <-b.dead; why.Reason != "refused" || why.Detail != x.reason.Error() {
					t.Errorf("%+v", why)
				}
			}
		})
	}
}
