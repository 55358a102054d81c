package historytest

import (
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var managementTests = []test{
	{"management/list_instances", testListInstances},
	{"management/list_instances_by_status", testListInstancesByStatus},
	{"management/list_executions", testListExecutions},
	{"management/get_instance_info", testGetInstanceInfo},
	{"management/get_execution_info", testGetExecutionInfo},
	{"management/get_system_metrics", testGetSystemMetrics},
	{"management/get_queue_depths", testGetQueueDepths},
	{"management/get_instance_stats_history", testStatsOfHistory},
	{"management/get_instance_stats_kv", testStatsOfValues},
	{"management/get_instance_stats_nonexistent", testStatsOfNobody},
	{"management/read_corrupted_history_returns_error", testCorruptHistory},
	{"management/read_with_execution_corrupted_history_returns_error", testCorruptFormerHistory},
}

// testListInstances: all instances are listed, whatever became of them.
func testListInstances(t *testing.T, db *Database) {
	s := open(t, db)
	s.lists(history.Filter{})
	s.begin("a", "b")
	s.ended("c")
	s.lists(history.Filter{}, "a", "b", "c")
}

// testListInstancesByStatus: each status is found by itself, and several together.
func testListInstancesByStatus(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("running", "suspended", "halted", "completed", "failed", "cancelled", "terminated")
	s.commit(a[1].Stand(round.Suspended), a[2].Stand(round.Halted), a[3].Complete(`1`), a[4].Fail("it broke"),
		a[5].Cancel(), a[6].Terminate("enough"))
	for _, status := range round.Statuses() {
		s.lists(history.Filter{Statuses: []round.Status{status}}, string(status))
	}
	s.lists(history.Filter{Statuses: []round.Status{round.Failed, round.Halted}}, "failed", "halted")
	s.lists(history.Filter{Statuses: []round.Status{round.Failed, round.Running, round.Failed}}, "failed", "running")
}

// testListExecutions: all executions of all incarnations are listed, oldest first.
func testListExecutions(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.ContinueAsNew())
	s.commit(a.ContinueAsNew())
	s.commit(a.Complete(`1`))
	s.commit(a.Start(WithMessage("again")))
	s.equal("executions", s.executions("a"), []int64{1, 2, 3, 4})
	_, err := s.Executions(s.ctx(), "nobody", 0, 0)
	s.fails("executions of nobody", err, history.ErrNoInstance)
}

// testGetInstanceInfo: an instance is described as its last turn has left it.
func testGetInstanceInfo(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("parent")[0]
	s.clock.Advance(time.Minute)
	a := s.child(p, "a", WithName("refunds", "2.3.4"), WithAttributes(map[string]string{"region": "eu", "tier": ""}))
	s.clock.Advance(time.Minute)
	s.commit(a.At(s.clock.Now()).ContinueAsNew())
	s.clock.Advance(time.Minute)
	s.commit(a.At(s.clock.Now()).SetStatus(`{"done":1}`))
	s.clock.Advance(time.Minute)
	s.commit(a.At(s.clock.Now()).Complete(`{"total":3}`))
	want := history.Info{Instance: "a", CreatedAt: Began.Add(time.Minute), Row: a.Row}
	s.equal("info", s.info("a"), want)
	s.equal("info in a list", s.page(history.Filter{IDs: []string{"a"}}, history.Page{}).Instances,
		[]history.Info{want})

	s.commit(p.Fail("it broke"))
	p.Row.WakeAt = time.Time{}
	s.equal("info of a failed one", s.info("parent"), history.Info{Instance: "parent", CreatedAt: Began, Row: p.Row})
	_, err := s.Instance(s.ctx(), "nobody")
	s.fails("info of nobody", err, history.ErrNoInstance)
}

// testGetExecutionInfo: each execution is described with how it ended and how long its history is.
func testGetExecutionInfo(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	var want []history.ExecutionInfo
	describe := func(r round.Row, status round.Status, events, bytes int64) {
		want = append(want, history.ExecutionInfo{
			Execution: r.Execution, Incarnation: r.Incarnation, Name: r.Name, Version: r.Version, Engine: r.Engine,
			Status: status,
			Output: r.Output, Error: r.Error,
			StartedAt: r.StartedAt, EndedAt: a.now, Events: events, Bytes: bytes,
		})
	}
	a.At(Began.Add(time.Minute))
	left := a.Row
	turn := a.ContinueAsNew()
	s.commit(turn)
	describe(left, round.ContinuedAsNew, 3, turn.Former[0].HistoryBytes)
	s.commit(a.At(Began.Add(2 * time.Minute)).Fail("it broke"))
	describe(a.Row, round.Failed, a.Row.LastEvent, a.Row.HistoryBytes)
	s.commit(a.At(Began.Add(3 * time.Minute)).Start(WithMessage("again")))
	s.commit(a.Complete(`"at last"`))
	describe(a.Row, round.Completed, 2, a.Row.HistoryBytes)
	s.equal("executions", must[[]history.ExecutionInfo](s, "executions")(s.Executions(s.ctx(), "a", 0, 0)), want)
}

// testGetSystemMetrics: the metrics count exactly the stored rows.
func testGetSystemMetrics(t *testing.T, db *Database) {
	s := open(t, db)
	s.equal("metrics of nothing", s.metrics(), history.Metrics{Instances: map[round.Status]int64{}})
	a := s.begin("a", "b", "c", "d")
	s.commit(a[0].ContinueAsNew(), a[1].Complete(`1`), a[2].Fail("it broke"))
	s.equal("metrics", s.metrics(), history.Metrics{
		Instances:  map[round.Status]int64{round.Running: 2, round.Completed: 1, round.Failed: 1},
		Executions: 5, Events: 4*2 + 2 + 1 + 1, OutboxEntries: 1,
	})
	s.remove(history.Deletion{}, "b")
	s.equal("metrics after a deletion", s.metrics(), history.Metrics{
		Instances:  map[round.Status]int64{round.Running: 2, round.Failed: 1},
		Executions: 4, Events: 9, OutboxEntries: 1, Tombstones: 1,
	})
}

// testGetQueueDepths: the only queue that a store has is the outbox; its depth is counted, up to a
// limit.
func testGetQueueDepths(t *testing.T, db *Database) {
	s := open(t, db)
	depth := func(limit, want int) {
		t.Helper()
		if n := must[int](s, "count outbox entries")(s.CountOutbox(s.ctx(), limit)); n != want {
			t.Fatalf("%d outbox entries, want %d", n, want)
		}
	}
	depth(100, 0)
	var keys []history.OutboxKey
	for _, id := range numbered("a", 5) {
		a := NewActor(id).At(s.clock.Now())
		keys = append(keys, s.commit(a.StartAndCall()).Entries...)
		s.clock.Advance(time.Second)
	}
	depth(100, 5)
	depth(3, 3)
	s.equal("outbox entries in the metrics", s.metrics().OutboxEntries, 5)
	if err := s.RemoveOutbox(s.ctx(), keys[:2]); err != nil {
		t.Fatal(err)
	}
	depth(100, 3)
	s.equal("outbox entries in the metrics", s.metrics().OutboxEntries, 3)
}

func (s *reader) stats(id string) history.Stats {
	s.Helper()
	return must[history.Stats](s, "stats of "+id)(s.Stats(s.ctx(), id))
}

// testStatsOfHistory: events and bytes are those of the current execution.
func testStatsOfHistory(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Notes(10))
	s.equal("stats", s.stats("a"), history.Stats{Execution: 1, Events: 12, HistoryBytes: a.Row.HistoryBytes})
	turn := a.ContinueAsNew()
	a.Row.Unread = 7
	turn.Row.Unread = 7
	s.commit(turn)
	s.equal("stats of the next execution", s.stats("a"),
		history.Stats{Execution: 2, Events: 1, HistoryBytes: a.Row.HistoryBytes, Unread: 7})
}

// testStatsOfValues: values of this execution and of those before it are counted together, each key
// once.
func testStatsOfValues(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	check := func(values int, bytes int64) {
		t.Helper()
		got := s.stats("a")
		s.equal("values and their bytes", []int64{int64(got.Values), got.ValueBytes}, []int64{int64(values), bytes})
	}
	check(0, 0)
	s.commit(a.Set("k", `"12345"`))
	check(1, 7)
	s.commit(a.Set("l", `"ä"`))
	check(2, 7+4)
	s.commit(a.ContinueAsNew())
	check(2, 7+4) // carried forward
	s.commit(a.Set("k", `1`))
	check(2, 1+4)
	s.commit(a.Remove("l"))
	check(1, 1)
}

// testStatsOfNobody: asking for the sizes of an instance that does not exist is an error.
func testStatsOfNobody(t *testing.T, db *Database) {
	s := open(t, db)
	_, err := s.Stats(s.ctx(), "nobody")
	s.fails("stats of nobody", err, history.ErrNoInstance)
}

// spoil makes an event unreadable.
func (s *opened) spoil(id string, execution, event int64, data string) {
	s.Helper()
	s.db.exec(s.TB, "UPDATE rondo_history SET data = $1 WHERE instance = $2 AND execution = $3 AND event = $4",
		[]byte(data), id, execution, event)
}

// unreadable checks that an error names exactly the part that cannot be read.
func (s *opened) unreadable(err error, want history.UnreadableError) {
	s.Helper()
	var u *history.UnreadableError
	if history.ClassOf(err) != history.Corrupt || !errors.As(err, &u) {
		s.Fatalf("got %v (%v), want a corrupt %v", err, history.ClassOf(err), &want)
	}
	got := *u
	if got.Err == nil {
		s.Fatalf("%v does not say why", err)
	}
	got.Err = nil
	s.equal("what cannot be read", got, want)
}

// testCorruptHistory: an event that cannot be read is an error that names it, and the events before
// it can still be read.
func testCorruptHistory(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	for range 8 {
		s.commit(a.Note())
	}
	whole := a.Events[1]
	read := func(execution, after int64, limit int) ([]events.Event, error) {
		return s.Events(s.ctx(), "a", execution, after, limit)
	}
	for name, data := range map[string]string{"garbage": "{", "empty": "",
		"of another event": string(must[[]byte](s, "encode")(events.EncodeEvent(whole[5])))} {
		s.spoil("a", 1, 5, data)
		for _, x := range []int64{0, 1} {
			got, err := read(x, 0, 0)
			s.unreadable(err, history.UnreadableError{Instance: "a", Execution: 1, Event: 5, Column: "data"})
			if got != nil {
				t.Errorf("%s: %d events came with the error", name, len(got))
			}
		}
		_, err := history.Export(s.ctx(), s.Store, "a", 0)
		s.unreadable(err, history.UnreadableError{Instance: "a", Execution: 1, Event: 5, Column: "data"})
		s.sameEvents("a", 1, must[[]events.Event](s, "the events before")(read(0, 0, 4)), whole[:4])
		s.sameEvents("a", 1, must[[]events.Event](s, "the events behind")(read(0, 5, 0)), whole[5:])
	}
	s.db.exec(t, "DELETE FROM rondo_history WHERE instance = $1 AND event = $2", "a", int64(5))
	_, err := read(0, 0, 0)
	s.unreadable(err, history.UnreadableError{Instance: "a", Execution: 1, Event: 5, Column: "data"})
	s.db.exec(t, "DELETE FROM rondo_history WHERE instance = $1 AND event > $2", "a", int64(7))
	_, err = read(0, 5, 0)
	s.unreadable(err, history.UnreadableError{Instance: "a", Execution: 1, Event: 8, Column: "data"})
}

// testCorruptFormerHistory: the same for a former execution; the others can be read.
func testCorruptFormerHistory(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.ContinueAsNew())
	s.commit(a.ContinueAsNew())
	s.spoil("a", 2, 1, "nonsense")
	_, err := s.Events(s.ctx(), "a", 2, 0, 0)
	s.unreadable(err, history.UnreadableError{Instance: "a", Execution: 2, Event: 1, Column: "data"})
	for _, x := range []int64{1, 3} {
		s.sameEvents("a", x, must[[]events.Event](s, "another execution")(s.Events(s.ctx(), "a", x, 0, 0)), a.Events[x])
	}
}
