package cockroach

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestHistoriesInAnyOrder has PostgreSQL read the rows of histories from the last to the first.
// CockroachDB may return them in any order, because it ignores the ORDER BY of a subquery.
func TestHistoriesInAnyOrder(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	s, err := Open(t.Context(), Migrated.Database(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, b := historytest.NewActor("a"), historytest.NewActor("b")
	for _, turns := range [][]*round.Turn{{a.Start(), b.Start()}, {a.Note(), b.Note()}, {a.Note()}} {
		if _, err := s.Commit(t.Context(), historytest.Batch(t, turns...)); err != nil {
			t.Fatal(err)
		}
	}
	ordered := s.loader.selectEvents
	s.loader.selectEvents = strings.Replace(ordered, "ORDER BY event", "ORDER BY event DESC", 1)
	if s.loader.selectEvents == ordered {
		t.Fatal("the statement has another order")
	}
	known, err := s.Load(t.Context(), []string{"a", "b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if k.Unreadable != nil || int64(len(k.History)) != k.Row.LastEvent {
			t.Errorf("instance %q: %d of %d events, %v", k.Instance, len(k.History), k.Row.LastEvent, k.Unreadable)
		}
	}
}
