package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// slowHandovers is a broker through which other orchestrators answer when the test lets them.
type slowHandovers struct {
	broker.Handovers
	answers chan error
}

func (s slowHandovers) Handover(context.Context, string, broker.Delivery) error { return <-s.answers }

// forwardedHold passes on nacks of a message that is forwarded.
type forwardedHold struct {
	broker.Hold
	nacked chan<- time.Duration
}

func (h forwardedHold) Nak(after time.Duration) { h.nacked <- after }

// TestForwardedMessagesAreBounded: while another orchestrator does not answer, the messages for it
// neither fill the memory nor begin goroutines without bound. When it has answered, there is room.
func TestForwardedMessagesAreBounded(t *testing.T) {
	const more = 10
	for name, test := range map[string]struct {
		size, instances, want int
	}{
		"many instances":         {0, maxPassing + more, maxPassing},
		"many of one instance":   {0, 1, maxPassing},
		"large":                  {1 << 20, maxPassing, maxPassingBytes >> 20},
		"one beyond all bounds":  {maxPassingBytes + 1, 1, 1},
		"large, of one instance": {1 << 20, 1, maxPassingBytes >> 20},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackground()
			answers, nacked := make(chan error), make(chan time.Duration, maxPassing+more)
			h := &handovers{broker: slowHandovers{answers: answers}, returned: newReturned(), background: b,
				log: slog.New(slog.DiscardHandler), waiting: make(map[string][]handover)}
			body := make([]byte, test.size)
			send := func(n int) bool {
				return h.handOver("other", &item{message: events.Message{Instance: fmt.Sprint(n % test.instances)},
					delivery: broker.Delivery{Body: body, Hold: forwardedHold{nacked: nacked}}}, time.Second)
			}
			taken := 0
			for n := range maxPassing + more {
				if send(n) {
					taken++
				}
			}
			if taken != test.want {
				t.Errorf("%d messages wait; want %d", taken, test.want)
			}
			go func() {
				for range taken / 2 {
					answers <- nil
				}
				close(answers) // the rest succeeds, too
			}()
			b.running.Wait()
			if h.n != 0 || h.bytes != 0 || len(h.waiting) > 0 || len(nacked) > 0 {
				t.Errorf("%d messages with %d bytes are left, and %d are nacked", h.n, h.bytes, len(nacked))
			}

			refused := slowHandovers{answers: make(chan error, 1)}
			refused.answers <- errors.New("refused")
			close(refused.answers)
			h.broker = refused
			if !send(0) {
				t.Error("there is no room after all were forwarded")
			}
			b.running.Wait()
			if h.n != 0 || h.bytes != 0 || len(nacked) != 1 {
				t.Errorf("after a refusal, %d messages with %d bytes are left, and %d are nacked", h.n, h.bytes,
					len(nacked))
			}
		})
	}
}

// TestAForwardedMessageKeepsItsCount: a quarantined message is forwarded because this process lacks
// its code. The attempts of the other process, which the message may have killed, stay counted, and
// the message is forwarded when the count is stored. An attempt that the other process refuses is
// no redelivery that counts.
func TestAForwardedMessageKeepsItsCount(t *testing.T) {
	kv := &countingKV{value: "3", stored: make(chan struct{})}
	b, returned := newBackground(), newReturned()
	q := newQuarantine(kv, time.Hour, texts{}, b, slog.New(slog.DiscardHandler))
	answers, nacked := make(chan error), make(chan time.Duration, 1)
	h := &handovers{broker: slowHandovers{answers: answers}, returned: returned, background: b,
		log: slog.New(slog.DiscardHandler), waiting: make(map[string][]handover)}
	i := &item{quarantined: true, delivery: broker.Delivery{Sequence: 1, StoredAt: time.Unix(1, 0),
		Hold: forwardedHold{nacked: nacked}}}
	q.add(i)
	ctx, cancel := context.WithCancel(t.Context())
	tried := make(chan int, 1)
	var runs sync.WaitGroup
	runs.Go(func() {
		q.run(ctx, func(_ context.Context, i *item) *item { return i },
			func(_ context.Context, _ *item, n int) { tried <- n })
	})
	if n := <-tried; n != 4 {
		t.Errorf("it is attempt %d, want 4", n)
	}
	i.toOther()
	q.settled(i)
	h.handOver("other", i, time.Second)
	select {
	case answers <- nil:
		t.Error("it is forwarded before its count is stored")
	case kv.stored <- struct{}{}:
	}
	answers <- errors.New("refused")
	<-nacked
	cancel()
	runs.Wait()
	b.running.Wait()
	if kv.value != "3" {
		t.Errorf("the count is %s after it was forwarded, want 3", kv.value)
	}
	if len(returned.known) != 1 {
		t.Error("that it was nacked is not known")
	}
}

// countingKV keeps one value. Each write after the first waits until it may be stored.
type countingKV struct {
	broker.KV
	value  string
	begun  bool
	stored chan struct{}
}

func (kv *countingKV) Get(context.Context, string) ([]byte, error) { return []byte(kv.value), nil }

func (kv *countingKV) Put(_ context.Context, _ string, value []byte, _ time.Duration) error {
	if kv.begun {
		<-kv.stored
	}
	kv.begun, kv.value = true, string(value)
	return nil
}

func (kv *countingKV) Delete(context.Context, string) error {
	kv.value = "deleted"
	return nil
}

// passedOn is a broker that passes handovers to the receiver of another orchestrator.
type passedOn struct {
	broker.Handovers
	to *receiver
}

func (p passedOn) Handover(ctx context.Context, _ string, d broker.Delivery) error {
	p.to.receive(ctx, d, true)
	return nil
}

// TestAForwardedMessageIsNoPoisonForItsNacks: an orchestrator has nacked a message often, since no
// other one had its code. When one has it, the message is no poison for that one.
func TestAForwardedMessageIsNoPoisonForItsNacks(t *testing.T) {
	b, log := newBackground(), slog.New(slog.DiscardHandler)
	other := &receiver{prefix: "rondo", ackWait: time.Second, quarantineAfter: 3, arrivals: newArrivals(),
		returned: newReturned(), quarantine: newQuarantine(nil, time.Hour, texts{}, b, log)}
	h := &handovers{broker: passedOn{to: other}, returned: newReturned(), background: b, log: log,
		waiting: make(map[string][]handover)}
	w, err := events.Encode("rondo", events.Message{ID: "e", Instance: "i", Content: &events.EventRaised{Name: "e"}})
	if err != nil {
		t.Fatal(err)
	}
	d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, Sequence: 1, StoredAt: time.Unix(1, 0),
		NumDelivered: 6}
	for nacked, poison := range map[int]bool{5: false, 3: false, 2: true} {
		h.returned.forget(d)
		for range nacked {
			h.returned.note(d, time.Second)
		}
		h.handOver("other", &item{message: events.Message{Instance: "i"}, delivery: d}, time.Second)
		b.running.Wait()
		if i := <-other.arrivals.in; i.quarantined != poison {
			t.Errorf("%d of 6 deliveries nacked: quarantined: %t", nacked, i.quarantined)
		}
	}
}

// begunHandovers is slowHandovers that tells when a handover begins.
type begunHandovers struct {
	slowHandovers
	begun chan struct{}
}

func (b begunHandovers) Handover(ctx context.Context, to string, d broker.Delivery) error {
	b.begun <- struct{}{}
	return b.slowHandovers.Handover(ctx, to, d)
}

// TestMessagesBehindARefusedOneAreNacked: an orchestrator refuses a message after another one has
// arrived for the same instance. That one is nacked, too, so that they keep their order.
func TestMessagesBehindARefusedOneAreNacked(t *testing.T) {
	b := newBackground()
	other := begunHandovers{slowHandovers{answers: make(chan error, 2)}, make(chan struct{}, 2)}
	nacked := make(chan time.Duration, 2)
	h := &handovers{broker: other, returned: newReturned(), background: b, log: slog.New(slog.DiscardHandler),
		waiting: make(map[string][]handover)}
	send := func(place uint64) {
		h.handOver("other", &item{message: events.Message{Instance: "i"}, delivery: broker.Delivery{Sequence: place,
			Hold: forwardedHold{nacked: nacked}}}, time.Second)
	}
	send(1)
	<-other.begun
	send(2)
	other.answers <- errors.New("refused")
	other.answers <- nil // no message asks for it
	b.running.Wait()
	if len(nacked) != 2 || h.n != 0 {
		t.Errorf("%d of 2 messages are nacked, %d are still to be forwarded", len(nacked), h.n)
	}
}

// TestANackedMessageKeepsItsCount: a quarantined message has its turn, and is nacked untried, as
// when its partition moves. The attempts before stay counted.
func TestANackedMessageKeepsItsCount(t *testing.T) {
	kv := &countingKV{value: "3", stored: make(chan struct{})}
	close(kv.stored)
	b, returned, log := newBackground(), newReturned(), slog.New(slog.DiscardHandler)
	q := newQuarantine(kv, time.Hour, texts{}, b, log)
	s := &settler{held: newHeldMessages(10, 1<<20), quarantine: q, returned: returned, log: log}
	nacked := make(chan time.Duration, 1)
	i := &item{quarantined: true, delivery: broker.Delivery{Sequence: 1, StoredAt: time.Unix(1, 0),
		Hold: forwardedHold{nacked: nacked}}}
	q.add(i)
	ctx, cancel := context.WithCancel(t.Context())
	tried := make(chan int, 1)
	var runs sync.WaitGroup
	runs.Go(func() {
		q.run(ctx, func(_ context.Context, i *item) *item { return i },
			func(_ context.Context, _ *item, n int) { tried <- n })
	})
	<-tried
	s.nack(i, time.Second)
	<-nacked
	cancel()
	runs.Wait()
	b.running.Wait()
	if kv.value != "3" {
		t.Errorf("the count is %s after it was nacked, want 3", kv.value)
	}
}
