package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// crowded is a broker that stores no dead letter.
type crowded struct{ err error }

func (c crowded) StoreDeadLetter(context.Context, broker.Delivery, broker.Cause) error { return c.err }

// settled notes how a delivery was settled.
type settled struct {
	broker.Hold
	how chan string
}

func (s settled) Ack()                { s.how <- "ack" }
func (s settled) Nak(d time.Duration) { s.how <- fmt.Sprint("nak ", d) }

// A message whose dead letter does not fit into a full broker is dropped after a while, because it
// keeps room itself. One whose dead letter fails for another reason stays.
func TestDeadLettersWithoutRoomAreDropped(t *testing.T) {
	full := fmt.Errorf("publish: %w", errors.Join(broker.ErrFull, errors.New("maximum bytes exceeded")))
	for _, x := range []struct {
		name string
		age  time.Duration
		err  error
		want string
	}{
		{"full", keepUnstored - time.Second, full, "nak 1s"},
		{"full for long", keepUnstored + time.Second, full, "ack"},
		{"away for long", 24 * time.Hour, context.DeadlineExceeded, "nak 1s"},
		{"stored", 24 * time.Hour, nil, "ack"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				background := newBackground()
				defer background.end()
				l := &deadLetters{broker: crowded{x.err}, background: background, now: time.Now,
					log: slog.New(slog.DiscardHandler)}
				how := make(chan string, 1)
				l.malformed(broker.Delivery{StoredAt: time.Now().Add(-x.age), Hold: settled{how: how}}, "it is no JSON")
				if got := <-how; got != x.want {
					t.Errorf("%s; want %s", got, x.want)
				}
			})
		})
	}
}
