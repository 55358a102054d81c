package historytest

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Bench measures a store: commits of batches of several sizes, and loads of histories of several
// lengths.
func Bench(b *testing.B, fresh func(testing.TB) *Database) {
	for _, size := range []int{1, 32, 100, 300} {
		b.Run(fmt.Sprintf("commit/turns=%d", size), func(b *testing.B) { benchCommit(b, fresh(b), size) })
	}
	for _, length := range []int64{1, 100, 10_000} {
		b.Run(fmt.Sprintf("load/events=%d", length), func(b *testing.B) { benchLoad(b, fresh(b), length) })
	}
	// The large database is made once, and only if it is asked for.
	var large *Database
	for _, m := range parkedBenches {
		b.Run(fmt.Sprintf("parked=%d/%s", *parked, m.name), func(sub *testing.B) {
			if large == nil {
				large = fresh(b)
				large.park(sub, *parked)
			}
			m.run(sub, large)
		})
	}
}

// benchCommit commits whole one-activity orchestrations, batch by batch: each instance takes two
// turns, of four events together. One iteration is one batch. The rows of the outbox are removed
// with the next batch, as the orchestrator does it.
func benchCommit(b *testing.B, db *Database, size int) {
	ctx := context.Background()
	s := db.Open(b, Options{})
	actors := make([]*Actor, size)
	var published []history.OutboxKey
	var spent cost
	rows := 0
	for n := range b.N {
		b.StopTimer()
		turns := make([]*round.Turn, size)
		for i := range actors {
			if n%2 == 0 {
				actors[i] = NewActor(fmt.Sprintf("order-%d-%d-%d", size, n, i)).At(events.Instant(time.Now()))
				turns[i] = actors[i].StartAndCall()
			} else {
				turns[i] = actors[i].finish()
			}
			rows += len(turns[i].Executions[0].Events)
		}
		batch := Batch(b, turns...)
		batch.Published = published
		before := costOf(db, s)
		before.own = ownCPU()
		b.StartTimer()
		r, err := s.Commit(ctx, batch)
		b.StopTimer()
		own := ownCPU()
		after := costOf(db, s)
		after.own = own
		spent.add(after, before)
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range r.Outcomes {
			if o.Status != history.Committed {
				b.Fatal(o)
			}
		}
		published = r.Entries
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(rows)/seconds, "rows/s")
	b.ReportMetric(float64(b.N)/seconds, "commits/s")
	spent.report(b, float64(b.N)*float64(size)/2)
}

// cost is the cost of commits, beside time.
type cost struct {
	server, own time.Duration // of CPU
	objects     uint64        // that were allocated
}

func costOf(db *Database, s history.Store) (c cost) {
	if db.ServerCPU != nil {
		c.server = db.ServerCPU(s)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.objects = m.Mallocs
	return c
}

func (c *cost) add(after, before cost) {
	c.server += after.server - before.server
	c.own += after.own - before.own
	c.objects += after.objects - before.objects
}

// report reports the cost of one orchestration.
func (c *cost) report(b *testing.B, orchestrations float64) {
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / orchestrations }
	if c.server > 0 {
		b.ReportMetric(micro(c.server), "server-us/orch")
	}
	if c.own > 0 {
		b.ReportMetric(micro(c.own), "own-us/orch")
	}
	b.ReportMetric(float64(c.objects)/orchestrations, "allocs/orch")
}

// finish is the second round of a one-activity orchestration.
func (a *Actor) finish() *round.Turn {
	t := a.Say(&events.ActivityCompleted{Schedule: 2, Result: codec.Payload(`{"receipt":"r-1"}`)})
	before := a.before
	end := a.Complete(`{"receipt":"r-1"}`)
	t.Executions[0].Events = append(t.Executions[0].Events, end.Executions[0].Events...)
	t.Row, a.before = a.Row, before
	return t
}

// benchLoad loads one instance with a history of so many events, again and again.
func benchLoad(b *testing.B, db *Database, length int64) {
	ctx := context.Background()
	s := db.Open(b, Options{})
	a := NewActor("long")
	turns := []*round.Turn{a.Start()}
	for a.Row.LastEvent < length {
		var facts []events.Fact
		for range min(1000, length-a.Row.LastEvent) {
			facts = append(facts,
				&events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(`{"sku":"a1","n":100}`)})
		}
		turns = append(turns, a.Say(facts...))
	}
	for _, t := range turns {
		if _, err := s.Commit(ctx, Batch(b, t)); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for range b.N {
		known, err := s.Load(ctx, []string{"long"}, nil)
		if err != nil || int64(len(known[0].History)) != length {
			b.Fatal(err, len(known[0].History), known[0].Unreadable)
		}
	}
	b.ReportMetric(float64(length)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// ---- With a million instances.

var parked = flag.Int("history.parked", 1_000_000, "how many instances the store's benchmarks of lists and sweeps have")

// parkedBenches are measured beside many instances that wait for timers far in the future.
var parkedBenches = []struct {
	name string
	run  func(b *testing.B, db *Database)
}{
	{"list/first", func(b *testing.B, db *Database) { benchList(b, db, history.Filter{}, 0) }},
	{"list/later", func(b *testing.B, db *Database) { benchList(b, db, history.Filter{}, 20) }},
	{"list/status_and_name", func(b *testing.B, db *Database) {
		benchList(b, db, history.Filter{Statuses: []round.Status{round.Running}, Name: "name-7"}, 5)
	}},
	{"list/prefix", func(b *testing.B, db *Database) { benchList(b, db, history.Filter{IDPrefix: "parked-0077"}, 0) }},
	{"overdue/none", func(b *testing.B, db *Database) { benchOverdue(b, db, 0) }},
	{"overdue/hundred", func(b *testing.B, db *Database) { benchOverdue(b, db, 100) }},
}

// park fills in instances that wait, without their histories: neither lists nor sweeps look at
// these. Every thousandth has ended.
func (db *Database) park(tb testing.TB, n int) {
	tb.Helper()
	if err := db.Open(tb, Options{}).Close(); err != nil {
		tb.Fatal(err)
	}
	shards := db.shards()
	at := func(from time.Time) string { return db.SecondsAfter(from, "i") }
	columns := map[string]string{
		"shard": fmt.Sprint("i % ", len(shards)), "instance": "'parked-' || substr(CAST(100000000 + i AS TEXT), 2)",
		"incarnation": "'incarnation'", "execution": "1", "last_event": "5",
		"status": "CASE WHEN i % 1000 = 0 THEN 'completed' ELSE 'running' END",
		"name":   "'name-' || CAST(i % 10 AS TEXT)", "version": "'1.0.0'", "engine": "1", "fresh": "false",
		"custom_status_version": "0", "history_bytes": "500", "unread": "0",
		"created_at": at(Began), "started_at": at(Began), "updated_at": at(Began),
		"wake_at": at(Began.Add(100 * 24 * time.Hour)),
	}
	var names, values []string
	for name, value := range columns {
		names, values = append(names, name), append(values, value)
	}
	db.exec(tb, fmt.Sprintf("INSERT INTO rondo_instances (%s) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + "+
		"1 FROM n WHERE i < %d) SELECT %s FROM n",
		strings.Join(names, ", "), n, strings.Join(values, ", ")))
	db.exec(tb, "ANALYZE")
}

// timed runs f again and again, each time after before, and reports the time that half of the calls
// and 99 of 100 stay below.
func timed(b *testing.B, before, f func()) {
	b.Helper()
	before()
	f() // the first plans, and fills caches
	var times []time.Duration
	for b.Loop() {
		b.StopTimer()
		before()
		b.StartTimer()
		began := time.Now()
		f()
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	at := func(percent int) float64 { return float64(times[(len(times)-1)*percent/100].Microseconds()) / 1000 }
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
}

// benchList reads a page of 100, so many pages behind the first.
func benchList(b *testing.B, db *Database, f history.Filter, behind int) {
	ctx := context.Background()
	s := db.Open(b, Options{})
	defer func() { _ = s.Close() }()
	var p history.Page
	page := func() history.InstanceList {
		list, err := s.List(ctx, f, p)
		if err != nil || len(list.Instances) != 100 {
			b.Fatal(len(list.Instances), err)
		}
		return list
	}
	for range behind {
		p.Cursor = page().Next
	}
	timed(b, func() {}, func() { page() })
}

// benchOverdue sweeps for overdue instances, of which there are so many each time.
func benchOverdue(b *testing.B, db *Database, due int) {
	ctx := context.Background()
	clock := NewClock()
	clock.Advance(time.Duration(due) * 24 * time.Hour / 2) // marks have gone on with the clock of the one before
	s := db.Open(b, Options{Now: clock.Now})
	defer func() { _ = s.Close() }()
	id := 0
	prepare := func() {
		clock.Advance(time.Minute)
		var turns []*round.Turn
		for range due {
			id++
			turns = append(turns,
				NewActor(fmt.Sprint("due-", due, "-", id)).At(clock.Now().Add(-time.Minute)).StartAndCall())
		}
		if _, err := s.Commit(ctx, Batch(b, turns...)); err != nil {
			b.Fatal(err)
		}
	}
	timed(b, prepare, func() {
		now := clock.Now()
		list, err := s.LeaseOverdue(ctx,
			history.Lease{Before: now.Add(time.Minute), Until: now.Add(1000 * 24 * time.Hour), Limit: 1000})
		if err != nil || len(list) != due {
			b.Fatal(len(list), due, err)
		}
	})
}
