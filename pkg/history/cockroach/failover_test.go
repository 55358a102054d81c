package cockroach_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// TestConnectionsToAFormerPrimaryAreClosed has a pool of connections on which the server refuses
// writes, as those to a server that became a standby. New connections lead to one that takes them.
func TestConnectionsToAFormerPrimaryAreClosed(t *testing.T) {
	b := newBench(t, cockroach.Options{})
	var name string
	if err := b.direct.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	alter := func(what string) {
		t.Helper()
		statement := "ALTER DATABASE " + pgx.Identifier{name}.Sanitize() + what
		if _, err := b.direct.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	alter(" SET default_transaction_read_only = on")
	address := b.direct.Config().ConnString()
	s := openStore(t, address, cockroach.Options{MaxConns: 1})
	alter(" RESET default_transaction_read_only")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if _, err := s.Commit(ctx, historytest.Batch(t, historytest.NewActor(b.id()).StartAndCall())); err != nil {
		t.Error(err)
	}
}
