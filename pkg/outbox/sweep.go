package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// SweepStore is what sweeping needs of the store.
type SweepStore interface {
	history.Outbox
	history.Rounds
}

// Sweeper publishes the outbox entries of processes that died.
type Sweeper struct {
	Broker Broker
	Store  SweepStore
	Prefix string
	// After is the age from which on the process of an outbox entry should have published it. Hold
	// is the lease, for which other sweepers leave it alone.
	After, Hold time.Duration
	Clock       Clock // nil: that of this process
	Log         *slog.Logger
	Watcher     Watcher // nil: none
}

// Clock returns the time once the clock of this process is right, or an error when the context ends
// first. Leases with a wrong time would hide entries and instances from all sweeps until then.
type Clock func(ctx context.Context) (time.Time, error)

// Now reads the clock.
func (c Clock) Now(ctx context.Context) (time.Time, error) {
	if c == nil {
		return time.Now(), nil
	}
	return c(ctx)
}

// sweepPage bounds the outbox entries of one lease, sweepBytes their size together.
const (
	sweepPage  = 100
	sweepBytes = 16 << 20
)

// Sweep publishes old outbox entries, and returns their number. Several sweepers may run at once.
func (s *Sweeper) Sweep(ctx context.Context) (swept int, err error) {
	for {
		now, err := s.Clock.Now(ctx)
		if err != nil {
			return swept, fmt.Errorf("sweep the outbox: %w", err)
		}
		entries, err := s.Store.LeaseOutbox(ctx,
			history.Lease{Before: now.Add(-s.After), Until: now.Add(s.Hold), Limit: sweepPage, Bytes: sweepBytes})
		if err != nil {
			return swept, fmt.Errorf("sweep the outbox: %w", err)
		}
		n, err := s.keep(ctx, entries)
		swept += n
		if err != nil || len(entries) == 0 { // fewer than a page may be as many as fit
			return swept, err
		}
	}
}

// keep publishes outbox entries and removes them, except those with messages that the broker
// refuses because of a setting.
func (s *Sweeper) keep(ctx context.Context, entries []history.OutboxEntry) (kept int, err error) {
	var messages []events.Wire
	readable := entries[:0:0]
	var unreadable []error
	for _, p := range entries {
		if p.Err != nil {
			unreadable = append(unreadable, fmt.Errorf("outbox entry %d of shard %d, made at %s: %w", p.Key.ID,
				p.Key.Shard,
				p.Key.Made().Format(time.RFC3339), p.Err))
			continue
		}
		messages = append(messages, p.Messages...)
		readable = append(readable, p)
	}
	if len(unreadable) > 0 {
		s.Log.Error("outbox entries cannot be read and stay where they are", "error", errors.Join(unreadable...))
	}
	if len(readable) == 0 {
		return 0, nil
	}
	messages, err = s.wanted(ctx, messages)
	if err != nil {
		return 0, fmt.Errorf("sweep the outbox: %w", err)
	}
	published := len(messages)
	err = Send(ctx, s.Broker, s.Prefix, messages, s.Log, s.Watcher)
	if waits := new(broker.Refused); errors.As(err, &waits) {
		LogRefused(s.Log, waits)
		published -= len(waits.Messages)
	} else if err != nil {
		return 0, fmt.Errorf("sweep the outbox: %w", err)
	}
	var keys []history.OutboxKey
	for _, p := range readable {
		if unsent(err, p.Messages) == nil {
			keys = append(keys, p.Key)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	if err := s.Store.RemoveOutbox(ctx, keys); err != nil {
		return 0, fmt.Errorf("sweep the outbox: %w", err)
	}
	orNone(s.Watcher).Swept(published)
	s.Log.Info("published entries that were left in the outbox", "entries", len(keys), "messages", published)
	return len(keys), nil
}

// wanted leaves out work that need not be done again: it was published before the process died, and
// is answered or still in the broker. Everything else may be published twice, but work would be
// executed twice.
func (s *Sweeper) wanted(ctx context.Context, messages []events.Wire) ([]events.Wire, error) {
	work := make(map[int]events.Message)
	var ids []string
	for i, w := range messages {
		if w.Purge || !strings.HasPrefix(w.Subject, subjectsOf(s.Prefix, events.VerbTask)) {
			continue
		}
		if m, err := events.Decode(s.Prefix, w.Subject, w.Header, w.Body, ""); err == nil {
			work[i] = m
			ids = append(ids, m.Instance)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	open := make(map[string]bool) // message ids of work that is waited for
	running := func(_ string, row round.Row) bool { return round.CanRead(row) && !row.Status.Ended() }
	err := inPortions(ctx, s.Store, ids, running, func(known []round.Known) error {
		for _, k := range known {
			outstanding, err := round.Outstanding(k)
			if k.Row.Status.Ended() || k.Row.Execution == 0 {
				continue
			}
			for _, m := range outstanding {
				open[m.ID] = true
			}
			if err != nil || k.Unreadable != nil || !round.CanRead(k.Row) {
				open[k.Instance] = true // the state is unknown: better twice than never
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []events.Wire
	for i, w := range messages {
		m, isWork := work[i]
		if isWork && !open[m.ID] && !open[m.Instance] {
			continue
		}
		if isWork {
			if has, err := s.Broker.Has(ctx, w); err != nil {
				return nil, err
			} else if has {
				continue
			}
		}
		out = append(out, w)
	}
	return out, nil
}
