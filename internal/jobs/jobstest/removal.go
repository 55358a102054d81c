package jobstest

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

func remove(k *check) {
	kill(k, "dead")
	k.push(0, "a", "b", "c")
	k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: quoted("later"), Delay: time.Hour}}})
	k.must(jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent}})
	k.holds("l", 1, "a")
	k.holds("m", 1, "b")
	if r := k.must(jobs.Remove{Limit: 2}); r.Count != 2 {
		k.Fatalf("%+v", r)
	}
	k.counts(1, 1, 0, 1)
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrLockExpired)
	if r := k.must(jobs.Remove{Limit: 10}); r.Count != 3 {
		k.Fatalf("%+v", r)
	}
	k.counts(0, 0, 0, 0)
	k.push(0, "x")
	k.must(jobs.Pop{Count: 1, LockID: "e", Mode: jobs.Exclusive})
	if r := k.must(jobs.Remove{Limit: 10}); r.Count != 1 {
		k.Fatalf("%+v", r)
	}
	k.refuses(jobs.Acknowledge{LockID: "e"}, jobs.ErrNoLock)
	k.push(0, "y")
	k.pops(2, "y")
}

func forget(k *check) {
	k.must(jobs.Push{Jobs: newJobs(0, "a"), Key: "key", KeyFor: time.Hour})
	incarnation := k.look().Incarnation
	k.refuses(jobs.Forget{}, jobs.ErrNotEmpty)
	k.must(jobs.Pop{Count: 1, LockID: "l", Mode: jobs.Concurrent})
	k.refuses(jobs.Forget{}, jobs.ErrNotEmpty)
	k.must(jobs.Acknowledge{LockID: "l"})
	k.must(jobs.Forget{})
	k.refuses(jobs.Forget{}, jobs.ErrNoQueue)
	Audit(k, k.db, k.queue)
	if r := k.must(jobs.Push{Jobs: newJobs(0, "b"), Key: "key", KeyFor: time.Hour}); r.Again {
		k.Fatalf("%+v", r)
	}
	if i := k.counts(1, 0, 0, 0); i.Incarnation == incarnation || i.Totals.Pushed != 1 {
		k.Fatalf("%+v", i)
	}
}

// portion is how many rows one transaction may remove with a queue, locksAtOnce how many locks it
// may end.
const portion, locksAtOnce = 1000, 100

// forgetInPortions: a queue goes in transactions of a bounded size, and is there until the last of
// them. A push meanwhile stays in it.
func forgetInPortions(k *check) {
	pushKeys(k, 2*portion+200)
	incarnation := k.look().Incarnation
	for part := range 2 {
		before := k.rows("rondo_job_keys")
		r := k.must(jobs.Forget{})
		if !r.More || k.look().Incarnation != incarnation {
			k.Fatalf("part %d: %+v", part, r)
		}
		if n := before - k.rows("rondo_job_keys"); n > portion {
			k.Fatalf("part %d removes %d keys in one transaction", part, n)
		}
		// The key may be before or behind those that are gone, and counts from now on.
		p := jobs.Push{Jobs: newJobs(0, "late"), Key: fmt.Sprintf("%d late", 9*part), KeyFor: time.Hour}
		k.must(p)
		k.refuses(jobs.Forget{}, jobs.ErrNotEmpty)
		if r := k.must(p); !r.Again {
			k.Fatalf("part %d: %+v", part, r)
		}
		k.pops(2, "late")
	}
	Audit(k, k.db, k.queue)
	n := 0
	for k.must(jobs.Forget{}).More {
		if n++; n > 3 {
			k.Fatal("the queue does not go")
		}
	}
	k.refuses(jobs.Forget{}, jobs.ErrNoQueue)
}

// pushKeys pushes a job with each of so many keys, and takes them all.
func pushKeys(k *check, n int) {
	for from := 0; from < n; from += 100 {
		var all []jobs.Operation
		for i := range 100 {
			all = append(all, jobs.Push{Jobs: newJobs(0, "x"), Key: fmt.Sprintf("%d key", 10_000+from+i),
				KeyFor: time.Hour})
		}
		k.do(append(all, jobs.Pop{Count: 100})...)
	}
	k.counts(0, 0, 0, 0)
}

// rows counts the rows of the queue in a table; 0 where a test cannot look.
func (k *check) rows(table string) (n int) {
	if k.db.Query != nil {
		k.db.Query(k, func(into func(...any) error) error { return into(&n) },
			"SELECT count(*) FROM "+table+" WHERE queue = $1", k.queue)
	}
	return n
}

// removeManyLocks: a removal ends a bounded number of locks in each transaction, and then the jobs
// of all are gone.
func removeManyLocks(k *check) {
	const locks = 2*locksAtOnce + 50
	k.must(jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent}})
	for from := range locks / 50 {
		var all []jobs.Operation
		for n := range 50 {
			all = append(all, jobs.Push{Jobs: newJobs(0, "x")},
				jobs.Pop{Count: 1, LockID: fmt.Sprintf("l%d-%d", from, n)})
		}
		k.do(all...)
	}
	left, removed := locks, 0
	for more := true; more; {
		r := k.must(jobs.Remove{Limit: portion})
		more, removed = r.More, removed+r.Count
		i := k.look()
		if n := left - i.Locks; n > locksAtOnce || n == 0 && more {
			k.Fatalf("%d locks were ended in one transaction: %+v", n, r)
		}
		left = i.Locks
	}
	if removed != locks {
		k.Fatalf("%d items were removed, want %d", removed, locks)
	}
	k.counts(0, 0, 0, 0)
	k.must(jobs.Forget{})
}
