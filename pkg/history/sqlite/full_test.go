package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// limit bounds the pages of the database beyond those that it has, for the connection that writes.
func (b *bench) limit(more int) {
	b.Helper()
	var pages int
	if err := b.direct.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		b.Fatal(err)
	}
	if err := b.driver.onWriter(fmt.Sprintf("PRAGMA max_page_count = %d", pages+more)); err != nil {
		b.Fatal(err)
	}
}

// TestAFullDatabase commits until the database may not grow further. The batch that fails leaves
// nothing behind, the stored rows can be read and removed, and when there is room again, the store
// takes the same batch.
func TestAFullDatabase(t *testing.T) {
	eachPlace(t, func(b *bench) {
		ctx := b.Context()
		going := historytest.NewActor("going")
		kept := commit(b, b.store, going.StartAndCall()).Entries
		b.limit(100)
		large := `"` + strings.Repeat("v", 30_000) + `"`
		var (
			turns  []*round.Turn
			before string
			full   error
			taken  int
		)
		for full == nil && taken < 100 {
			before = b.contents()
			fresh := historytest.NewActor(fmt.Sprintf("fresh-%03d", taken))
			turns = []*round.Turn{going.Set("k", large), historytest.Sends(fresh.StartAndCall(), "m", "going")}
			var r history.Result
			if r, full = b.store.Commit(ctx, historytest.Batch(b, turns...)); full == nil {
				taken++
				kept = append(kept, r.Entries...)
			}
		}
		b.Logf("full after %d batches: %v", taken, full)
		check := func(err error) {
			b.Helper()
			if err == nil || history.ClassOf(err) != history.Retry ||
				!strings.Contains(err.Error(), "no space left on the disk; make room") {
				b.Fatalf("%v: %v", history.ClassOf(err), err)
			}
			if got := b.contents(); got != before {
				b.Fatalf("a batch that failed has left something behind:\n%s\nbefore\n%s", got, before)
			}
		}
		check(full)
		_, again := b.store.Commit(ctx, historytest.Batch(b, turns...))
		check(again)
		if known, err := b.store.Load(ctx, []string{"going"}, nil); err != nil || known[0].Unreadable != nil ||
			len(known[0].History) != 2+taken {
			b.Fatalf("%d events, want %d: %v", len(known[0].History), 2+taken, errors.Join(err, known[0].Unreadable))
		}
		if err := errors.Join(b.store.RemoveOutbox(ctx, kept), b.none("rondo_outbox")); err != nil {
			b.Fatalf("removing from a full database: %v", err)
		}
		if r, err := b.store.Commit(ctx, historytest.Batch(b, going.Clone().Note())); err != nil ||
			r.Outcomes[0].Status != history.Conflict {
			b.Fatalf("a turn behind one that failed: %v, %v", verdicts(r), err)
		}

		b.limit(10_000)
		commit(b, b.store, turns...)
		commit(b, b.store, going.Note())
		x, err := history.Export(ctx, b.clear, "going", 1)
		if err != nil || len(x.Events) != len(going.Events[1]) {
			b.Fatalf("%d events, want %d: %v", len(x.Events), len(going.Events[1]), err)
		}
		if n := count(b, b.clear); n != int64(taken+2) {
			b.Fatalf("%d instances after %d batches", n, taken+1)
		}
		if b.clear != b.store {
			integrity(b.T, b.path)
		}
	})
}
