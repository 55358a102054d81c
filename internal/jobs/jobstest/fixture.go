package queuetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// Fill makes queues for a fixture, with items at each place. Only ever add to it.
func Fill(tb testing.TB, s queue.Store) {
	tb.Helper()
	f := fixture{tb, s}
	f.do("orders",
		queue.Configure{Settings: queue.Settings{Priorities: 5, MaxAttempts: 2, TTL: 60, MaxItems: 100}},
		queue.Push{Items: []queue.NewItem{{Data: json.RawMessage(`"dies"`),
			Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}})
	for range 2 {
		f.do("orders", queue.Pop{Count: 1, LockID: "again"},
			queue.Return{LockID: "again", Reason: "größer als erlaubt"})
	}
	f.do("orders",
		queue.Push{Key: "key", KeyFor: time.Hour, Digest: "digest", Items: []queue.NewItem{
			{Data: json.RawMessage(`{"n":1}`), Priority: 3}, {Data: json.RawMessage(`{"n":2}`)},
			{Data: json.RawMessage(`{"n":3}`), Priority: 4},
			{Data: json.RawMessage(`"later"`), Priority: 1, Delay: time.Hour},
		}},
		queue.Pop{Count: 2, LockID: "exclusive"})
	f.do("many",
		queue.Configure{Settings: queue.Settings{Mode: queue.Concurrent}},
		queue.Push{Items: []queue.NewItem{{Data: json.RawMessage("1")}, {Data: json.RawMessage("2")},
			{Data: json.RawMessage("3")}, {Data: json.RawMessage("4")}}},
		queue.Pop{Count: 1, LockID: "one"}, queue.Pop{Count: 1, LockID: "two"}, queue.Pop{Count: 1, LockID: "three"},
		queue.Return{LockID: "three", Delay: time.Hour})
	f.do("emptied",
		queue.Push{Items: []queue.NewItem{{Data: json.RawMessage("1")}}},
		queue.Pop{Count: 1, LockID: "over", Mode: queue.Concurrent},
		queue.Remove{Limit: 100})
	f.do("starts", queue.Configure{Settings: queue.Settings{Start: &queue.Start{Orchestration: "order",
		Version: "1.2.0", MaxPerSecond: 0.5}}})
}

// Reading is all that can be read of the queues, to keep it beside the fixture.
func Reading(tb testing.TB, s queue.Store) any {
	tb.Helper()
	f := fixture{tb, s}
	all := make(map[string]any)
	list, err := s.List(tb.Context(), "", 100)
	f.ok(err)
	for _, q := range list {
		info, err := s.Look(tb.Context(), q.Queue)
		f.ok(err)
		dead, err := s.Dead(tb.Context(), q.Queue, queue.DeadID{}, 100)
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
func GoOn(tb testing.TB, s queue.Store) {
	tb.Helper()
	f := fixture{tb, s}
	if _, err := s.Look(tb.Context(), "orders"); errors.Is(err, queue.ErrNoQueue) {
		Fill(tb, s)
	}
	again := f.do("orders",
		queue.Push{Key: "key", KeyFor: time.Hour, Digest: "digest",
			Items: []queue.NewItem{{Data: json.RawMessage("0")}}},
		queue.Acknowledge{LockID: "exclusive"},
		queue.Requeue{Limit: 10})
	if !again[0].Again || again[0].Count != 4 || again[1].Count != 2 || again[2].Count != 1 {
		tb.Errorf("orders: %+v", again)
	}
	f.pops("orders", `"dies"`, `{"n":3}`)
	f.do("many", queue.Extend{LockID: "one", TTL: time.Minute}, queue.Return{LockID: "one"},
		queue.Return{LockID: "two"})
	f.pops("many", "1", "2", "4")
	if r, err := s.Do(tb.Context(), "emptied", queue.Acknowledge{LockID: "over"}); err != nil ||
		!errors.Is(r[0].Refused, queue.ErrLockExpired) {
		tb.Errorf("a lock that was over: %+v, %v", r, err)
	}
	for _, q := range []string{"orders", "many", "emptied", "starts"} {
		f.do(q, queue.Remove{Limit: 100}, queue.Forget{})
	}
	if list, err := s.List(tb.Context(), "", 100); err != nil || len(list) != 0 {
		tb.Errorf("%d queues are left, %v", len(list), err)
	}
}

// fixture is a store that is filled, read or taken further.
type fixture struct {
	testing.TB
	store queue.Store
}

func (f fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// do does operations, none of which may be refused.
func (f fixture) do(name string, operations ...queue.Operation) []queue.Result {
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

// pops takes what is ready, and checks what it is.
func (f fixture) pops(name string, want ...string) {
	f.Helper()
	var got []string
	for _, i := range f.do(name, queue.Pop{Count: 100})[0].Items {
		got = append(got, string(i.Data))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("queue %q has %v, want %v", name, got, want)
	}
}
