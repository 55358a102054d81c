package cockroach_test

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// TestOpenedToBeLookedAt opens a database read-only: reads succeed, and the database refuses the
// other operations.
func TestOpenedToBeLookedAt(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	address := pgtest.Database(t)
	if s, err := cockroach.Open(t.Context(), address, cockroach.Options{ReadOnly: true, Log: silence}); err == nil {
		s.Close()
		t.Fatal("tables that are not there were good enough, or were made")
	}
	writer := database(t, address).Open(t, historytest.Options{})
	commitAll(t, writer, historytest.NewActor("a").Start())

	conn := connect(t, address)
	role, limited := asRole(t, conn, address, "secret")
	for _, table := range strings.Fields("schema instances history executions values outbox marks") {
		// attributes, too, for a filter by attributes
		execute(t, conn, "GRANT SELECT ON rondo_"+table+" TO "+role)
	}
	s, err := cockroach.Open(t.Context(), limited, cockroach.Options{ReadOnly: true, Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := check.System(t.Context(), s, check.Options{}); err != nil {
		t.Errorf("a role that may only read cannot check: %v", err)
	}
	if list, err := s.List(t.Context(), history.Filter{}, history.Page{}); err != nil || len(list.Instances) != 1 {
		t.Errorf("%d instances, %v", len(list.Instances), err)
	}
	if _, err := s.Delete(t.Context(), []string{"a"},
		history.Deletion{Force: true}); history.ClassOf(err) != history.Permanent {
		t.Errorf("deleting gives %v (%v)", err, history.ClassOf(err))
	}
	if _, err := s.Commit(t.Context(),
		historytest.Batch(t, historytest.NewActor("b").Start())); history.ClassOf(err) != history.Permanent {
		t.Errorf("a commit gives %v (%v)", err, history.ClassOf(err))
	}
	if n, err := writer.Count(t.Context(), history.Filter{}, 0); err != nil || n != 1 {
		t.Errorf("%d instances afterwards, %v", n, err)
	}
}
