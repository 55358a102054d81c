package cockroach_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
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
	historytest.Run(t, func(tb testing.TB) *historytest.Database {
		return database(tb, cockroach.Migrated.Database(tb))
	})
}

// silence is for tests that would say a hundred times that tables are made.
var silence = slog.New(slog.DiscardHandler)

// opener gives the function that opens the stores of a suite: when time is short, on connections
// that are used for one after the other.
func opener(tb testing.TB, address string) func(tb testing.TB, o historytest.Options) history.Store {
	open := func(tb testing.TB, options cockroach.Options) (*cockroach.Store, error) {
		s, err := cockroach.Open(tb.Context(), address, options)
		if err == nil {
			tb.Cleanup(func() { s.Close() })
		}
		return s, err
	}
	if testing.Short() {
		connections := &cockroach.Reused{Address: address}
		tb.Cleanup(connections.Close)
		open = connections.Open
	}
	return func(tb testing.TB, o historytest.Options) history.Store {
		s, err := open(tb, cockroach.Options{Now: o.Now, Observer: o.Observer, Log: silence})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}
}

// database is the database at an address for the suite.
func database(tb testing.TB, address string) *historytest.Database {
	behind := behindTheBack(tb, address)
	return &historytest.Database{
		Shared: true,
		Marks:  true,
		Shard:  history.ShardOf,
		Open:   opener(tb, address),
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
			// Without parameters, pgx sends the text as it is, with all its statements. CockroachDB
			// may ask to try again.
			behind(tb, func(conn *pgx.Conn) {
				err := crdb.Execute(func() error {
					_, err := conn.Exec(tb.Context(), statement, args...)
					return err
				})
				if err != nil {
					tb.Fatalf("%s: %v", statement, err)
				}
			})
		},
	}
}

// behindTheBack gives a function that calls others with a connection that no store has. It is the
// same one each time, unless it was lost.
func behindTheBack(tb testing.TB, address string) func(testing.TB, func(*pgx.Conn)) {
	var mu sync.Mutex
	var conn *pgx.Conn
	tb.Cleanup(func() {
		if conn != nil {
			conn.Close(context.Background())
		}
	})
	return func(tb testing.TB, f func(*pgx.Conn)) {
		tb.Helper()
		mu.Lock()
		defer mu.Unlock()
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.Connect(tb.Context(), address); err != nil {
				tb.Fatal(err)
			}
		}
		f(conn)
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
