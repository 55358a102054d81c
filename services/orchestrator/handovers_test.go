package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
			h := &handovers{broker: slowHandovers{answers: answers}, background: b, log: slog.New(slog.DiscardHandler),
				waiting: make(map[string][]handover)}
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
