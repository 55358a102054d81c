package jobstest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/racetest"
)

// ownClock uses the clock of the database.
func ownClock(t *testing.T, db *Database) {
	s, _ := db.Open(t, nil)
	k := &check{TB: t, store: s, queue: "clock", db: db}
	before := time.Now()
	k.push(0, "a", "b")
	k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: quoted("c"), Delay: time.Hour}}, Key: "key", KeyFor: time.Hour})
	last := time.Time{}
	for range 5 {
		i := k.counts(2, 1, 0, 0)
		if i.At.Before(last) || i.At.Sub(before).Abs() > 10*time.Minute || i.Oldest.After(i.At) ||
			i.At.Location() != time.UTC {
			t.Fatalf("the time is %v, was %v, began at %v; oldest %v", i.At, last, before, i.Oldest)
		}
		last = i.At
	}
	r := k.holds("l", 1, "a")
	if l := r.Lock; l.CreatedAt.Before(last) || l.ExpiresAt.Sub(l.CreatedAt) != jobs.DefaultTTL ||
		r.Items[0].PushedAt.After(l.CreatedAt) {
		t.Fatalf("%+v, %+v", l, r.Items[0])
	}
	k.locked(jobs.Pop{Count: 1}, r.Lock.ExpiresAt)
	if list, err := s.List(t.Context(), "", 10); err != nil || len(list) != 1 || list[0].At.Before(r.Lock.CreatedAt) {
		t.Fatalf("%+v, %v", list, err)
	}
	k.must(jobs.Acknowledge{LockID: "l"})
	k.pops(9, "b")
	Audit(t, db, "clock")
}

// reopened closes a store, and goes on with another.
func reopened(t *testing.T, db *Database) {
	if db.Volatile {
		t.Skip("nothing is left of this one")
	}
	clock := NewClock()
	s, closeIt := db.Open(t, clock.Now)
	k := &check{TB: t, store: s, queue: "kept", clock: clock, db: db}
	k.must(jobs.Configure{Settings: jobs.Settings{MaxAttempts: 3,
		Start: &jobs.Start{Orchestration: "o", Version: "1.0.0"}}})
	k.push(1, "a", "b")
	k.must(jobs.Push{Jobs: []jobs.NewJob{{Data: quoted("c"), Delay: time.Minute}}, Key: "key",
		KeyFor: time.Hour, Digest: "d"})
	k.holds("l", 1, "a")
	before := k.look()
	closeIt()
	k.store, _ = db.Open(t, clock.Now)
	if got, want := infoText(k.look(), nil), infoText(before, nil); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	if r := k.must(jobs.Push{Jobs: newJobs(0, "x"), Key: "key", KeyFor: time.Hour, Digest: "d"}); !r.Again {
		t.Fatalf("%+v", r)
	}
	k.locked(jobs.Pop{Count: 1}, clock.Now().Add(jobs.DefaultTTL))
	k.must(jobs.Acknowledge{LockID: "l"})
	k.wait(time.Minute)
	k.pops(9, "c", "b")
	Audit(t, db, "kept")
}

// crowd is how many push and pop at once.
const crowd = 8

// manyAtOnce has pushers and poppers at the same queue, over two stores where that is possible.
// Locks expire meanwhile.
func manyAtOnce(t *testing.T, db *Database) {
	clock := NewClock()
	one, _ := db.Open(t, clock.Now)
	two := one
	if db.Shared {
		two, _ = db.Open(t, clock.Now)
	}
	Crowd(t, clock, one, two, "crowd", racetest.Short(25, 8))
	Audit(t, db, "crowd")
}

// Crowd has pushers and poppers at the same queue over two stores, until everything is
// acknowledged. Poppers lose some of their locks. All pushed jobs must be acknowledged, each once,
// and the jobs of one pusher must first be popped in its order.
func Crowd(t testing.TB, clock *Clock, one, two jobs.Store, name string, each int) {
	t.Helper()
	stores := []jobs.Store{one, two}
	if _, err := one.Do(t.Context(), name,
		jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent, TTL: 20}}); err != nil {
		t.Fatal(err)
	}
	c := &counter{acknowledged: make(map[string]int)}
	var all sync.WaitGroup
	for n := range crowd {
		all.Go(func() {
			for i := range each {
				item := jobs.NewJob{Data: quoted(fmt.Sprintf("%d-%d", n, i)), Priority: n % 3}
				r, err := stores[n%2].Do(t.Context(), name,
					jobs.Push{Jobs: []jobs.NewJob{item}, Key: fmt.Sprint(n, "-", i), KeyFor: time.Hour})
				if err != nil || r[0].Refused != nil || r[0].Again {
					t.Errorf("push: %+v, %v", r, err)
				}
			}
		})
		all.Go(func() {
			for i := 0; c.total() < crowd*each && !t.Failed(); i++ {
				c.pop(t, clock, stores[n%2], name, fmt.Sprint(n, "-", i), i)
			}
		})
	}
	all.Wait()
	for item, times := range c.acknowledged {
		if times != 1 {
			t.Errorf("%s was acknowledged %d times", item, times)
		}
	}
	if len(c.acknowledged) != crowd*each {
		t.Errorf("%d items were acknowledged of %d", len(c.acknowledged), crowd*each)
	}
	info, err := one.Look(t.Context(), name)
	if err != nil || info.Depth()+info.Locked+info.Delayed+info.Dead != 0 ||
		info.Totals.Acknowledged != int64(crowd*each) || info.Totals.Pushed != info.Totals.Acknowledged {
		t.Errorf("at the end: %+v, %v", info, err)
	}
}

// counter counts the acknowledged jobs.
type counter struct {
	mu           sync.Mutex
	acknowledged map[string]int
}

func (c *counter) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acknowledged)
}

// pop takes some jobs with a lock, and acknowledges, returns, or loses it.
func (c *counter) pop(t testing.TB, clock *Clock, s jobs.Store, name, lock string, i int) {
	r, err := s.Do(t.Context(), name, jobs.Pop{Count: 1 + i%3, LockID: lock})
	if err != nil || r[0].Refused != nil {
		t.Errorf("pop: %+v, %v", r, err)
		return
	}
	items := r[0].Items
	if len(items) == 0 {
		clock.Add(time.Second) // the lock of another popper must expire at some time
		return
	}
	for n := 1; n < len(items); n++ {
		a, b := items[n-1], items[n]
		if a.Priority > b.Priority || a.Priority == b.Priority && a.Position >= b.Position {
			t.Errorf("out of order: %s before %s", itemText(a), itemText(b))
		}
	}
	var o jobs.Operation = jobs.Acknowledge{LockID: lock}
	switch i % 5 {
	case 1:
		return // lost
	case 2:
		o = jobs.Return{LockID: lock}
	case 3:
		clock.Add(7 * time.Second)
	}
	r, err = s.Do(t.Context(), name, o)
	switch {
	case err != nil:
		t.Errorf("%T: %v", o, err)
	case errors.Is(r[0].Refused, jobs.ErrLockExpired) || errors.Is(r[0].Refused, jobs.ErrWrongLock) ||
		errors.Is(r[0].Refused, jobs.ErrNoLock):
		// it was too late; the last two are for when it is forgotten
	case r[0].Refused != nil || r[0].Count != len(items):
		t.Errorf("%T: %+v", o, r[0])
	case i%5 != 2:
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range names(items) {
			c.acknowledged[strings.Clone(n)]++
		}
	}
}
