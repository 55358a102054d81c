package cockroach

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestPlans shows that the cost of each operation depends on its own size, however many instances
// are stored. It creates 100,000 and lets the store execute everything, once without statistics and
// once with them. It explains each statement right before it is sent: PostgreSQL executes it on the
// same connection, with the same settings and parameters, reports the plan, and rolls back.
//
//   - No statement reads a table or an index without a condition, but for the sweeps' marks, of
//     which there are 32. Sequential scans are switched off for the store's connections, but that only
//     makes PostgreSQL avoid them: it would still use one if there were no other way, and the test
//     would fail.
//   - Each statement uses the indexes that are expected of it.
//   - Each reads no more rows than the table says, and no more than about 20 blocks for each: none
//     of these bounds depends on the 100,000.
//   - Statements that are prepared once (for commits, loads and sweeps) do so with plans for their
//     parameters, with plans for any parameters, and with plans that were made while the tables
//     were empty and kept.
//
// When time is short, a third of the instances is stored, and each operation is executed in one of
// the two ways.
//
// [Store.Metrics] is left out: it counts everything, and says so.
func TestPlans(t *testing.T) {
	racetest.TooMuch(t)
	t.Parallel()
	pgtest.Need(t)
	w := newCrowd(t)
	for half, statistics := range []string{"without statistics", "with statistics"} {
		w.T, w.half = t, half
		if half == 1 {
			w.again()
		}
		for i, c := range planCases {
			if testing.Short() && i%2 != half {
				continue // each once
			}
			t.Run(statistics+"/"+c.name, func(t *testing.T) {
				w.T = t
				do := func() error { return c.do(w) }
				if c.prepare != nil {
					do = c.prepare(w)
				}
				w.x.t, w.x.seen = t, nil
				defer func() { w.x.t = nil }()
				if err := do(); err != nil {
					t.Fatal(err)
				}
				c.check(t, w.x.seen)
			})
		}
	}
}

// planCase is something that the store does, and how PostgreSQL should carry that out.
type planCase struct {
	name string
	do   func(*crowd) error
	// prepare executes the statements that are not checked, and returns a function with those that
	// are.
	prepare func(*crowd) func() error
	// rows is the most that any statement may read, of tables and indexes, whether it is then left
	// out or not. A row is good for 20 blocks.
	rows int
	// indexes are those that the statements use, one after the other: "-" if a statement reads no
	// table, "whole x" if it reads one without a condition.
	indexes string
}

func (c planCase) check(t *testing.T, all []*seen) {
	t.Helper()
	var got []string
	for _, s := range all {
		for i, p := range s.plans {
			if p.how == early && len(p.indexes) > 0 && p.root.Cost == s.plans[i-1].root.Cost {
				t.Errorf("the plan of the empty tables was not kept:\n%.200s", s.sql)
			}
			got = append(got, cmp.Or(strings.Join(p.indexes, " "), "-"))
			blocks := 100 + 20*c.rows
			t.Logf("%d rows, %d blocks, %s (%s): %.90s", p.rows, p.blocks, got[len(got)-1], p.how, s.kind)
			if p.rows > c.rows || p.blocks > blocks {
				t.Errorf("it reads %d rows (at most %d) and %d blocks (at most %d), planned %s:\n%.1500s\n%v", p.rows,
					c.rows, p.blocks, blocks, p.how, s.sql, p.root)
			}
		}
	}
	if have := strings.Join(slices.Compact(got), "; "); !slices.Contains(strings.Split(c.indexes, " or "), have) {
		t.Errorf("it uses   %s\nexpected: %s", have, c.indexes)
		for _, s := range all {
			for _, p := range s.plans {
				t.Logf("%.1500s\n%s: %v", s.sql, p.how, p.root)
			}
		}
	}
}

// ---- What the store does.

var planCases = slices.Concat(commitCases, readCases, listCases, removeCases, scheduleCases)

var commitCases = []planCase{
	{name: "commit 1", rows: 50, indexes: "outbox_pkey; instances_pkey",
		prepare: commits(1, nil)},
	{name: "commit 16", rows: 50, indexes: "outbox_pkey; executions_pkey instances_pkey",
		prepare: commits(16, nil)},
	{name: "commit 512", rows: 800, indexes: "outbox_pkey; executions_pkey instances_pkey",
		prepare: commits(512, nil)},
	{name: "commit 16 with extras", rows: 50, indexes: "outbox_pkey; executions_pkey instances_pkey",
		prepare: commits(16, extras)},
	{name: "commit 512 with extras", rows: 800, indexes: "outbox_pkey; executions_pkey instances_pkey",
		prepare: commits(512, extras)},
	{name: "commit 1 that begins", rows: 50, indexes: "outbox_pkey; instances_pkey", prepare: usualCommits(1, 0)},
	{name: "commit 64 that begin", rows: 100, indexes: "outbox_pkey; instances_pkey", prepare: usualCommits(64, 0)},
	{name: "commit 1 that goes on", rows: 50, indexes: "outbox_pkey; instances_pkey", prepare: usualCommits(0, 1)},
	{name: "commit 1 that begins and 1 that goes on", rows: 50, indexes: "outbox_pkey; instances_pkey",
		prepare: usualCommits(1, 1)},
	{name: "commit 64 that begin or go on", rows: 100, indexes: "outbox_pkey; instances_pkey",
		prepare: usualCommits(32, 32)},
	{name: "commit 1 in several statements", rows: 50,
		indexes: "executions_pkey instances_pkey; outbox_pkey; values_pkey; -",
		prepare: commits(1, several)},
	{name: "commit 16 in several statements", rows: 50,
		indexes: "executions_pkey instances_pkey; outbox_pkey; values_pkey; -",
		prepare: commits(16, several)},
	{name: "commit 512 in several statements", rows: 800,
		indexes: "executions_pkey instances_pkey; outbox_pkey; values_pkey; -",
		prepare: commits(512, several)},
	{name: "commit new incarnations", rows: 20,
		indexes: "instances_pkey; executions_pkey instances_pkey; attributes_pkey; values_pkey; -",
		prepare: newIncarnations},
	{name: "commit refused", rows: 50, indexes: "instances_pkey; executions_pkey instances_pkey",
		prepare: refused},
}

// commits begins n children of instances that are there, and takes as many others further.
func commits(n int, change func(a *historytest.Actor) *round.Turn) func(*crowd) func() error {
	return func(w *crowd) func() error {
		running := w.running(n)
		var turns []*round.Turn
		for i, parent := range running {
			if n > 1 && i%2 == 0 {
				child := historytest.NewActor(w.id("child")).At(w.now)
				turns = append(turns, child.StartAndCall(historytest.WithParent(parent),
					historytest.WithAttributes(attributesOf(change != nil, i))))
				continue
			}
			turn := parent.Note()
			if change != nil {
				turn = historytest.Together(turn, change(parent))
			}
			turns = append(turns, historytest.Sends(turn, w.id("message"), "somebody"))
		}
		batch := historytest.Batch(w, turns...)
		batch.Published = w.someKeys(20)
		return func() error { return w.commits(batch) }
	}
}

// usualCommits begins instances without a parent, and commits further turns to others.
func usualCommits(fresh, known int) func(*crowd) func() error {
	return func(w *crowd) func() error {
		var turns []*round.Turn
		for range fresh {
			turns = append(turns, historytest.NewActor(w.id("fresh")).At(w.now).StartAndCall())
		}
		if known > 0 {
			for _, a := range w.running(known) {
				turns = append(turns, historytest.Sends(a.Note(), w.id("message"), "somebody"))
			}
		}
		batch := historytest.Batch(w, turns...)
		batch.Published = w.someKeys(20)
		return func() error { return w.commits(batch) }
	}
}

func attributesOf(some bool, i int) map[string]string {
	if !some {
		return nil
	}
	return map[string]string{"region": "eu", "customer": fmt.Sprint("c-", i)}
}

// extras sets a value and goes on to the next execution.
func extras(a *historytest.Actor) *round.Turn {
	return historytest.Together(a.Set("k", `1`), a.ContinueAsNew())
}

// several does so and removes a value, too.
func several(a *historytest.Actor) *round.Turn { return historytest.Together(extras(a), a.Remove("b")) }

// newIncarnations begins instances anew that have ended.
func newIncarnations(w *crowd) func() error {
	var turns []*round.Turn
	for _, a := range w.resume(w.pick("status = 'completed' AND attributes IS NOT NULL", 16)...) {
		turns = append(turns, a.Start(historytest.WithAttributes(attributesOf(true, 1))))
	}
	batch := historytest.Batch(w, turns...)
	return func() error { return w.commits(batch) }
}

// refused commits turns that others have taken before.
func refused(w *crowd) func() error {
	var turns []*round.Turn
	for _, a := range w.running(64) {
		if len(turns)%2 == 0 {
			turns = append(turns, a.Note())
		} else {
			parent := historytest.NewActor(w.id("nobody"))
			parent.Start()
			turns = append(turns, historytest.NewActor(w.id("orphan")).At(w.now).Start(historytest.WithParent(parent)))
		}
		a.Row.LastEvent++
	}
	batch := historytest.Batch(w, turns...)
	for _, d := range batch.Turns {
		if d.Turn.Expected.Execution > 0 {
			d.Turn.Expected.Incarnation = "another"
		}
	}
	return func() error {
		result, err := w.store.Commit(w.Context(), batch)
		for _, o := range result.Outcomes {
			if o.Status == history.Committed {
				err = fmt.Errorf("a turn was taken")
			}
		}
		return err
	}
}

var readCases = []planCase{
	{name: "load 1 of 100 events", rows: 150, indexes: "instances_pkey; history_pkey instances_pkey",
		do: func(w *crowd) error { return w.load(w.long(1)) }},
	{name: "load 64 of 100 events", rows: 10000, indexes: "instances_pkey; history_pkey instances_pkey",
		do: func(w *crowd) error { return w.load(w.long(64)) }},
	{name: "load 1", rows: 5, indexes: "instances_pkey; history_pkey instances_pkey",
		do: func(w *crowd) error { return w.load(w.short(1)) }},
	{name: "load 64", rows: 300, indexes: "instances_pkey; history_pkey instances_pkey",
		do: func(w *crowd) error { return w.load(w.short(64)) }},

	{name: "overdue, none", rows: 20, indexes: "whole marks; instances_by_wake; -",
		do: func(w *crowd) error {
			return w.takes(0)(w.store.LeaseOverdue(w.Context(),
				history.Lease{Before: w.now.Add(-time.Hour), Until: w.now, Limit: 100}))
		}},
	{name: "overdue, some", rows: 250, indexes: "whole marks; instances_by_wake; instances_pkey",
		do: func(w *crowd) error {
			return w.takes(100)(w.store.LeaseOverdue(w.Context(),
				history.Lease{Before: w.now, Until: w.now.Add(time.Minute), Limit: 100}))
		}},
	{name: "outbox entries, none", rows: 20, indexes: "whole marks; outbox_pkey; -",
		do: func(w *crowd) error {
			return w.leaseEntries(0, history.Lease{Before: w.now.Add(-time.Hour), Until: w.now.Add(time.Minute),
				Limit: 100})
		}},
	{name: "outbox entries, some", rows: 300, indexes: "whole marks; outbox_pkey",
		do: func(w *crowd) error {
			return w.leaseEntries(100,
				history.Lease{Before: w.now.Add(-time.Minute), Until: w.now.Add(time.Minute), Limit: 100})
		}},
	// Without statistics, PostgreSQL thinks that a shard has a 200th of all rows, not a 16th. So it
	// may read all of a shard instead of many single rows, but no more than some 12 times as many
	// rows as it was told to remove.
	{name: "remove outbox", rows: 1500, indexes: "outbox_pkey",
		prepare: func(w *crowd) func() error {
			keys := w.someKeys(100)
			return func() error { return w.store.RemoveOutbox(w.Context(), keys) }
		}},
	{name: "count outbox entries", rows: 150, indexes: "outbox_pkey",
		do: func(w *crowd) error { _, err := w.store.CountOutbox(w.Context(), 100); return err }},
	{name: "oldest outbox entry", rows: 20, indexes: "outbox_pkey",
		do: func(w *crowd) error { _, err := w.store.OldestOutbox(w.Context()); return err }},

	{name: "instance", rows: 5, indexes: "instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Instance(w.Context(), w.eternal()); return err }},
	{name: "executions", rows: 50, indexes: "instances_pkey; executions_pkey instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Executions(w.Context(), w.eternal(), 10, 20); return err }},
	{name: "events", rows: 50, indexes: "instances_pkey; history_pkey",
		do: func(w *crowd) error { _, err := w.store.Events(w.Context(), w.long(1)[0], 0, 40, 20); return err }},
	{name: "events of a former execution", rows: 5, indexes: "instances_pkey; executions_pkey; history_pkey",
		do: func(w *crowd) error { _, err := w.store.Events(w.Context(), w.eternal(), 290, 0, 20); return err }},
	{name: "executions within bytes", rows: 100,
		indexes: "executions_pkey instances_pkey; instances_pkey; executions_pkey instances_pkey",
		do: func(w *crowd) error {
			_, err := w.store.Within(1<<20).Executions(w.Context(), w.eternal(), 10, 20)
			return err
		}},
	{name: "events within bytes", rows: 100, indexes: "instances_pkey; history_pkey",
		do: func(w *crowd) error {
			_, err := w.store.Within(1<<20).Events(w.Context(), w.long(1)[0], 0, 40, 20)
			return err
		}},
	{name: "list within bytes", rows: 1200, indexes: "instances_by_status instances_pkey",
		do: func(w *crowd) error {
			_, err := w.store.Within(1<<20).List(w.Context(), history.Filter{}, history.Page{})
			return err
		}},
	{name: "stats", rows: 5, indexes: "instances_pkey; values_pkey",
		do: func(w *crowd) error { _, err := w.store.Stats(w.Context(), w.eternal()); return err }},
	{name: "values", rows: 5, indexes: "instances_pkey values_pkey",
		do: func(w *crowd) error { _, err := w.store.Values(w.Context(), w.eternal()); return err }},
	{name: "values of several", rows: 600, indexes: "instances_pkey values_pkey",
		do: func(w *crowd) error { _, err := w.store.ValuesOf(w.Context(), manyIDs(100)); return err }},
	{name: "tombstones", rows: 200, indexes: "instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Tombstones(w.Context(), manyIDs(100)); return err }},
	{name: "old outbox entries", rows: 300, indexes: "outbox_pkey",
		do: func(w *crowd) error {
			_, err := w.store.OldOutbox(w.Context(), w.now.Add(-time.Minute), 10)
			return err
		}},
	{name: "value", rows: 5, indexes: "instances_pkey values_pkey",
		do: func(w *crowd) error { _, _, err := w.store.Value(w.Context(), w.eternal(), "a"); return err }},
	{name: "custom status", rows: 5, indexes: "instances_pkey",
		do: func(w *crowd) error { _, err := w.store.CustomStatus(w.Context(), w.eternal(), 0); return err }},
	{name: "tree", rows: 5, indexes: "instances_pkey; instances_by_parent",
		do: func(w *crowd) error { _, err := w.store.Tree(w.Context(), "order-050000"); return err }},
}

var listCases = []planCase{
	lists("all", history.Filter{}, planCase{rows: 200, indexes: "instances_by_status instances_pkey"}),
	lists("status", history.Filter{Statuses: []round.Status{round.Failed}},
		planCase{rows: 100, indexes: "instances_by_status instances_pkey"}),
	lists("name", history.Filter{Name: "orders"}, planCase{rows: 200, indexes: "instances_by_name instances_pkey"}),
	usual("all", history.Filter{}, planCase{rows: 600, indexes: "instances_by_status instances_pkey"}),
	usual("status", history.Filter{Statuses: []round.Status{round.Failed}},
		planCase{rows: 600, indexes: "instances_by_status instances_pkey"}),
	usual("name and status", history.Filter{Name: "orders", Statuses: []round.Status{round.Running}},
		planCase{rows: 600, indexes: "instances_by_name instances_pkey"}),
	lists("rare name", history.Filter{Name: "audits"},
		planCase{rows: 100, indexes: "instances_by_name instances_pkey"}),
	lists("name and status", history.Filter{Name: "orders", Statuses: []round.Status{round.Running, round.Failed}},
		planCase{rows: 100, indexes: "instances_by_name instances_pkey"}),
	lists("prefix", history.Filter{IDPrefix: "order-05"}, planCase{rows: 100, indexes: "instances_pkey"}),
	lists("prefix and status", history.Filter{IDPrefix: "order-05", Statuses: []round.Status{round.Completed}},
		planCase{rows: 100, indexes: "instances_pkey"}),
	lists("ids", history.Filter{IDs: manyIDs(100)}, planCase{rows: 200, indexes: "instances_pkey"}),
	lists("parent", history.Filter{Parent: "order-000000"},
		planCase{rows: 100, indexes: "instances_by_parent instances_pkey"}),
	lists("attribute", history.Filter{Attributes: map[string]string{"region": "eu"}},
		planCase{rows: 150, indexes: "attributes_pkey instances_pkey"}),
	lists("rare attribute", history.Filter{Attributes: map[string]string{"customer": "c-77"}},
		planCase{rows: 50, indexes: "attributes_pkey instances_pkey"}),
	lists("attributes", history.Filter{Attributes: map[string]string{"customer": "c-77", "region": "eu"}},
		planCase{rows: 50, indexes: "attributes_pkey instances_pkey"}),
	lists("rare attribute and status",
		history.Filter{Attributes: map[string]string{"customer": "c-77"}, Statuses: []round.Status{round.Completed}},
		planCase{rows: 50, indexes: "attributes_pkey instances_pkey"}),
	lists("rare attribute and name", history.Filter{Attributes: map[string]string{"customer": "c-77"}, Name: "orders"},
		planCase{rows: 50, indexes: "attributes_pkey instances_pkey"}),
	lists("attribute and prefix", history.Filter{Attributes: map[string]string{"region": "eu"}, IDPrefix: "order-05"},
		planCase{rows: 200, indexes: "attributes_pkey instances_pkey"}),
	lists("attribute and parent", history.Filter{Attributes: map[string]string{"region": "eu"}, Parent: "order-000000"},
		planCase{rows: 150, indexes: "attributes_pkey instances_by_parent instances_pkey"}),
	lists("created", history.Filter{CreatedAfter: crowdBegan.Add(40_000 * time.Minute),
		CreatedBefore: crowdBegan.Add(60_000 * time.Minute)},
		planCase{rows: 200, indexes: "instances_by_status instances_pkey"}),
	// No index leads these. They read what the index of all gives until a page is full: at worst a
	// page from each of 112 places if most fit,
	lists("roots", history.Filter{RootsOnly: true},
		planCase{rows: 2500, indexes: "instances_by_status instances_pkey"}),
	lists("ended before", history.Filter{EndedBefore: crowdBegan.Add(50_000 * time.Minute)},
		planCase{rows: 150, indexes: "instances_by_status instances_pkey"}),
	lists("version", history.Filter{Version: "2.0.0"},
		planCase{rows: 2500, indexes: "instances_by_status instances_pkey"}),
	// and everything that is newer than the page otherwise (here 10,000 instances).
	lists("old version", history.Filter{Version: "1.0.0"},
		planCase{rows: 12000, indexes: "instances_by_status instances_pkey"}),
	counts("all, up to 100", history.Filter{}, 100,
		planCase{rows: 150, indexes: "instances_by_status or instances_by_status instances_pkey"}),
	counts("status, up to 100", history.Filter{Statuses: []round.Status{round.Failed}}, 100,
		planCase{rows: 150, indexes: "instances_by_status"}),
	counts("rare name", history.Filter{Name: "audits"}, 0, planCase{rows: 200, indexes: "instances_by_name"}),
	counts("rare attribute", history.Filter{Attributes: map[string]string{"customer": "c-77"}}, 0,
		planCase{rows: 50, indexes: "attributes_pkey instances_pkey"}),
	counts("prefix, up to 100", history.Filter{IDPrefix: "order-05"}, 100,
		planCase{rows: 150, indexes: "instances_pkey"}),
	counts("parent", history.Filter{Parent: "order-000010"}, 0, planCase{rows: 5, indexes: "instances_by_parent"}),
	{name: "last update", rows: 8000, indexes: "instances_pkey", // a statement reads one of 16 shards
		do: func(w *crowd) error { _, err := w.store.LastUpdate(w.Context(), w.now); return err }},
}

// lists is the first and the third page of a list.
func lists(name string, f history.Filter, c planCase) planCase {
	return pages("list/"+name, f, 20, c)
}

// usual are the same pages of a list that stays prepared, because its size is the usual one.
func usual(name string, f history.Filter, c planCase) planCase {
	return pages("usual list/"+name, f, 0, c)
}

func pages(name string, f history.Filter, limit int, c planCase) planCase {
	c.name = name
	c.do = func(w *crowd) error {
		page := history.Page{Limit: limit}
		for range 3 {
			list, err := w.store.List(w.Context(), f, page)
			if err != nil || list.Next == "" {
				return err
			}
			page.Cursor = list.Next
		}
		return nil
	}
	return c
}

func counts(name string, f history.Filter, limit int64, c planCase) planCase {
	c.name = "count/" + name
	c.do = func(w *crowd) error {
		n, err := w.store.Count(w.Context(), f, limit)
		if err == nil && n == 0 {
			err = fmt.Errorf("nothing was counted")
		}
		return err
	}
	return c
}

func manyIDs(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("order-%06d", i*997))
	}
	return ids
}

var removeCases = []planCase{
	{name: "delete a tree", rows: 10,
		indexes: "instances_pkey; instances_by_parent; instances_pkey; attributes_pkey; instances_pkey; " +
			"history_pkey; " +
			"executions_pkey; values_pkey; instances_pkey",
		do: func(w *crowd) error {
			root := racetest.Short(60_000, 12_000) + 100*w.half // older than what commits have changed
			_, err := w.store.Delete(w.Context(), []string{fmt.Sprintf("order-%06d", root)},
				history.Deletion{Force: true})
			return err
		}},
	{name: "delete ended", rows: 500,
		indexes: "instances_by_status instances_pkey; instances_pkey; instances_by_parent; instances_pkey; " +
			"attributes_pkey; " +
			"instances_pkey; history_pkey; executions_pkey; values_pkey; instances_pkey; history_pkey; executions_pkey",
		do: func(w *crowd) error {
			_, err := w.store.DeleteEnded(w.Context(), history.Filter{EndedBefore: crowdBegan.Add(70_000 * time.Minute),
				RootsOnly: true}, history.Page{Limit: 100})
			return err
		}},
	{name: "prune", rows: 1000,
		indexes: "instances_pkey; executions_pkey instances_pkey; executions_pkey history_pkey; executions_pkey",
		do: func(w *crowd) error {
			_, err := w.store.Prune(w.Context(), w.eternal(),
				history.Keep{Last: 200 - 100*w.pruned, EndedBefore: w.now})
			w.pruned++
			return err
		}},
	{name: "tidy", rows: 800,
		indexes: "instances_by_status; instances_pkey; history_pkey; executions_pkey; values_pkey; instances_pkey; " +
			"instances_by_status; instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Tidy(w.Context()); return err }},
}
