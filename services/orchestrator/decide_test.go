package orchestrator

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestDecidersEndAlthoughDeferredCodeBlocks: a decider waits until rounds may be decided, with an
// instance whose deferred call blocks. It does not wait for that call when the service ends.
func TestDecidersEndAlthoughDeferredCodeBlocks(t *testing.T) {
	unblocked := make(chan struct{})
	defer close(unblocked)
	code, err := orchestration.NewRegistry(orchestration.Define[int, int]("o").Bind(
		func(ctx *orchestration.Context, n int) (int, error) {
			defer func() { <-unblocked }()
			return n, ctx.Sleep(time.Hour)
		}))
	if err != nil {
		t.Fatal(err)
	}
	live := round.New(&round.Config{Code: code}, round.Known{Instance: "i"})
	live.Decide([]round.Delivery{{Message: events.Message{ID: "s", Instance: "i",
		Content: &events.Start{Orchestration: "o", Input: codec.Payload("1")}}}}, time.Now())
	if !live.Hydrated() {
		t.Fatal("the code does not wait")
	}
	waits := make(chan struct{})
	d := newDeciders(deciderConfig{concurrency: 1, runawayAfter: time.Hour,
		cpu: func() (time.Duration, bool) { return 0, true },
		now: func(ctx context.Context) (time.Time, error) {
			close(waits)
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		}}, nil, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx, nil)
	}()
	d.jobs <- &entry{id: "i", live: live}
	<-waits
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Minute):
		t.Fatal("the deciders do not end")
	}
}
