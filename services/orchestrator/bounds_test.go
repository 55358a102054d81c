package orchestrator

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestBoundsCountHeaders: a message may have large headers, or many, and hardly a body. The bounds
// in bytes of the messages in memory count them, and a settled message leaves nothing behind.
func TestBoundsCountHeaders(t *testing.T) {
	const large = 1 << 19
	many := make(events.Header)
	for n := range large / 32 {
		many[fmt.Sprint(n)] = []string{""}
	}
	for name, header := range map[string]events.Header{
		"large": {events.HeaderAttributes: {strings.Repeat("x", large)}},
		"many":  many,
	} {
		t.Run(name, func(t *testing.T) {
			d := broker.Delivery{Subject: "rondo.start.o.i", Header: header, Hold: noHold{}}

			held, all := newHeldMessages(1000, 10*large), []*item{}
			for !held.full() {
				d.Sequence++
				i := &item{message: events.Message{Instance: "i"}, delivery: d}
				held.add(i)
				held.setAside(i, d.Sequence%2 == 0)
				if all = append(all, i); d.Sequence > 20 {
					t.Errorf("the loop holds more than %d messages", len(all)-1)
					break
				}
			}
			for _, i := range all {
				held.remove(i)
			}
			if held.bytes != 0 || held.asideBytes != 0 {
				t.Errorf("%d bytes are left, %d of them aside", held.bytes, held.asideBytes)
			}

			var p passing
			taken := fill(func() bool {
				_, ok := p.take(d)
				return ok
			})
			if taken > maxPassingBytes/large {
				t.Errorf("%d messages are passed on at once", taken)
			}

			b, answers := newBackground(), make(chan error)
			h := &handovers{broker: slowHandovers{answers: answers}, returned: newReturned(), background: b,
				log: slog.New(slog.DiscardHandler), waiting: make(map[string][]handover)}
			taken = fill(func() bool {
				return h.handOver("other", &item{message: events.Message{Instance: "i"}, delivery: d}, time.Second)
			})
			if taken > maxPassingBytes/large {
				t.Errorf("%d messages are forwarded at once", taken)
			}
			close(answers) // all are accepted
			b.running.Wait()
			if h.n != 0 || h.bytes != 0 {
				t.Errorf("%d forwarded messages of %d bytes are left", h.n, h.bytes)
			}
		})
	}
}

// fill counts the messages that are taken until one is refused, or maxPassing are.
func fill(take func() bool) (taken int) {
	for taken < maxPassing && take() {
		taken++
	}
	return taken
}
