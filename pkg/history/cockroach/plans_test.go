package cockroach

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestPlans shows that what the store does costs what it is about, however many instances there
// are. It makes 100,000 and lets the store do everything, once without statistics and once with
// them. It looks at each statement right before it is sent: PostgreSQL carries it out on the same
// connection, with the same settings and parameters, tells how, and takes it back.
//
//   - No statement reads a table or an index without a condition, but for the sweeps' marks, of
//     which there are 32, and for counting promises, which stops at its limit. Sequential scans are
//     switched off for the store's connections, but that only makes PostgreSQL avoid them: it would
//     still use one if there were no other way, and the test would fail.
//   - Each statement uses the indexes that are expected of it.
//   - Each reads no more rows than the table says, and no more than about 20 blocks for each: none
//     of these bounds depends on the 100,000.
//   - Statements that are prepared once (for commits, loads and sweeps) do so with plans for their
//     parameters, with plans for any parameters, and with plans that were made while the tables
//     were empty and kept.
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
		for _, c := range planCases {
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
	// prepare does what must not be looked at, and gives what must.
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

var planCases = slices.Concat(commitCases, readCases, listCases, removeCases)

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

// usualCommits begins instances that are nobody's children, and takes others further.
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
			return w.takes(0)(w.store.TakeOverdue(w.Context(),
				history.Take{Before: w.now.Add(-time.Hour), Until: w.now, Limit: 100}))
		}},
	{name: "overdue, some", rows: 250, indexes: "whole marks; instances_by_wake; instances_pkey",
		do: func(w *crowd) error {
			return w.takes(100)(w.store.TakeOverdue(w.Context(),
				history.Take{Before: w.now, Until: w.now.Add(time.Minute), Limit: 100}))
		}},
	{name: "promises, none", rows: 20, indexes: "whole marks; outbox_pkey; -",
		do: func(w *crowd) error {
			return w.promises(0, history.Take{Before: w.now.Add(-time.Hour), Until: w.now.Add(time.Minute), Limit: 100})
		}},
	{name: "promises, some", rows: 300, indexes: "whole marks; outbox_pkey",
		do: func(w *crowd) error {
			return w.promises(100,
				history.Take{Before: w.now.Add(-time.Minute), Until: w.now.Add(time.Minute), Limit: 100})
		}},
	// Without statistics, PostgreSQL thinks that a shard has a 200th of all rows, not a 16th. So it
	// may read all of a shard instead of many single rows, but no more than some 12 times as many
	// rows as it was told to remove.
	{name: "remove promises", rows: 1500, indexes: "outbox_pkey",
		prepare: func(w *crowd) func() error {
			keys := w.someKeys(100)
			return func() error { return w.store.RemovePromises(w.Context(), keys) }
		}},
	{name: "count promises", rows: 150, indexes: "whole outbox_pkey",
		do: func(w *crowd) error { _, err := w.store.CountPromises(w.Context(), 100); return err }},

	{name: "instance", rows: 5, indexes: "instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Instance(w.Context(), w.eternal()); return err }},
	{name: "executions", rows: 50, indexes: "instances_pkey; executions_pkey instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Executions(w.Context(), w.eternal(), 10, 20); return err }},
	{name: "events", rows: 50, indexes: "instances_pkey; history_pkey",
		do: func(w *crowd) error { _, err := w.store.Events(w.Context(), w.long(1)[0], 0, 40, 20); return err }},
	{name: "events of a former execution", rows: 5, indexes: "instances_pkey; executions_pkey; history_pkey",
		do: func(w *crowd) error { _, err := w.store.Events(w.Context(), w.eternal(), 290, 0, 20); return err }},
	{name: "stats", rows: 5, indexes: "instances_pkey; values_pkey",
		do: func(w *crowd) error { _, err := w.store.Stats(w.Context(), w.eternal()); return err }},
	{name: "values", rows: 5, indexes: "instances_pkey values_pkey",
		do: func(w *crowd) error { _, err := w.store.Values(w.Context(), w.eternal()); return err }},
	{name: "values of several", rows: 600, indexes: "instances_pkey values_pkey",
		do: func(w *crowd) error { _, err := w.store.ValuesOf(w.Context(), manyIDs(100)); return err }},
	{name: "tombstones", rows: 200, indexes: "instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Tombstones(w.Context(), manyIDs(100)); return err }},
	{name: "old promises", rows: 300, indexes: "outbox_pkey",
		do: func(w *crowd) error {
			_, err := w.store.OldPromises(w.Context(), w.now.Add(-time.Minute), 10)
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
			_, err := w.store.Delete(w.Context(), []string{fmt.Sprintf("order-%06d", 60_000+100*w.half)},
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
			_, err := w.store.Prune(w.Context(), w.eternal(), history.Keep{Last: 200 - 100*w.half, EndedBefore: w.now})
			return err
		}},
	{name: "tidy", rows: 800,
		indexes: "instances_by_status; instances_pkey; history_pkey; executions_pkey; values_pkey; instances_pkey; " +
			"instances_by_status; instances_pkey",
		do: func(w *crowd) error { _, err := w.store.Tidy(w.Context()); return err }},
}

// ---- A hundred thousand instances.

// crowd is a store with many instances.
type crowd struct {
	*testing.T
	x     *explainer
	store *Store // looked at
	blind *Store // not looked at
	conn  *pgx.Conn
	now   time.Time
	half  int
	n     int
}

const crowdSize = 100_000

// Each minute, an instance began. The last one began just now.
var (
	crowdBegan = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	crowdNow   = crowdBegan.Add(crowdSize * time.Minute)
)

func newCrowd(t *testing.T) *crowd {
	address := pgtest.Database(t)
	w := &crowd{T: t, x: &explainer{early: make(map[string]string)}, now: crowdNow}
	// The clock moves with each look at it: promises of one moment may draw the same number, and
	// only the store tries again then.
	var looks atomic.Int64
	opened := func(o Options) *Store {
		o.Log = slog.New(slog.DiscardHandler)
		o.Now = func() time.Time { return w.now.Add(time.Duration(looks.Add(1)) * time.Microsecond) }
		s, err := Open(t.Context(), address, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	w.blind = opened(Options{})
	// One connection has all the prepared statements.
	w.store = opened(Options{MaxConns: 1, Configure: func(c *pgxpool.Config) { c.ConnConfig.Tracer = w.x }})
	var err error
	if w.conn, err = pgx.Connect(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close(context.Background()) })
	for _, table := range []string{"instances", "history", "executions", "values", "attributes", "outbox", "marks"} {
		w.exec("ALTER TABLE rondo_" + table + " SET (autovacuum_enabled = off)") // it makes statistics
	}
	// its schema makes PostgreSQL forget all plans
	w.exec("CREATE TEMPORARY TABLE crowd (i INT4, instance TEXT, shard INT2)")
	w.planEarly()
	w.fill()
	return w
}

func (w *crowd) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.conn.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// planEarly prepares the statements that are kept while there is nothing, and makes their plans.
func (w *crowd) planEarly() {
	conn, err := w.store.pool.Acquire(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Release()
	w.x.t = w.T
	defer func() { w.x.t = nil }()
	st := w.store.statements
	for i, sql := range []string{
		st.fresh, st.known, st.both, st.commit, st.commitExtras, st.instances, st.history, st.former, st.values,
		st.attributes, st.rows, st.events,
		duePromises, takePromises, removePromise, removePromises, dueWakes, takeOverdue,
	} {
		name := fmt.Sprintf("early_%d", i)
		d, err := conn.Conn().PgConn().Prepare(w.Context(), name, sql, nil)
		if err != nil {
			w.Fatal(err)
		}
		nothing := strings.TrimSuffix(strings.Repeat("NULL, ", len(d.ParamOIDs)), ", ")
		w.x.explain(w.Context(), conn.Conn(), "generic", name+"("+nothing+")", sql)
		w.x.early[sql] = name
	}
}

// fill makes the instances.
func (w *crowd) fill() {
	id := func(i int) string { return fmt.Sprintf("order-%06d", i) }
	_, err := w.conn.CopyFrom(w.Context(), pgx.Identifier{"crowd"}, []string{"i", "instance", "shard"},
		pgx.CopyFromSlice(crowdSize, func(i int) ([]any, error) {
			return []any{i, id(i), history.ShardOf(id(i))}, nil
		}))
	if err != nil {
		w.Fatal(err)
	}
	// One in twenty runs, and has waited since it began. One in ten is a child, and the oldest
	// instance has 2,000 more.
	w.exec(`INSERT INTO rondo_instances (shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine,
			fresh, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at,
			parent_instance, parent_incarnation, parent_execution, parent_event,
			start_message, attributes, output)
		SELECT shard, instance, 'incarnation-' || i, CASE WHEN i = 20 THEN 301 ELSE 1 END, CASE WHEN i % 500 = 40 THEN 100 ELSE 2 END, '', 0, 0,
			CASE WHEN i % 20 = 0 THEN 'running' WHEN i % 500 = 7 THEN 'suspended' WHEN i % 1000 = 11 THEN 'halted' WHEN i % 50 = 3 THEN 'failed'
				WHEN i % 100 = 5 THEN 'cancelled' WHEN i % 200 = 6 THEN 'terminated' WHEN i % 2000 = 13 THEN 'deleting' WHEN i % 40 = 14 THEN 'deleted' ELSE 'completed' END,
			CASE WHEN i % 97 < 50 THEN 'orders' WHEN i % 97 < 80 THEN 'payments' WHEN i % 97 < 96 THEN 'reports' WHEN i % 7 = 0 THEN 'audits' ELSE 'refunds' END,
			CASE WHEN i < 90000 THEN '1.0.0' ELSE '2.0.0' END, 1, false, 0, 500, 0,
			at, at, at, CASE WHEN i % 20 > 0 THEN at + INTERVAL '30 seconds' END, CASE WHEN i % 20 = 0 THEN $2::TIMESTAMPTZ + i % 600 * INTERVAL '1 second' END,
			p, 'incarnation-' || i / 10 * 10, CASE WHEN p IS NOT NULL THEN 1 END, CASE WHEN p IS NOT NULL THEN 2 END,
			'start-' || i, convert_to('{"customer":"c-' || i % 10000 || '","region":"' || (ARRAY['eu', 'us', 'ap'])[1 + i % 3] || '"}', 'UTF8'), '{"receipt":"r-1"}'
		FROM (SELECT *, $1::TIMESTAMPTZ + i * INTERVAL '1 minute' AS at,
			CASE WHEN i % 10 = 9 THEN 'order-' || lpad((i - 9)::TEXT, 6, '0') WHEN i % 50 = 1 THEN 'order-000000' END AS p FROM crowd) c`,
		crowdBegan, crowdNow.Add(-time.Minute))
	a := historytest.NewActor("a")
	a.Start()
	a.Notes(99)
	var data [][]byte
	for _, e := range a.Events[1] {
		d, err := events.EncodeEvent(e)
		if err != nil {
			w.Fatal(err)
		}
		data = append(data, d)
	}
	w.exec(`INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
		SELECT shard, instance, x, e, e, ($1::BYTEA[])[e]
		FROM rondo_instances CROSS JOIN LATERAL generate_series(1, execution) x CROSS JOIN LATERAL generate_series(1, last_event) e
		WHERE status <> 'deleted'`, data)
	w.exec(`INSERT INTO rondo_executions (shard, instance, execution, incarnation, name, version, engine, status, started_at, ended_at, last_event, history_bytes)
		SELECT shard, instance, x - CASE WHEN execution = 1 THEN 3 ELSE 0 END, incarnation, name, version, 1, 'continued_as_new', created_at, created_at, 2, 500
		FROM rondo_instances CROSS JOIN LATERAL generate_series(1, greatest(3, execution - 1)) x WHERE status = 'running'`)
	w.exec(`INSERT INTO rondo_values (shard, instance, key, value, execution)
		SELECT shard, instance, k, '1', 1 FROM rondo_instances CROSS JOIN unnest(ARRAY['a', 'b']) k
		WHERE status IN ('running', 'failed')`)
	w.exec(`INSERT INTO rondo_attributes (shard, instance, name, value, created_at)
		SELECT i.shard, i.instance, a.key, a.value, i.created_at
		FROM rondo_instances i CROSS JOIN LATERAL jsonb_each_text(convert_from(i.attributes, 'UTF8')::JSONB) a
		WHERE i.status NOT IN ('deleting', 'deleted')`)
	promises := "INSERT INTO rondo_outbox (shard, id, messages) SELECT i % 16, $1::INT8 + i * 4096, '' FROM " +
		"generate_series(1, $2::INT8) i"
	w.exec(promises, history.PromiseID(crowdNow, 0), 20_000) // none of them is due
	w.exec(promises, history.PromiseID(crowdNow.Add(-2*time.Minute), 0), 1000)
}

// again makes statistics, and undoes what the first half has swept.
func (w *crowd) again() {
	w.exec("DELETE FROM rondo_marks")
	w.exec("UPDATE rondo_instances SET status = 'deleting' WHERE status = 'deleted' AND instance < 'order-003'")
	w.exec("ANALYZE")
	w.x.early = nil // statistics make PostgreSQL plan anew
}

// id is a new one.
func (w *crowd) id(kind string) string {
	w.n++
	return fmt.Sprintf("%s-%d", kind, w.n)
}

// pick finds instances that a condition holds for.
func (w *crowd) pick(where string, n int) (ids []string) {
	w.Helper()
	rows, err := w.conn.Query(w.Context(),
		"SELECT instance FROM rondo_instances WHERE instance < 'p' AND "+where+" ORDER BY instance DESC LIMIT $1", n)
	if err == nil {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(ids) != n {
		w.Fatal(ids, err)
	}
	return ids
}

func (w *crowd) long(n int) []string  { return w.pick("last_event = 100 AND status = 'running'", n) }
func (w *crowd) short(n int) []string { return w.pick("last_event = 2 AND status = 'completed'", n) }

// eternal has many executions.
func (w *crowd) eternal() string { return "order-000020" }

func (w *crowd) resume(ids ...string) (list []*historytest.Actor) {
	known, err := w.blind.Load(w.Context(), ids, nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, k := range known {
		if k.Unreadable != nil {
			w.Fatal(k.Unreadable)
		}
		list = append(list, historytest.Resume(k, w.now))
	}
	return list
}

// running are instances that can be taken further.
func (w *crowd) running(n int) []*historytest.Actor {
	return w.resume(w.pick("status = 'running' AND last_event = 2", n)...)
}

func (w *crowd) commits(b history.Batch) error {
	result, err := w.store.Commit(w.Context(), b)
	for _, o := range result.Outcomes {
		if o.Status != history.Committed {
			return fmt.Errorf("a turn is not taken: %v %v", o.Status, o.Err)
		}
	}
	return err
}

func (w *crowd) load(ids []string) error {
	known, err := w.store.Load(w.Context(), ids, nil)
	for _, k := range known {
		if err == nil {
			err = k.Unreadable
		}
	}
	return err
}

// someKeys are those of promises that are there.
func (w *crowd) someKeys(n int) (keys []history.PromiseKey) {
	w.Helper()
	rows, err := w.conn.Query(w.Context(),
		"SELECT shard, id FROM rondo_outbox WHERE shard = 3 ORDER BY id DESC LIMIT $1", n)
	if err == nil {
		keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[history.PromiseKey])
	}
	if err != nil || len(keys) != n {
		w.Fatal(keys, err)
	}
	return keys
}

func (w *crowd) takes(n int) func([]history.Overdue, error) error {
	return func(got []history.Overdue, err error) error {
		if err == nil && len(got) != n {
			err = fmt.Errorf("%d were taken", len(got))
		}
		return err
	}
}

func (w *crowd) promises(n int, take history.Take) error {
	got, err := w.store.TakePromises(w.Context(), take)
	if err == nil && len(got) != n {
		err = fmt.Errorf("%d were taken", len(got))
	}
	return err
}
