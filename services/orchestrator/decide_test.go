package orchestrator

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// blocking returns an instance that sleeps, and whose deferred call blocks until a channel is
// closed.
func blocking(t *testing.T, unblocked <-chan struct{}) *round.Instance {
	t.Helper()
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
	return live
}

// TestDecidersEndAlthoughDeferredCodeBlocks: a decider waits until rounds may be decided, with an
// instance whose deferred call blocks. It does not wait for that call when the service ends.
func TestDecidersEndAlthoughDeferredCodeBlocks(t *testing.T) {
	unblocked := make(chan struct{})
	defer close(unblocked)
	live := blocking(t, unblocked)
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

// TestTheLoopDoesNotWaitForEachInstance: many instances whose deferred calls block are evicted at
// once. The loop waits for one of them, and later for one again.
func TestTheLoopDoesNotWaitForEachInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unblocked := make(chan struct{})
		defer close(unblocked)
		table := newInstances(instanceLimits{runawayAfter: time.Second}, nil, nil, nil, nil,
			slog.New(slog.DiscardHandler))
		evictMany := func() (took time.Duration) {
			began := time.Now()
			for range 50 {
				table.evict(&entry{id: "i", live: blocking(t, unblocked)})
			}
			return time.Since(began)
		}
		for range 2 {
			if took := evictMany(); took != unwindFor { // on the clock of the bubble
				t.Errorf("the loop waited for %v", took)
			}
			<-time.After(time.Minute)
		}
	})
}
