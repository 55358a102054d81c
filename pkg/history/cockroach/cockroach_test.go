package cockroach_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// needPostgres skips a test where PostgreSQL is not installed; `make databases` says so, too.
func needPostgres(tb testing.TB) {
	tb.Helper()
	if _, err := pgtest.Found(); err != nil {
		tb.Skip(err)
	}
}

func TestConformanceOnPostgreSQL(t *testing.T) {
	needPostgres(t)
	historytest.Run(t, func(tb testing.TB) *historytest.Database { return database(tb, pgtest.Database(tb)) })
}

// database is the database at an address for the suite.
func database(tb testing.TB, address string) *historytest.Database {
	return &historytest.Database{
		Shared: true,
		Marks:  true,
		Shard:  history.ShardOf,
		Open: func(tb testing.TB, o historytest.Options) history.Store {
			s, err := cockroach.Open(tb.Context(), address, cockroach.Options{Now: o.Now})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { s.Close() })
			return s
		},
		SecondsAfter: func(from time.Time, column string) string {
			return fmt.Sprintf("TIMESTAMPTZ '%s' + %s * INTERVAL '1 second'", from.Format(time.RFC3339Nano), column)
		},
		Deadlocks: func(tb testing.TB) (n int64) {
			conn, err := pgx.Connect(tb.Context(), address)
			if err != nil {
				tb.Fatal(err)
			}
			defer conn.Close(tb.Context())
			if err := conn.QueryRow(tb.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
				tb.Fatal(err)
			}
			return n
		},
		Exec: func(tb testing.TB, statement string, args ...any) {
			conn, err := pgx.Connect(tb.Context(), address)
			if err != nil {
				tb.Fatal(err)
			}
			defer conn.Close(tb.Context())
			if _, err := conn.Exec(tb.Context(), statement, args...); err != nil {
				tb.Fatalf("%s: %v", statement, err)
			}
		},
	}
}
