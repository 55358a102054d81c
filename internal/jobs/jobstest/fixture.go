package jobstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Fill makes queues for a fixture, with jobs at each place. Only ever add to it.
func Fill(tb testing.TB, s jobs.Store) {
	tb.Helper()
	f := fixture{tb, s}
	f.do("orders",
		jobs.Configure{Settings: jobs.Settings{Priorities: 5, MaxAttempts: 2, TTL: 60, MaxJobs: 100}},
		jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage(`"dies"`),
			Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}})
	for range 2 {
		f.do("orders", jobs.Pop{Count: 1, LockID: "again"},
			jobs.Return{LockID: "again", Reason: "größer als erlaubt"})
	}
	f.do("orders",
		jobs.Push{Key: "key", KeyFor: time.Hour, Digest: "digest", Jobs: []jobs.NewJob{
			{Data: json.RawMessage(`{"n":1}`), Priority: 3}, {Data: json.RawMessage(`{"n":2}`)},
			{Data: json.RawMessage(`{"n":3}`), Priority: 4},
			{Data: json.RawMessage(`"later"`), Priority: 1, Delay: time.Hour},
		}},
		jobs.Pop{Count: 2, LockID: "exclusive"})
	f.do("many",
		jobs.Configure{Settings: jobs.Settings{Mode: jobs.Concurrent}},
		jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("1")}, {Data: json.RawMessage("2")},
			{Data: json.RawMessage("3")}, {Data: json.RawMessage("4")}}},
		jobs.Pop{Count: 1, LockID: "one"}, jobs.Pop{Count: 1, LockID: "two"}, jobs.Pop{Count: 1, LockID: "three"},
		jobs.Return{LockID: "three", Delay: time.Hour})
	f.do("emptied",
		jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("1")}}},
		jobs.Pop{Count: 1, LockID: "over", Mode: jobs.Concurrent},
		jobs.Remove{Limit: 100})
	f.do("starts", jobs.Configure{Settings: jobs.Settings{Start: &jobs.Start{Orchestration: "order",
		Version: "1.2.0", MaxPerSecond: 0.5}}})
}

// Reading reads all that the queues have, to store it beside the fixture.
func Reading(tb testing.TB, s jobs.Store) any {
	tb.Helper()
	f := fixture{tb, s}
	all := make(map[string]any)
	list, err := s.List(tb.Context(), "", 100)
	f.ok(err)
	for _, q := range list {
		info, err := s.Look(tb.Context(), q.Queue)
		f.ok(err)
		dead, err := s.Dead(tb.Context(), q.Queue, jobs.DeadID{}, 100)
		f.ok(err)
		all[q.Queue] = map[string]any{"info": info, "dead": dead}
	}
	starting, err := s.Starting(tb.Context())
	f.ok(err)
	for _, q := range starting {
		all["starts "+q.Queue] = q.Settings.Start
	}
	return all
}

// GoOn takes the queues of a fixture further, to their end. A fixture that is older than queues has
// none, and is filled first.
func GoOn(tb testing.TB, s jobs.Store) {
	tb.Helper()
	f := fixture{tb, s}
	if _, err := s.Look(tb.Context(), "orders"); errors.Is(err, jobs.ErrNoQueue) {
		Fill(tb, s)
	}
	again := f.do("orders",
		jobs.Push{Key: "key", KeyFor: time.Hour, Digest: "digest",
			Jobs: []jobs.NewJob{{Data: json.RawMessage("0")}}},
		jobs.Acknowledge{LockID: "exclusive"},
		jobs.Requeue{Limit: 10})
	if !again[0].Again || again[0].Count != 4 || again[1].Count != 2 || again[2].Count != 1 {
		tb.Errorf("orders: %+v", again)
	}
	f.pops("orders", `"dies"`, `{"n":3}`)
	f.do("many", jobs.Extend{LockID: "one", TTL: time.Minute}, jobs.Return{LockID: "one"},
		jobs.Return{LockID: "two"})
	f.pops("many", "1", "2", "4")
	if r, err := s.Do(tb.Context(), "emptied", jobs.Acknowledge{LockID: "over"}); err != nil ||
		!errors.Is(r[0].Refused, jobs.ErrLockExpired) {
		tb.Errorf("a lock that was over: %+v, %v", r, err)
	}
	for _, q := range []string{"orders", "many", "emptied", "starts"} {
		f.do(q, jobs.Remove{Limit: 100}, jobs.Forget{})
	}
	if list, err := s.List(tb.Context(), "", 100); err != nil || len(list) != 0 {
		tb.Errorf("%d queues are left, %v", len(list), err)
	}
}

// fixture is a store that is filled, read or taken further.
type fixture struct {
	testing.TB
	store jobs.Store
}

func (f fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// do does operations, none of which may be refused.
func (f fixture) do(name string, operations ...jobs.Operation) []jobs.Result {
	f.Helper()
	results, err := f.store.Do(f.Context(), name, operations...)
	f.ok(err)
	for i, r := range results {
		if r.Refused != nil {
			f.Fatalf("queue %q: %T was refused: %v", name, operations[i], r.Refused)
		}
	}
	return results
}

// pops pops all ready jobs, and checks them.
func (f fixture) pops(name string, want ...string) {
	f.Helper()
	var got []string
	for _, i := range f.do(name, jobs.Pop{Count: 100})[0].Items {
		got = append(got, string(i.Data))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("queue %q has %v, want %v", name, got, want)
	}
}
