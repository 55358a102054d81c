package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// Sweeper publishes what processes that died have promised.
type Sweeper struct {
	Broker Broker
	Store  history.Outbox
	Prefix string
	// After is how old a promise is that its own process should have kept long ago. Hold is how long others leave it alone while it is being kept.
	After, Hold time.Duration
	Log         *slog.Logger
}

const sweepPage = 100

// Sweep publishes what was left, and tells how many promises that were. Several may sweep at once.
func (s *Sweeper) Sweep(ctx context.Context) (swept int, err error) {
	for {
		now := time.Now()
		promises, err := s.Store.TakePromises(ctx, history.Take{Before: now.Add(-s.After), Until: now.Add(s.Hold), Limit: sweepPage})
		if err != nil {
			return swept, fmt.Errorf("sweep the outbox: %w", err)
		}
		n, err := s.keep(ctx, promises)
		swept += n
		if err != nil || len(promises) < sweepPage {
			return swept, err
		}
	}
}

// keep publishes promises and removes them.
func (s *Sweeper) keep(ctx context.Context, promises []history.Promise) (kept int, err error) {
	var messages []events.Wire
	var keys []history.PromiseKey
	var unreadable []error
	for _, p := range promises {
		if p.Err != nil {
			unreadable = append(unreadable, fmt.Errorf("promise %d of shard %d, made at %s: %w", p.Key.ID, p.Key.Shard, p.Key.Made().Format(time.RFC3339), p.Err))
			continue
		}
		messages = append(messages, p.Messages...)
		keys = append(keys, p.Key)
	}
	if len(unreadable) > 0 {
		s.Log.Error("promises cannot be read and stay where they are", "error", errors.Join(unreadable...))
	}
	if len(keys) == 0 {
		return 0, nil
	}
	if err := Send(ctx, s.Broker, s.Prefix, messages, s.Log); err != nil {
		return 0, fmt.Errorf("sweep the outbox: %w", err)
	}
	if err := s.Store.RemovePromises(ctx, keys); err != nil {
		return 0, fmt.Errorf("sweep the outbox: %w", err)
	}
	s.Log.Info("published what another process had promised", "promises", len(keys), "messages", len(messages))
	return len(keys), nil
}
