package jobstest

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

func exclusive(k *check) {
	k.push(0, "a", "b", "c")
	r := k.holds("l", 2, "a", "b")
	if l := r.Lock; !l.CreatedAt.Equal(k.clock.Now()) || !l.ExpiresAt.Equal(k.clock.Now().Add(jobs.DefaultTTL)) {
		k.Fatalf("%+v", l)
	}
	if i := k.counts(1, 0, 2, 0); i.Exclusive == nil || i.Exclusive.ID != "l" || i.Locks != 1 ||
		!i.Exclusive.ExpiresAt.Equal(r.Lock.ExpiresAt) {
		k.Fatalf("%+v", i)
	}
	for _, p := range []jobs.Pop{{Count: 1}, {Count: 1, LockID: "m"}, {Count: 1, LockID: "m", Mode: jobs.Concurrent},
		{Count: 1, Mode: jobs.Concurrent}} {
		k.locked(p, r.Lock.ExpiresAt)
	}
	k.push(0, "d")
	k.wait(jobs.DefaultTTL - time.Microsecond)
	k.locked(jobs.Pop{Count: 1}, r.Lock.ExpiresAt)
	k.wait(time.Microsecond)
	k.pops(10, "a", "b", "c", "d")
}

func concurrent(k *check) {
	k.must(jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent}})
	k.push(0, "a", "b", "c", "d", "e")
	k.holds("l", 2, "a", "b")
	k.wait(time.Second)
	m := k.holds("m", 1, "c")
	k.pops(1, "d") // as the queue's mode is concurrent
	k.locked(jobs.Pop{Count: 1, Mode: jobs.Exclusive}, m.Lock.ExpiresAt)
	k.locked(jobs.Pop{Count: 1, Mode: jobs.Exclusive, LockID: "x"}, m.Lock.ExpiresAt)
	if i := k.counts(1, 0, 3, 0); i.Locks != 2 || i.Exclusive != nil {
		k.Fatalf("%+v", i)
	}
	k.wait(jobs.DefaultTTL - time.Second) // the first is over, the second is not
	if i := k.counts(3, 0, 1, 0); i.Locks != 1 {
		k.Fatalf("%+v", i)
	}
	k.holds("n", 9, "a", "b", "e")
	if r := k.must(jobs.Acknowledge{LockID: "m"}); r.Count != 1 {
		k.Fatalf("%+v", r)
	}
	if r := k.must(jobs.Acknowledge{LockID: "n"}); r.Count != 3 {
		k.Fatalf("%+v", r)
	}
	k.push(0, "f")
	k.gets(k.must(jobs.Pop{Count: 1, Mode: jobs.Exclusive}), "f")
	// More locks than one transaction settles.
	var many []jobs.Operation
	var want []string
	for n := range 230 {
		want = append(want, fmt.Sprint(n))
		many = append(many, jobs.Push{Jobs: newJobs(0, fmt.Sprint(n))},
			jobs.Pop{Count: 1, LockID: fmt.Sprint("many-", n), TTL: time.Second})
	}
	k.do(many...)
	k.counts(0, 0, 230, 0)
	k.wait(time.Second)
	k.do(jobs.Settle{}, jobs.Settle{}, jobs.Settle{})
	if i := k.counts(230, 0, 0, 0); i.Locks != 0 {
		k.Fatalf("%+v", i)
	}
	k.pops(1000, want...)
}

func mixed(k *check) {
	k.push(0, "a", "b", "c")
	k.gets(k.must(jobs.Pop{Count: 1, LockID: "l", Mode: jobs.Concurrent, TTL: 10 * time.Second}), "a")
	k.gets(k.must(jobs.Pop{Count: 1, LockID: "m", Mode: jobs.Concurrent, TTL: 20 * time.Second}), "b")
	until := k.clock.Now().Add(20 * time.Second)
	k.locked(jobs.Pop{Count: 1}, until)
	k.wait(10 * time.Second)
	k.locked(jobs.Pop{Count: 1}, until)
	k.gets(k.must(jobs.Pop{Count: 1, Mode: jobs.Concurrent}), "a")
	k.wait(10 * time.Second)
	k.holds("e", 9, "b", "c")
	k.locked(jobs.Pop{Count: 1, Mode: jobs.Concurrent}, k.clock.Now().Add(jobs.DefaultTTL))
	// A concurrent lock that is over is told from one that never was, unless an exclusive one is
	// there.
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrWrongLock)
	k.must(jobs.Acknowledge{LockID: "e"})
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrLockExpired)
	k.refuses(jobs.Acknowledge{LockID: "never"}, jobs.ErrNoLock)
}

func lockTimes(k *check) {
	for asked, want := range map[time.Duration]time.Duration{
		0: jobs.DefaultTTL, time.Millisecond: jobs.MinTTL, -time.Second: jobs.MinTTL,
		1500 * time.Millisecond: 1500 * time.Millisecond, 300 * time.Second: 300 * time.Second,
		301 * time.Second: jobs.MaxTTL, 24 * time.Hour: jobs.MaxTTL,
	} {
		k.push(0, "a")
		r := k.must(jobs.Pop{Count: 1, LockID: "l", TTL: asked})
		if got := r.Lock.ExpiresAt.Sub(k.clock.Now()); got != want {
			k.Errorf("asked for %v: %v, want %v", asked, got, want)
		}
		k.must(jobs.Acknowledge{LockID: "l"})
	}
}

func acknowledgeExclusive(k *check) {
	k.refuses(jobs.Acknowledge{}, jobs.ErrNoLock) // there is no queue
	k.push(1, "a", "b")
	k.refuses(jobs.Acknowledge{}, &jobs.InvalidError{})
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrNoLock)
	k.holds("l", 1, "a")
	k.refuses(jobs.Acknowledge{}, &jobs.InvalidError{})
	k.refuses(jobs.Acknowledge{LockID: "m"}, jobs.ErrWrongLock)
	k.counts(1, 0, 1, 0)
	if r := k.must(jobs.Acknowledge{LockID: "l"}); r.Count != 1 || r.Lock == nil {
		k.Fatalf("%+v", r)
	}
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrNoLock)
	// An expired lock is over, whatever id is given; then there is none.
	for _, id := range []string{"l", "another", "l\x00", "l\xff"} {
		k.holds("l", 1, "b")
		k.wait(jobs.DefaultTTL)
		k.refuses(jobs.Acknowledge{LockID: id}, jobs.ErrLockExpired)
		k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrNoLock)
		k.counts(1, 0, 0, 0)
	}
	for _, o := range []jobs.Operation{jobs.Return{LockID: "l"}, jobs.Extend{LockID: "l"}} {
		k.refuses(o, jobs.ErrNoLock)
		k.holds("l", 1, "b")
		k.wait(jobs.DefaultTTL)
		k.refuses(o, jobs.ErrLockExpired)
		k.refuses(o, jobs.ErrNoLock)
	}
	k.refuses(jobs.Return{}, &jobs.InvalidError{})
	k.refuses(jobs.Extend{}, &jobs.InvalidError{})
	if i := k.look(); i.Totals.Acknowledged != 1 || i.Totals.Expired != 6 || i.Totals.Popped != 7 {
		k.Fatalf("%+v", i.Totals)
	}
}

func acknowledgeConcurrent(k *check) {
	k.must(jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent, TTL: 10}})
	k.push(0, "a", "b", "c")
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrNoLock)
	k.holds("l", 1, "a")
	k.holds("m", 1, "b")
	for _, id := range []string{"x", "l\x00", "\xff"} {
		k.refuses(jobs.Acknowledge{LockID: id}, jobs.ErrWrongLock)
	}
	k.refuses(jobs.Acknowledge{}, &jobs.InvalidError{})
	if r := k.must(jobs.Acknowledge{LockID: "l"}); r.Count != 1 {
		k.Fatalf("%+v", r)
	}
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrWrongLock)
	k.wait(10 * time.Second)
	k.refuses(jobs.Acknowledge{LockID: "m"}, jobs.ErrLockExpired) // a late client finds it out
	k.counts(2, 0, 0, 0)
	k.refuses(jobs.Acknowledge{LockID: "m"}, jobs.ErrLockExpired)
	k.refuses(jobs.Extend{LockID: "m"}, jobs.ErrLockExpired)
	k.refuses(jobs.Return{LockID: "m"}, jobs.ErrLockExpired)
	k.refuses(jobs.Acknowledge{LockID: "l"}, jobs.ErrNoLock)
	k.wait(10*time.Minute - time.Microsecond)
	k.do(jobs.Settle{})
	k.refuses(jobs.Acknowledge{LockID: "m"}, jobs.ErrLockExpired)
	k.wait(time.Microsecond)
	k.do(jobs.Settle{})
	k.refuses(jobs.Acknowledge{LockID: "m"}, jobs.ErrNoLock)
	k.pops(9, "b", "c")
}

func extend(k *check) {
	k.push(0, "a", "b")
	k.holds("l", 1, "a")
	k.refuses(jobs.Extend{LockID: "x", TTL: time.Minute}, jobs.ErrWrongLock)
	k.wait(20 * time.Second)
	r := k.must(jobs.Extend{LockID: "l", TTL: time.Hour})
	until := k.clock.Now().Add(jobs.MaxTTL)
	if !r.Lock.ExpiresAt.Equal(until) || r.Count != 1 {
		k.Fatalf("%+v", r)
	}
	k.wait(jobs.MaxTTL - time.Second)
	k.locked(jobs.Pop{Count: 1}, until)
	k.must(jobs.Acknowledge{LockID: "l"})

	// Concurrent ones end earlier or later than the others.
	k.must(jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent}})
	k.push(0, "c")
	k.holds("m", 1, "b")
	k.holds("n", 1, "c")
	k.must(jobs.Extend{LockID: "m", TTL: time.Minute})
	k.must(jobs.Extend{LockID: "n", TTL: 5 * time.Second})
	k.wait(5 * time.Second)
	if i := k.counts(1, 0, 1, 0); i.Locks != 1 {
		k.Fatalf("%+v", i)
	}
	k.refuses(jobs.Extend{LockID: "n", TTL: time.Minute}, jobs.ErrLockExpired)
	k.wait(54 * time.Second)
	k.must(jobs.Extend{LockID: "m", TTL: time.Minute})
	k.wait(59 * time.Second)
	k.counts(1, 0, 1, 0)
	k.wait(time.Second)
	k.counts(2, 0, 0, 0)
	k.pops(9, "b", "c")
}
