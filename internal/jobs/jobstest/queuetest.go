package jobstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Database is a database for a test.
type Database struct {
	// Open opens a store on it, with a clock; nil is for the database's own. The store is closed
	// when the test ends, and close closes it before.
	Open func(tb testing.TB, now func() time.Time) (s jobs.Store, close func())
	// Shared says that several stores may be open at once, as of several processes.
	Shared bool
	// Volatile says that a closed store has lost everything.
	Volatile bool
	// Query runs a query behind the stores, with parameters $1, $2, …, and calls scan for each row;
	// nil where a test cannot run one.
	Query func(tb testing.TB, scan func(into func(...any) error) error, query string, args ...any)
}

// Began is when tests begin.
var Began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Clock is a clock that tests move.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that stands at Began.
func NewClock() *Clock { return &Clock{now: Began} }

// Now is what it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves it, back too.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run runs the suite.
func Run(t *testing.T, fresh func(testing.TB) *Database) {
	t.Run("behaviour", func(t *testing.T) {
		db, clock := fresh(t), NewClock()
		s, _ := db.Open(t, clock.Now)
		for n, x := range behaviours() {
			t.Run(x.name, func(t *testing.T) {
				k := &check{TB: t, store: s, clock: clock, queue: fmt.Sprintf("q-%03d", n), db: db}
				x.run(k)
				Audit(t, db, k.queue)
			})
		}
	})
	t.Run("model", func(t *testing.T) { properties(t, fresh(t)) })
	t.Run("clock of the database", func(t *testing.T) { ownClock(t, fresh(t)) })
	t.Run("closed and opened", func(t *testing.T) { reopened(t, fresh(t)) })
	t.Run("many at once", func(t *testing.T) { manyAtOnce(t, fresh(t)) })
}

type behaviour struct {
	name string
	run  func(*check)
}

// check does operations on one queue, and checks their effects.
type check struct {
	testing.TB
	store jobs.Store
	clock *Clock
	queue string
	db    *Database
}

// do does operations; whether they are refused is looked at elsewhere.
func (k *check) do(operations ...jobs.Operation) []jobs.Result {
	k.Helper()
	results, err := k.store.Do(k.Context(), k.queue, operations...)
	if err != nil {
		k.Fatal(err)
	}
	if len(results) != len(operations) {
		k.Fatalf("%d results of %d operations", len(results), len(operations))
	}
	return results
}

// must does one operation, which must not be refused.
func (k *check) must(o jobs.Operation) jobs.Result {
	k.Helper()
	r := k.do(o)[0]
	if r.Refused != nil {
		k.Fatalf("%T was refused: %v", o, r.Refused)
	}
	return r
}

// refuses does one operation, which must be refused for a reason: an error, or one of the same
// type.
func (k *check) refuses(o jobs.Operation, want error) {
	k.Helper()
	_ = k.refusal(o, want)
}

// refusal is refuses, and returns the error.
func (k *check) refusal(o jobs.Operation, want error) error {
	k.Helper()
	r := k.do(o)[0]
	if errors.Is(r.Refused, want) || r.Refused != nil && reflect.TypeOf(r.Refused) == reflect.TypeOf(want) &&
		reflect.TypeOf(want).Elem().PkgPath() != "errors" {
		return r.Refused
	}
	k.Fatalf("%T: refused for %v, want %v", o, r.Refused, want)
	return nil
}

// locked pops, which must be refused because of a lock until some time.
func (k *check) locked(p jobs.Pop, until time.Time) {
	k.Helper()
	err := k.refusal(p, &jobs.LockedError{})
	if got := err.(*jobs.LockedError).Until; !got.Equal(until) {
		k.Fatalf("locked until %v, want %v", got, until)
	}
}

// push pushes jobs of one priority, whose data are strings.
func (k *check) push(priority int, data ...string) {
	k.Helper()
	if n := k.must(jobs.Push{Jobs: newJobs(priority, data...)}).Count; n != len(data) {
		k.Fatalf("%d items pushed, want %d", n, len(data))
	}
}

func newJobs(priority int, data ...string) (items []jobs.NewJob) {
	for _, d := range data {
		items = append(items, jobs.NewJob{Data: quoted(d), Priority: priority})
	}
	return items
}

func quoted(s string) json.RawMessage {
	data, _ := json.Marshal(s) // a string always can
	return data
}

// names are the data of jobs.
func names(items []jobs.Job) []string {
	list := []string{}
	for _, i := range items {
		var s string
		if json.Unmarshal(i.Data, &s) != nil {
			s = string(i.Data)
		}
		list = append(list, s)
	}
	return list
}

// gets checks the jobs of a result.
func (k *check) gets(r jobs.Result, want ...string) jobs.Result {
	k.Helper()
	if got := names(r.Items); fmt.Sprint(got) != fmt.Sprint(want) || r.Count != len(want) {
		k.Fatalf("got %v (count %d), want %v", got, r.Count, want)
	}
	return r
}

// pops takes jobs without a lock.
func (k *check) pops(count int, want ...string) jobs.Result {
	k.Helper()
	return k.gets(k.must(jobs.Pop{Count: count}), want...)
}

// holds takes jobs with a lock.
func (k *check) holds(id string, count int, want ...string) jobs.Result {
	k.Helper()
	r := k.gets(k.must(jobs.Pop{Count: count, LockID: id}), want...)
	if r.Lock == nil || r.Lock.ID != id || r.Lock.Items != len(want) {
		k.Fatalf("the lock is %+v", r.Lock)
	}
	return r
}

// look looks at the queue.
func (k *check) look() jobs.Info {
	k.Helper()
	info, err := k.store.Look(k.Context(), k.queue)
	if err != nil {
		k.Fatal(err)
	}
	return info
}

// counts checks how many jobs are where.
func (k *check) counts(ready, delayed, locked, dead int) jobs.Info {
	k.Helper()
	i := k.look()
	if got, want := [4]int{i.Depth(), i.Delayed, i.Locked, i.Dead}, [4]int{ready, delayed, locked, dead}; got != want {
		k.Fatalf("ready, delayed, locked, dead: %v, want %v", got, want)
	}
	return i
}

// dead lists the names of dead jobs.
func (k *check) dead(want ...string) []jobs.Dead {
	k.Helper()
	list, err := k.store.Dead(k.Context(), k.queue, jobs.DeadID{}, 1000)
	if err != nil {
		k.Fatal(err)
	}
	items := make([]jobs.Job, len(list))
	for n, d := range list {
		items[n] = d.Job
	}
	if got := names(items); fmt.Sprint(got) != fmt.Sprint(want) {
		k.Fatalf("dead are %v, want %v", got, want)
	}
	return list
}

// wait moves the clock.
func (k *check) wait(d time.Duration) { k.clock.Add(d) }
