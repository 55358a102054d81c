package cockroach

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
)

// TestPlansOfQueues fills queues with 100,000 jobs at all places, and looks at how PostgreSQL
// carries out each statement, with and without statistics: none reads a table or a queue as a
// whole, and none reads much more than it is about.
func TestPlansOfQueues(t *testing.T) {
	pgtest.Need(t)
	address := Migrated.Database(t)
	now := crowdBegan
	x := &explainer{}
	opened := func(o Options) *Store {
		o.Log, o.Now = slog.New(slog.DiscardHandler), func() time.Time { return now }
		s, err := Open(t.Context(), address, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	blind := opened(Options{}).Queues()
	s := opened(Options{MaxConns: 1, Configure: func(c *pgxpool.Config) { c.ConnConfig.Tracer = x }}).Queues()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(statement, err)
		}
	}
	for _, table := range []string{"job_queues", "jobs", "job_locks", "job_keys"} {
		exec("ALTER TABLE rondo_" + table + " SET (autovacuum_enabled = off)") // it makes statistics
	}
	fillQueues(t, blind)
	for _, when := range []string{"without statistics", "with statistics"} {
		t.Run(when, func(t *testing.T) {
			for _, o := range queueWork(when) {
				now = now.Add(o.wait)
				x.t, x.seen = t, nil
				r, err := s.Do(t.Context(), "queue-3", o.operations...)
				x.t = nil
				if err != nil {
					t.Fatalf("%s: %v", o.name, err)
				}
				for n := range r {
					if r[n].Refused != nil {
						t.Errorf("%s: %T was refused: %v", o.name, o.operations[n], r[n].Refused)
					}
				}
				checkQueuePlans(t, o.name, x.seen, o.rows)
			}
			for name, look := range map[string]func() error{
				"look":     func() error { _, err := s.Look(t.Context(), "queue-3"); return err },
				"list":     func() error { _, err := s.List(t.Context(), "queue-200", 10); return err },
				"starting": func() error { _, err := s.Starting(t.Context()); return err },
				"dead": func() error {
					_, err := s.Dead(t.Context(), "queue-3", jobs.DeadID{At: 1}, 10)
					return err
				},
			} {
				x.t, x.seen = t, nil
				err := look()
				x.t = nil
				if err != nil {
					t.Fatal(name, err)
				}
				checkQueuePlans(t, name, x.seen, 205)
			}
		})
		exec("ANALYZE")
	}
}

// checkQueuePlans checks the plans of the statements of one operation.
func checkQueuePlans(t *testing.T, name string, all []*seen, rows int) {
	t.Helper()
	if len(all) == 0 {
		t.Errorf("%s: nothing was seen", name)
	}
	for _, s := range all {
		for _, p := range s.plans {
			whole := slices.ContainsFunc(p.indexes, func(i string) bool {
				return strings.HasPrefix(i, "whole ") && i != "whole job_queues_starting"
			})
			if whole || p.rows > rows {
				t.Errorf("%s, %s: reads %d rows (at most %d), with %v:\n%.300s\n%s", name, p.how, p.rows, rows,
					p.indexes, s.sql, p.root)
			}
		}
	}
}

// fillQueues makes ten large queues and many small ones.
func fillQueues(t *testing.T, s jobs.Store) {
	do := func(name string, operations ...jobs.Operation) {
		t.Helper()
		r, err := s.Do(t.Context(), name, operations...)
		if err != nil {
			t.Fatal(err)
		}
		for n := range r {
			if r[n].Refused != nil {
				t.Fatalf("%T was refused: %v", operations[n], r[n].Refused)
			}
		}
	}
	push := func(n int, change func(*jobs.NewJob, int)) jobs.Push {
		p := jobs.Push{}
		for i := range n {
			item := jobs.NewJob{Data: []byte(`{"order":1}`), Priority: i % 5}
			if change != nil {
				change(&item, i)
			}
			p.Jobs = append(p.Jobs, item)
		}
		return p
	}
	for n := range racetest.Short(10, 4) { // queue-3 is looked at
		name := fmt.Sprint("queue-", n)
		do(name, jobs.Configure{Settings: jobs.Settings{MaxAttempts: 1, Mode: jobs.Concurrent, TTL: 300}},
			push(1000, nil),
			jobs.Pop{Count: 1000, LockID: "dies"}, jobs.Return{LockID: "dies"},
			jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent, TTL: 300}})
		for range racetest.Short(7, 2) {
			do(name, push(1000, nil))
		}
		do(name, push(1000, func(i *jobs.NewJob, n int) { i.Delay = time.Hour + time.Duration(n)*time.Second }))
		do(name, push(1000, nil))
		var more []jobs.Operation
		for i := range 100 {
			keyed := push(1, nil)
			keyed.Key, keyed.KeyFor = fmt.Sprint("key-", i), time.Hour+time.Duration(i)*time.Second
			more = append(more, jobs.Pop{Count: 5, LockID: fmt.Sprint("lock-", i)}, keyed)
		}
		do(name, more...)
	}
	for n := range racetest.Short(500, 250) {
		settings := jobs.Settings{}
		if n%100 == 0 {
			settings.Start = &jobs.Start{Orchestration: "o"}
		}
		do(fmt.Sprint("queue-", 100+n), jobs.Configure{Settings: settings}, push(1, nil))
	}
}

// queueStep is a transaction, and how many rows one of its statements may read.
type queueStep struct {
	name       string
	wait       time.Duration
	rows       int
	operations []jobs.Operation
}

// queueWork does everything that can be done to a queue.
func queueWork(id string) []queueStep {
	id = strings.ReplaceAll(id, " ", "-")
	items := func(n int, delay time.Duration) (list []jobs.NewJob) {
		for range n {
			list = append(list, jobs.NewJob{Data: []byte("1"), Delay: delay})
		}
		return list
	}
	lock := func(n int) string { return fmt.Sprint("new-", id, "-", n) }
	return []queueStep{
		{"push", 0, 5, []jobs.Operation{jobs.Push{Jobs: items(3, 0)}}},
		{"push with a key", 0, 105,
			[]jobs.Operation{jobs.Push{Jobs: items(3, time.Minute), Key: id, Digest: "d", KeyFor: time.Minute}}},
		{"pop one", 0, 5, []jobs.Operation{jobs.Pop{Count: 1}}},
		{"pop ten", 0, 45, []jobs.Operation{jobs.Pop{Count: 10}}},
		{"pop by bytes", 0, 250, []jobs.Operation{jobs.Pop{Count: 50, Bytes: 1 << 20}}},
		{"lock and acknowledge", 0, 45,
			[]jobs.Operation{jobs.Pop{Count: 10, LockID: lock(1)}, jobs.Acknowledge{LockID: lock(1)}}},
		{"lock and extend", 0, 45, []jobs.Operation{jobs.Pop{Count: 10, LockID: lock(2)},
			jobs.Extend{LockID: lock(2), TTL: 200 * time.Second}}},
		{"return", 0, 25, []jobs.Operation{jobs.Return{LockID: lock(2)}}},
		{"return with a delay", 0, 45, []jobs.Operation{jobs.Pop{Count: 10, LockID: lock(3)},
			jobs.Return{LockID: lock(3), Delay: time.Second}}},
		{"delayed", 2 * time.Second, 205, []jobs.Operation{jobs.Settle{}}},
		{"several pops", 0, 60, []jobs.Operation{
			jobs.Pop{Count: 5, LockID: lock(4)}, jobs.Pop{Count: 5, LockID: lock(5)}, jobs.Pop{Count: 5},
			jobs.Pop{Count: 5}, jobs.Pop{Count: 1, LockID: lock(6)}}},
		{"several acknowledgements", 0, 520, // as long as it knows nothing of the tables, all that is locked
			[]jobs.Operation{jobs.Acknowledge{LockID: lock(4)}, jobs.Acknowledge{LockID: lock(5)},
				jobs.Acknowledge{LockID: lock(6)}}},
		{"several pushes with keys", 0, 110, []jobs.Operation{
			jobs.Push{Jobs: items(1, 0), Key: id + "3", Digest: "d", KeyFor: time.Hour},
			jobs.Push{Jobs: items(1, 0), Key: id + "4", Digest: "d", KeyFor: time.Hour}}},
		{"requeue", 0, 25, []jobs.Operation{jobs.Requeue{Limit: 10}}},
		{"requeue by id", 0, 5, []jobs.Operation{jobs.Requeue{IDs: []jobs.DeadID{{At: 1, Position: 1}}}}},
		{"locks expire", 5 * time.Minute, 205, []jobs.Operation{jobs.Settle{}}},
		{"locks are forgotten", 11 * time.Minute, 205, []jobs.Operation{jobs.Settle{}}},
		{"keys are forgotten", 45 * time.Minute, 405,
			[]jobs.Operation{jobs.Push{Jobs: items(1, 0), Key: id + "2", Digest: "d", KeyFor: time.Minute}}},
		{"remove dead ones", 0, 45, []jobs.Operation{jobs.Remove{Dead: true, Limit: 10}}},
		{"remove", 0, 45, []jobs.Operation{jobs.Remove{Limit: 10}}},
	}
}
