package history_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// TestOutboxIDsGrow shows that later outbox entries have larger ids, and that these contain the
// time, for longer than any database is kept.
func TestOutboxIDsGrow(t *testing.T) {
	last := int64(0)
	for year := 2026; year < 2090; year++ {
		at := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
		id := history.OutboxID(at, 0)
		if made := (history.OutboxKey{ID: id}).Made(); id <= last || !made.Equal(at) {
			t.Fatalf("%d: id %d after %d, made %v", year, id, last, made)
		}
		last = id
	}
}
