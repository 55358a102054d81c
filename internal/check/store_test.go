package check_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file checks real stores: SQLite and, where it is found, PostgreSQL.

func onEachStore(t *testing.T, test func(t *testing.T, s history.Store)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "rondo.db"),
			sqlite.Options{Now: clock, Sync: sqlite.Checkpoints})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, clocked{s, now})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		pgtest.Need(t)
		s, err := cockroach.Open(t.Context(), pgtest.Database(t),
			cockroach.Options{Now: clock, WakeStep: time.Microsecond, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, clocked{s, now})
	})
}

func clock() time.Time { return now }

// clocked is a store whose database has another clock than this machine.
type clocked struct {
	history.Store
	at time.Time
}

func (c clocked) Clock(context.Context) (time.Time, error) { return c.at, nil }

// commit stores an instance as one turn.
func commit(t *testing.T, s history.Store, in check.Instance, messages ...events.Message) history.Result {
	t.Helper()
	turn := &round.Turn{Instance: in.ID, Row: in.Row, Messages: messages}
	for _, x := range slices.Sorted(maps.Keys(in.History)) {
		h := in.History[x]
		turn.Executions = append(turn.Executions, round.Execution{ID: x, Events: h})
		if x == in.Row.Execution {
			continue
		}
		former := round.Row{Execution: x, Incarnation: "incarnation", Name: "order", Version: "1.0.0",
			Status:    round.ContinuedAsNew,
			LastEvent: int64(len(h)), StartedAt: h[0].At, EndedAt: h[len(h)-1].At}
		if c, ok := h[len(h)-1].Fact.(*events.Completed); ok {
			former.Status, former.Output = round.Completed, c.Output
		}
		turn.Former = append(turn.Former, former)
	}
	for k, v := range in.Values {
		turn.Values = append(turn.Values, round.ValueChange{Key: k, Value: v, Execution: in.Row.Execution, Set: began})
	}
	r, err := s.Commit(t.Context(), historytest.Batch(t, turn))
	if err != nil || r.Outcomes[0].Status != history.Committed {
		t.Fatalf("%q: %+v, %v", in.ID, r, err)
	}
	return r
}

func TestStores(t *testing.T) {
	onEachStore(t, func(t *testing.T, s history.Store) {
		var ids []string
		for i, c := range clean {
			if c.in.History[1] == nil {
				continue // no turn leaves it so
			}
			ids = append(ids, fmt.Sprint("clean-", i))
			commit(t, s, lookedAt(named(ids[len(ids)-1], c.in)))
		}
		commit(t, s, parent(childDone))
		commit(t, s, childOf(2, completed))
		r := look(t, s, acked(
			check.Acknowledged{What: check.AcknowledgedStart, Instance: ids[0], Message: "start", At: began},
			check.Acknowledged{What: check.AcknowledgedEnd, Instance: "child", Execution: 1, Status: round.Completed,
				Output: codec.Payload("1"), At: began.Add(time.Minute)},
			check.Acknowledged{What: check.AcknowledgedStart, Instance: "nobody", Message: "x",
				At: now.Add(-25 * time.Hour)}))
		if wants(t, r); r.Instances != int64(len(ids)+2) || r.Acknowledgements != 3 || r.NotJudged[check.NotKept] != 1 {
			t.Errorf("%+v", r)
		}

		plant := func(in check.Instance, rules ...check.Rule) {
			t.Helper()
			commit(t, s, in)
			if wants(t, look(t, s, func(o *check.Options) { o.Filter.IDPrefix = in.ID }), rules...); t.Failed() {
				t.FailNow()
			}
		}
		plant(lookedAt(named("early", of(story(started(), timer(time.Hour), &events.TimerFired{Timer: 2})))),
			check.TimerEarly)
		plant(lookedAt(named("twice", of(story(started(), call, done, done)))), check.AnsweredTwice)
		plant(lookedAt(changed(named("values", of(story(started(), value("k", "1")))), func(in *check.Instance) {
			in.Values["k"] = codec.Payload("2")
		})), check.ValuesDiffer)
		plant(lookedAt(changed(named("row", of(story(started(), completed))), func(in *check.Instance) {
			in.Row.Output = codec.Payload("2")
		})), check.RowDiffers)
		plant(lookedAt(named("former",
			of(story(started(), value("k", "1"), continued), story(next(1), value("k", "2"))))), check.CarriedDiffers)
		plant(lookedAt(named("unended", of(story(started(), call), story(next(0), call)))), check.RowDiffers,
			check.ContinuedDiffers, check.NoEnd)

		// A deleted instance is neither there nor lost, and a pruned execution is not a gap.
		if _, err := s.Delete(t.Context(), []string{"parent"}, history.Deletion{Force: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PruneAll(t.Context(), history.Filter{IDPrefix: "clean"}, history.Keep{},
			history.Page{}); err != nil {
			t.Fatal(err)
		}
		r = look(t, s, quiescentStarts("parent", "child", "clean-0"), func(o *check.Options) {
			o.Filter.IDPrefix = "c"
		})
		if wants(t, r); r.NotJudged[check.NotKept] != 1 {
			t.Errorf("%+v", r)
		}
		r = look(t, s, quiescentStarts("parent", "child", "never"), func(o *check.Options) {
			o.Filter.IDs = []string{"clean-0"}
			o.Quiescent, o.Overdue = false, -1
			o.Broker = &fakeBroker{}
		})
		if wants(t, r, check.StartLost); r.Findings[0].Instance != "never" || r.NotJudged[check.NotKept] != 2 {
			t.Errorf("%+v", r)
		}
	})
}

func quiescentStarts(ids ...string) func(*check.Options) {
	var list []check.Acknowledged
	for _, id := range ids {
		list = append(list, check.Acknowledged{What: check.AcknowledgedStart, Instance: id, Name: "order",
			Message: "start-" + id, At: began})
	}
	return acked(list...)
}

func TestStoredAcknowledgements(t *testing.T) {
	onEachStore(t, func(t *testing.T, s history.Store) {
		made := commit(t, s, lookedAt(of(story(started(), call))),
			events.Message{ID: "m", Instance: "x", Content: &events.EventRaised{Name: "go"}})
		late := func(o *check.Options) { o.Overdue = 25 * time.Hour }
		wants(t, look(t, s))
		s = clocked{s, now.Add(24 * time.Hour)}
		wants(t, look(t, s, late))
		r := look(t, s, late, func(o *check.Options) { o.Overdue = time.Hour })
		if wants(t, r, check.WakeOverdue, check.OutboxOverdue); r.Findings[1].Instance != "" {
			t.Errorf("%+v", r)
		}
		if err := s.RemoveOutbox(t.Context(), made.Entries); err != nil {
			t.Fatal(err)
		}
		wants(t, look(t, s, late, func(o *check.Options) { o.Overdue = time.Hour }), check.WakeOverdue)
	})
}

// ---- Memory.

// crowd is a store of many instances that it makes up when they are asked for.
type crowd struct {
	fake
	size  int
	live  uint64 // most bytes that were in use, as measured now and then
	pages int
}

func (c *crowd) instance(id string) check.Instance {
	return named(id, unread(lookedAt(of(story(started(), value("k", "1"), received(id+"-a"), received(id+"-b"),
		call))), 2))
}

func (c *crowd) List(_ context.Context, _ history.Filter, p history.Page) (list history.InstanceList, err error) {
	first := 0
	if p.Cursor != "" {
		if first, err = strconv.Atoi(p.Cursor); err != nil {
			return list, err
		}
	}
	for i := first; i < min(first+p.Size(), c.size); i++ {
		in := c.instance(fmt.Sprintf("i-%06d", i))
		list.Instances = append(list.Instances, history.Info{Instance: in.ID, Row: in.Row})
	}
	if first+p.Size() < c.size {
		list.Next = fmt.Sprint(first + p.Size())
	}
	c.measure()
	return list, nil
}

func (c *crowd) measure() {
	if c.pages++; c.pages%2 == 0 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.live = max(c.live, m.HeapAlloc)
	}
}

func (c *crowd) Load(_ context.Context, ids []string, admit func(string, round.Row) bool) ([]round.Known, error) {
	known := make([]round.Known, len(ids))
	for i, id := range ids {
		in := c.instance(id)
		if known[i] = (round.Known{Instance: id, Row: in.Row}); admit(id, in.Row) {
			known[i].History = in.History[1]
		}
	}
	return known, nil
}

func (c *crowd) ValuesOf(_ context.Context, ids []string) (map[string]map[string]history.Value, error) {
	all := make(map[string]map[string]history.Value)
	for _, id := range ids {
		all[id] = map[string]history.Value{"k": {Data: codec.Payload("1")}}
	}
	return all, nil
}

func (c *crowd) Tombstones(context.Context, []string) ([]string, error) {
	c.measure() // once for each portion of the acknowledgements
	return nil, nil
}

// TestMemoryIsBounded checks ten times as many instances and acknowledgements with about the same
// memory.
func TestMemoryIsBounded(t *testing.T) {
	measure := func(size int) uint64 {
		c := &crowd{size: size}
		log := func(yield func(check.Acknowledged, error) bool) {
			for _, x := range []string{"-a", "-b"} {
				for i := range size {
					id := fmt.Sprintf("i-%06d", i*7%size)
					if !yield(check.Acknowledged{What: check.AcknowledgedMailbox, Instance: id, Mailbox: "mail",
						Message: id + x,
						At:      began}, nil) {
						return
					}
				}
			}
		}
		r := look(t, c, func(o *check.Options) {
			o.Acknowledgements = []check.Acknowledgements{{Name: "all",
				Each: log}}
		})
		if r.Total() > 0 || r.Instances != int64(size) || r.Acknowledgements != 2*int64(size) {
			t.Fatalf("%+v", r)
		}
		return c.live
	}
	less, more := racetest.Size(2_000, 500), racetest.Size(20_000, 5_000)
	few, many := measure(less), measure(more)
	t.Logf("%d instances: %d KiB in use; %d: %d KiB", less, few>>10, more, many>>10)
	if many > few+4<<20 {
		t.Errorf("with %d instances %d bytes are in use, with %d %d", more, many, less, few)
	}
}
