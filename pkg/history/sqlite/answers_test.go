package sqlite_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// The answer of a deleted child goes to the namespace of its system.
func TestAnswerOfADeletedChildHasThePrefix(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	parent, child := historytest.NewActor("parent"), historytest.NewActor("child")
	commit(t, s, parent.Start())
	commit(t, s, child.Start(historytest.WithParent(parent)))
	how := history.Deletion{Force: true, Children: true, Prefix: "shop"}
	if _, err := s.Delete(t.Context(), []string{"child"}, how); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	list, err := s.LeaseOutbox(t.Context(),
		history.Lease{Before: now.Add(time.Hour), Until: now.Add(2 * time.Hour), Limit: 10})
	if err != nil || len(list) != 1 || len(list[0].Messages) != 1 ||
		!strings.HasPrefix(list[0].Messages[0].Subject, "shop.child-ended.1-") {
		t.Errorf("the outbox has %+v, %v", list, err)
	}
}
