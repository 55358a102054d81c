package cockroach_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/jobs/jobstest"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
)

func TestQueues(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	jobstest.Run(t, func(tb testing.TB) *jobstest.Database { return queuesAt(tb, cockroach.Migrated.Database(tb)) })
}

// TestQueuesWithStatementsForCockroachDB executes the statements that CockroachDB gets on
// PostgreSQL.
func TestQueuesWithStatementsForCockroachDB(t *testing.T) {
	t.Parallel()
	pgtest.Need(t)
	jobstest.Run(t, func(tb testing.TB) *jobstest.Database {
		address := cockroach.Migrated.Database(tb)
		db := queuesAt(tb, address)
		db.Open = func(tb testing.TB, now func() time.Time) (jobs.Store, func()) {
			s := openStore(tb, address, cockroach.Options{Now: now})
			return cockroach.QueuesForCockroachDB(s, now), func() { s.Close() }
		}
		return db
	})
}

func TestQueuesOnCockroachDB(t *testing.T) {
	server := needServer(t)
	jobstest.Run(t, func(tb testing.TB) *jobstest.Database { return queuesAt(tb, ownDatabase(tb, server)) })
}

func BenchmarkQueues(b *testing.B) {
	pgtest.Need(b)
	jobstest.Bench(b, func(tb testing.TB) *jobstest.Database { return queuesAt(tb, pgtest.Start(tb).Database(tb)) })
}

// queuesAt is the database at an address.
func queuesAt(tb testing.TB, address string) *jobstest.Database {
	behind := behindTheBack(tb, address)
	return &jobstest.Database{
		Shared: true,
		Open: func(tb testing.TB, now func() time.Time) (jobs.Store, func()) {
			s := openStore(tb, address, cockroach.Options{Now: now})
			return s.Queues(), func() { s.Close() }
		},
		Query: func(tb testing.TB, scan func(into func(...any) error) error, query string, args ...any) {
			behind(tb, func(conn *pgx.Conn) { queryRows(tb, conn, scan, query, args...) })
		},
	}
}

// queryRows calls scan for each row.
func queryRows(tb testing.TB, conn *pgx.Conn, scan func(into func(...any) error) error, query string, args ...any) {
	tb.Helper()
	rows, err := conn.Query(tb.Context(), query, args...)
	if err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			tb.Fatalf("%s: %v", query, err)
		}
	}
	if err := rows.Err(); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}
