package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/jobs/jobstest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

func TestQueues(t *testing.T) {
	t.Parallel()
	jobstest.Run(t, queuesIn(sqlite.Checkpoints))
}

func TestQueuesInMemory(t *testing.T) {
	t.Parallel()
	jobstest.Run(t, func(testing.TB) *jobstest.Database {
		return &jobstest.Database{Volatile: true,
			Open: func(tb testing.TB, now func() time.Time) (jobs.Store, func()) {
				s := open(tb, sqlite.Memory, sqlite.Options{Now: now})
				return s.Queues(), func() { s.Close() }
			}}
	})
}

func BenchmarkQueues(b *testing.B) { jobstest.Bench(b, queuesIn(sqlite.EachCommit)) }

// queuesIn is a database in a file.
func queuesIn(sync sqlite.Sync) func(testing.TB) *jobstest.Database {
	return func(tb testing.TB) *jobstest.Database {
		path := filepath.Join(tb.TempDir(), "rondo.db")
		return &jobstest.Database{
			Open: func(tb testing.TB, now func() time.Time) (jobs.Store, func()) {
				s := open(tb, path, sqlite.Options{Sync: sync, Now: now})
				return s.Queues(), func() { s.Close() }
			},
			Query: func(tb testing.TB, scan func(into func(...any) error) error, query string, args ...any) {
				db, err := sql.Open("sqlite", path)
				if err != nil {
					tb.Fatal(err)
				}
				defer db.Close()
				queryRows(tb, db, scan, query, args...)
			},
		}
	}
}

// queryRows calls scan for each row.
func queryRows(tb testing.TB, db *sql.DB, scan func(into func(...any) error) error, query string, args ...any) {
	tb.Helper()
	rows, err := db.Query(query, args...)
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
