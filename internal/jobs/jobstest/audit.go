package jobstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Audit counts the rows of a queue, and compares them with its state. Nothing may change the queue
// meanwhile.
func Audit(tb testing.TB, db *Database, name string) {
	tb.Helper()
	if db.Query == nil {
		return
	}
	var state *jobs.State
	db.Query(tb, func(into func(...any) error) error {
		var data []byte
		err := into(&data)
		if err == nil {
			state, err = jobs.DecodeState(data)
		}
		return err
	}, "SELECT state FROM rondo_job_queues WHERE queue = $1", name)
	count := func(query string) (n int) {
		db.Query(tb, func(into func(...any) error) error { return into(&n) }, query, name)
		return n
	}
	if state == nil {
		for _, table := range []string{"rondo_jobs", "rondo_job_locks", "rondo_job_keys"} {
			if n := count("SELECT count(*) FROM " + table + " WHERE queue = $1"); n != 0 {
				tb.Errorf("queue %q is not there, and has %d rows of %s", name, n, table)
			}
		}
		return
	}
	auditJobs(tb, db, name, state)
	var locked int
	db.Query(tb, func(into func(...any) error) error {
		var items int
		var returned bool
		var number, rows int64
		err := into(&items, &returned, &number, &rows)
		switch {
		case err == nil && returned && rows != 0:
			tb.Errorf("queue %q: a lock that was returned has %d items", name, rows)
		case err == nil && !returned:
			if locked++; int64(items) != rows {
				tb.Errorf("queue %q: lock %d says %d items, and has %d", name, number, items, rows)
			}
		}
		return err
	}, `SELECT items, returned, number, (SELECT count(*) FROM rondo_jobs AS i WHERE i.queue = l.queue AND place = 2 AND rank = number)
		FROM rondo_job_locks AS l WHERE queue = $1`, name)
	if locked != state.Locks || state.Locks > 0 && state.NextExpiry.IsZero() {
		tb.Errorf("queue %q: %d concurrent locks, the state says %d, the next of which expires at %v", name, locked,
			state.Locks, state.NextExpiry)
	}
	if l := state.Exclusive; l != nil {
		if n := count(fmt.Sprintf("SELECT count(*) FROM rondo_jobs WHERE queue = $1 AND place = 2 AND rank = %d",
			l.Number)); n != l.Items {
			tb.Errorf("queue %q: the lock says %d items, and has %d", name, l.Items, n)
		}
	}
	if n := count("SELECT count(*) FROM rondo_job_keys WHERE queue = $1"); n > 0 && state.NextKey.IsZero() {
		tb.Errorf("queue %q has %d keys, and none is ever forgotten", name, n)
	}
}

// auditJobs looks at the jobs.
func auditJobs(tb testing.TB, db *Database, name string, state *jobs.State) {
	tb.Helper()
	ready, places := make(map[int]int), make(map[jobs.Place]int)
	db.Query(tb, func(into func(...any) error) error {
		var place jobs.Place
		var priority, n int
		var rank, position, ranked int64
		err := into(&place, &priority, &n, &rank, &position, &ranked)
		if err != nil {
			return err
		}
		places[place] += n
		switch place {
		case jobs.PlaceReady:
			ready[priority] += n
			if l := state.Levels[priority]; l == nil || l.Ready != n || l.Head > position ||
				ranked != int64(priority) || rank != ranked {
				tb.Errorf("queue %q, priority %d: %d ready from %d on, rank %d to %d, the state says %+v", name,
					priority, n, position, rank, ranked, l)
			}
		case jobs.PlaceDelayed:
			if state.NextDue.IsZero() || state.NextDue.UnixMicro() > rank {
				tb.Errorf("queue %q: an item is due at %v, the state says %v", name, time.UnixMicro(rank).UTC(),
					state.NextDue)
			}
		default:
		}
		return nil
	}, "SELECT place, priority, count(*), min(rank), min(position), max(rank) FROM rondo_jobs WHERE queue = "+
		"$1 GROUP BY place, priority", name)
	if len(ready) != len(state.Levels) || places[jobs.PlaceDelayed] != state.Delayed ||
		places[jobs.PlaceLocked] != state.Locked || places[jobs.PlaceDead] != state.Dead {
		tb.Errorf("queue %q: the rows are %v, ready %v; the state says delayed %d, locked %d, dead %d, levels %v", name,
			places, ready, state.Delayed, state.Locked, state.Dead, state.Levels)
	}
}
