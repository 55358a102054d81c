package worker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestStuckListIsExact lets functions return at the moment at which the worker gives them up. None
// of them may stay in the list of stuck functions.
func TestStuckListIsExact(t *testing.T) {
	t.Parallel()
	h := newHeld()
	x := &executor{held: h, settler: &settler{held: h, lasted: new(lasted),
		notes: &notes{}}}
	for range 20_000 {
		a := newAttempt(&queue{}, broker.Delivery{Hold: nothing{}}, slog.New(slog.DiscardHandler))
		a.decoded(events.Message{Instance: "i"}, &events.Task{Activity: "a"})
		h.add(a)
		_, a.call.cancel = context.WithCancelCause(context.Background())
		a.life.move(onCall)
		a.life.cause = stopping
		var both sync.WaitGroup
		both.Go(func() { x.giveUp(a) })
		both.Go(func() { x.end(a, nil, stopping) })
		both.Wait()
		if n := h.countStuck(); n != 0 {
			t.Fatalf("%d functions are listed as stuck, and have returned", n)
		}
	}
}

// nothing is a hold without an effect.
type nothing struct{}

func (nothing) Ack()               {}
func (nothing) Nak(time.Duration)  {}
func (nothing) InProgress()        {}
func (nothing) AckSubject() string { return "" }
