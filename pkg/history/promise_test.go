package history_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// TestPromiseIDsGrow shows that later promises have larger ids, and that these say when they were
// made, for as long as anybody will keep a database.
func TestPromiseIDsGrow(t *testing.T) {
	last := int64(0)
	for year := 2026; year < 2090; year++ {
		at := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
		id := history.PromiseID(at, 0)
		if made := (history.PromiseKey{ID: id}).Made(); id <= last || !made.Equal(at) {
			t.Fatalf("%d: id %d after %d, made %v", year, id, last, made)
		}
		last = id
	}
}
