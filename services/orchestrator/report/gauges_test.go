package report

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// outbox is a database with an outbox, part of which no sweep looks at any more.
type outbox struct {
	below    time.Time // the entry in that part; zero if there is none
	above    time.Time // the oldest of the others
	hangs    bool      // a search does not end by itself
	searched int
}

func (o *outbox) CountOutbox(context.Context, int) (int, error)                   { return 1, nil }
func (o *outbox) OldestOutbox(context.Context) (time.Time, error)                 { return o.above, nil }
func (o *outbox) Count(context.Context, history.Filter, int64) (n int64, _ error) { return n, nil }

func (o *outbox) OldOutbox(ctx context.Context, before time.Time, _ int) (old []history.OutboxEntry, err error) {
	o.searched++
	if o.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, at := range []time.Time{o.below, o.above} {
		if !at.IsZero() && at.Before(before) {
			return append(old, history.OutboxEntry{Key: history.OutboxKey{ID: history.OutboxID(at, 0)}}), nil
		}
	}
	return nil, nil
}

// TestTheWholeOutboxIsSearchedOnceAnHour looks at the database every 15 seconds. A search of the
// whole outbox follows after an hour, finds an entry that no sweep finds, and is repeated until
// that entry is gone. A search that takes too long spoils nothing.
func TestTheWholeOutboxIsSearchedOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &outbox{}
		k := &Gauges{Store: db, Logger: slog.New(slog.DiscardHandler)}
		look := func(oldest time.Time, searched int) {
			t.Helper()
			db.searched = 0
			var s sight
			k.lookAtStore(t.Context(), &s)
			if !s.hasOutbox || !s.oldest.Equal(oldest) || db.searched != searched {
				t.Errorf("the oldest entry is of %v after %d searches, want %v after %d (%t)", s.oldest, db.searched,
					oldest, searched, s.hasOutbox)
			}
			<-time.After(15 * time.Second)
		}
		look(time.Time{}, 1)
		db.below = time.Now().Add(-2 * time.Hour).Truncate(time.Microsecond)
		for began := time.Now(); time.Since(began) < searchEvery-time.Minute; {
			db.above = time.Now().Add(-time.Second).Truncate(time.Microsecond)
			look(db.above, 0)
		}
		<-time.After(time.Minute)
		look(db.below, 1)
		look(db.below, 1)
		db.below = time.Time{}
		look(db.above, 1)
		look(db.above, 0)
		<-time.After(searchEvery)
		db.hangs = true
		look(db.above, 1)
		look(db.above, 0)
	})
}
