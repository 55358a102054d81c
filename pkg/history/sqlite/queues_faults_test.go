package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/jobs/jobstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/internal/sqljobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// TestEveryStepOfAQueueMayFail lets each step of each transaction of a queue's incarnation fail.
// Unless the transaction succeeds all the same, it has no effect; the results in the end are those
// of the model.
func TestEveryStepOfAQueueMayFail(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(b *bench) {
		b.now = historytest.Began
		db := &jobstest.Database{Query: func(tb testing.TB, scan func(into func(...any) error) error, query string,
			args ...any) {
			queryRows(tb, b.direct, scan, query, args...)
		}}
		model := jobstest.NewModel(func() time.Time { return b.now })
		hits, failed, repeated := 0, 0, 0
		incarnation := func(name string, fails func(n int, s step) fault) {
			for _, x := range jobstest.Incarnation() {
				b.now = b.now.Add(x.Wait)
				n, again := 0, false
				b.driver.set(func(s step) fault {
					if !warm(s) {
						return fault{}
					}
					n++
					f := fails(n, s)
					if again = again || f.err != nil; f.err != nil {
						hits++
					}
					return f
				})
				results, err := b.store.Queues().Do(t.Context(), name, x.Operations...)
				b.driver.set(nil)
				if err != nil {
					failed++
					if history.ClassOf(err) == history.Ambiguous {
						b.Fatalf("%s: %v", name, err) // it could be looked up
					}
					if results, err = b.store.Queues().Do(t.Context(), name, x.Operations...); err != nil {
						b.Fatalf("%s: %v", name, err)
					}
				} else if again {
					repeated++
				}
				jobstest.Agrees(b, b.store.Queues(), model, name, results, x.Operations...)
			}
			jobstest.Audit(b, db, name)
		}
		for kind := range racetest.Size(7, 2) {
			for k := 1 + kind%2; k <= 40; k += racetest.Size(2, 8) {
				incarnation(fmt.Sprintf("step-%d-%d", k, kind), func(n int, s step) fault {
					if list := b.faultsAt(s); n == k && len(list) > 0 {
						return list[kind%len(list)].fault
					}
					return fault{}
				})
			}
			incarnation(fmt.Sprint("commit-", kind), func(n int, s step) fault {
				if !s.ends() || n > 40 {
					return fault{}
				}
				list := b.faultsAt(s)
				b.driver.set(nil)
				return list[kind%len(list)].fault
			})
		}
		b.Logf("%d faults; %d transactions failed, %d succeeded all the same", hits, failed, repeated)
		if failed == 0 || repeated == 0 {
			b.Errorf("%d transactions failed, %d succeeded all the same", failed, repeated)
		}
	})
}

// TestPlansOfQueues looks at how SQLite carries out each statement about queues, with and without
// statistics: none walks over a table, and none sorts.
func TestPlansOfQueues(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rondo.db")
	s := open(t, path, sqlite.Options{Sync: sqlite.Checkpoints})
	var items []jobs.NewJob
	for n := range jobs.MaxCount {
		items = append(items, jobs.NewJob{Data: []byte("1"), Priority: n % 5, Delay: time.Duration(n%2) * time.Hour})
	}
	for n := range racetest.Short(20, 5) {
		_, err := s.Queues().Do(t.Context(), fmt.Sprint("queue-", n),
			jobs.Push{Jobs: items, Key: fmt.Sprint(n), KeyFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"without statistics", "with statistics"} {
		for _, statement := range sqljobs.Statements(sqlrow.Dialect{Shards: 1, Time: func(t time.Time) any {
			return t.UnixMicro()
		}}) {
			if strings.Contains(statement, "clock_timestamp") || strings.HasPrefix(statement, "INSERT") {
				continue // for the other databases, or nothing to look for
			}
			plan := explained(t, path, statement)
			for _, line := range plan {
				// The index of just those; the first jobs; ranges of jobs that are in the
				// statement.
				fine := strings.Contains(line, "rondo_job_queues_starting") || line == "SCAN first" ||
					line == "SCAN r" ||
					line == "SCAN CONSTANT ROW"
				if strings.HasPrefix(line, "SCAN") && !fine || strings.Contains(line, "ORDER BY") ||
					strings.Contains(line, "rondo_jobs") && strings.HasSuffix(line, "(queue=? AND place=?)") &&
						!strings.Contains(statement, "ORDER BY") {
					t.Errorf("%s: %s\n%s", when, statement, strings.Join(plan, "\n"))
				}
			}
			if len(plan) == 0 {
				t.Errorf("%s: no plan of %s", when, statement)
			}
		}
		if err := s.Exec(t.Context(), "ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
}

// explained is how SQLite carries out a statement, line by line.
func explained(t *testing.T, path, statement string) (lines []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	queryRows(t, db, func(into func(...any) error) error {
		var id, parent, unused int
		var line string
		err := into(&id, &parent, &unused, &line)
		lines = append(lines, line)
		return err
	}, "EXPLAIN QUERY PLAN "+statement, make([]any, parameters(statement))...)
	return lines
}

// parameters counts those of a statement.
func parameters(statement string) (n int) {
	for strings.Contains(statement, fmt.Sprint("$", n+1)) {
		n++
	}
	return n
}
