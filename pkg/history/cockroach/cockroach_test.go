package cockroach_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestConformanceOnPostgreSQL(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	historytest.Run(t, func(tb testing.TB) *historytest.Database { return database(tb, pgtest.Database(tb)) })
}

// silence is for tests that would say a hundred times that tables are made.
var silence = slog.New(slog.DiscardHandler)

// database is the database at an address for the suite.
func database(tb testing.TB, address string) *historytest.Database {
	return &historytest.Database{
		Shared: true,
		Marks:  true,
		Shard:  history.ShardOf,
		Open: func(tb testing.TB, o historytest.Options) history.Store {
			s, err := cockroach.Open(tb.Context(), address,
				cockroach.Options{Now: o.Now, Observer: o.Observer, Log: silence})
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
			if err := conn.QueryRow(tb.Context(),
				"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
				tb.Fatal(err)
			}
			return n
		},
		Hold: func(tb testing.TB, statement string, args ...any) (release func()) {
			conn, err := pgx.Connect(tb.Context(), address)
			if err != nil {
				tb.Fatal(err)
			}
			if _, err := conn.Exec(tb.Context(), "BEGIN"); err != nil {
				tb.Fatal(err)
			}
			if _, err := conn.Exec(tb.Context(), statement, args...); err != nil {
				tb.Fatalf("%s: %v", statement, err)
			}
			return func() {
				defer conn.Close(context.Background())
				if _, err := conn.Exec(context.Background(), "ROLLBACK"); err != nil {
					tb.Error(err)
				}
			}
		},
		Exec: func(tb testing.TB, statement string, args ...any) {
			conn, err := pgx.Connect(tb.Context(), address)
			if err != nil {
				tb.Fatal(err)
			}
			defer conn.Close(tb.Context())
			// Without parameters, pgx sends the text as it is, with all its statements. CockroachDB
			// may ask to try again.
			err = crdb.Execute(func() error {
				_, err := conn.Exec(tb.Context(), statement, args...)
				return err
			})
			if err != nil {
				tb.Fatalf("%s: %v", statement, err)
			}
		},
	}
}

// commitAll commits turns, all of which must be taken.
func commitAll(tb testing.TB, s history.Store, turns ...*round.Turn) history.Result {
	tb.Helper()
	r, err := s.Commit(tb.Context(), historytest.Batch(tb, turns...))
	if err != nil {
		tb.Error(err)
	}
	for i, o := range r.Outcomes {
		if o.Status != history.Committed {
			tb.Errorf("the turn of %q: %v (%+v) %v", turns[i].Instance, o.Status, o.Actual, o.Err)
		}
	}
	return r
}
