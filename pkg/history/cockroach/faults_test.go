package cockroach_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// These tests let things go wrong at every statement, on the wire to a real PostgreSQL.

// faults are the injected faults. None may lose anything, do anything twice, or surface as an error
// while there is time to retry.
var faults = map[string]pgfault.Fault{
	"serialization":  pgfault.FailBefore("40001", "restart transaction"),
	"deadlock":       pgfault.FailBefore("40P01", "deadlock detected"),
	"ambiguous":      pgfault.FailBefore("40003", "result is ambiguous"),
	"connections":    pgfault.FailBefore("53300", "too many clients"),
	"shutdown":       pgfault.FailBefore("57P01", "terminating connection due to administrator command"),
	"statement time": pgfault.FailBefore("57014", "canceling statement due to statement timeout"),
	"cut before":     pgfault.CutBefore,
	"cut after":      pgfault.CutAfter,
}

// places gives which of n statements go wrong with the fault of an index. When time is short, each
// fault has one place, and the answer to the last statement, which is the commit, is lost as well.
func places(fault, n int) (list []int) {
	step := racetest.Size(1, 3)
	for k := 1 + fault%step; k <= n; k += step {
		list = append(list, k)
	}
	if testing.Short() {
		list = []int{1 + fault*n/len(faults)}
		if last := slices.Sorted(maps.Keys(faults))[fault] == "cut after"; last && n > list[0] {
			list = append(list, n)
		}
	}
	return list
}

// bench is a database with a proxy before it.
type bench struct {
	*testing.T
	proxy  *pgfault.Proxy
	store  *cockroach.Store // through the proxy
	direct *pgx.Conn        // past it
	clear  *cockroach.Store // past it
	n      int
}

func newBench(t *testing.T, options cockroach.Options) *bench {
	t.Helper()
	address := faultyDatabase(t)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, proxy: pgfault.Start(t, fmt.Sprintf("%s:%d", config.Host, config.Port))}
	if options.Now == nil { // the two processes have the same clock, near the one of the turns
		now := historytest.Began.Add(2 * time.Minute)
		options.Now = func() time.Time { return now }
	}
	b.clear = openStore(t, address, cockroach.Options{Now: options.Now})
	b.store = openStore(t, b.proxy.DSN(address), options)
	if b.direct, err = pgx.Connect(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.direct.Close(context.Background()) })
	return b
}

func openStore(tb testing.TB, address string, options cockroach.Options) *cockroach.Store {
	tb.Helper()
	if options.Log == nil {
		options.Log = silence
	}
	s, err := cockroach.Open(tb.Context(), address, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// statements counts what an operation sends when nothing goes wrong.
func (b *bench) statements(f func()) int {
	before := b.proxy.Count()
	f()
	return b.proxy.Count() - before
}

// inject lets the n-th statement from now on go wrong, counted from 1.
func (b *bench) inject(n int, f pgfault.Fault) (hit *atomic.Bool) {
	hit = new(atomic.Bool)
	at := b.proxy.Count() + n
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if s.N == at && hit.CompareAndSwap(false, true) {
			return f
		}
		return pgfault.Pass
	})
	b.Cleanup(func() { b.proxy.Inject(nil) })
	return hit
}

// id is one that no other test of this database has.
func (b *bench) id() string {
	b.n++
	return fmt.Sprintf("instance-%04d", b.n)
}

// stored is how many events the database has of instances, and how often each message is in the
// outbox.
func (b *bench) stored(ids ...string) (events int, found map[string]int) {
	b.Helper()
	if err := b.direct.QueryRow(b.Context(),
		"SELECT coalesce(sum(last_event - event + 1), 0) FROM rondo_history WHERE instance = ANY($1)",
		ids).Scan(&events); err != nil {
		b.Fatal(err)
	}
	found = make(map[string]int)
	rows, err := b.direct.Query(b.Context(), "SELECT messages FROM rondo_outbox")
	if err != nil {
		b.Fatal(err)
	}
	packed, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range packed {
		messages, err := history.Unpack(p)
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range messages {
			if _, id, _ := cutLast(m.Subject); slices.Contains(ids, id) {
				found[m.Subject]++
			}
		}
	}
	return events, found
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	return s[:max(i, 0)], s[i+1:], i >= 0
}

// commits are batches that take the different ways through a commit.
var commits = map[string]struct {
	options cockroach.Options
	// prepare gives turns that are committed before, and those of the batch.
	prepare func(b *bench) (before, batch []*round.Turn)
}{
	"one statement": {prepare: func(b *bench) (before, batch []*round.Turn) {
		for range 3 {
			x, y := historytest.NewActor(b.id()), historytest.NewActor(b.id())
			before = append(before, x.StartAndCall())
			batch = append(batch, historytest.Sends(x.Note(), "to-"+y.ID, x.ID), y.StartAndCall())
		}
		return before, batch
	}},
	"with extras": {prepare: func(b *bench) (before, batch []*round.Turn) {
		x, y, z := historytest.NewActor(b.id()), historytest.NewActor(b.id()), historytest.NewActor(b.id())
		before = []*round.Turn{x.StartAndCall(), z.StartAndCall()}
		batch = []*round.Turn{x.Set("k", "1"),
			y.StartAndCall(historytest.WithAttributes(map[string]string{"region": "eu"})), z.ContinueAsNew()}
		return before, batch
	}},
	"several statements": {options: cockroach.Options{SingleStatement: 1},
		prepare: func(b *bench) (before, batch []*round.Turn) {
			x, y, z := historytest.NewActor(b.id()), historytest.NewActor(b.id()), historytest.NewActor(b.id())
			before = []*round.Turn{x.Start(historytest.WithAttributes(map[string]string{"region": "eu"})),
				z.StartAndCall()}
			x.Row.Status, x.Row.EndedAt = round.Completed, x.Now()
			before[0].Row = x.Row
			batch = []*round.Turn{x.Start(historytest.WithMessage("again")), y.StartAndCall(), z.Remove("k")}
			return before, batch
		}},
}

// TestEveryStatementOfACommitMayFail lets each statement of each kind of batch go wrong in each
// way. The commit succeeds all the same, everything is there exactly once, and to repeat it changes
// nothing.
func TestEveryStatementOfACommitMayFail(t *testing.T) {
	t.Parallel()
	for _, kind := range slices.Sorted(maps.Keys(commits)) {
		t.Run(kind, func(t *testing.T) {
			c := commits[kind]
			b := newBench(t, c.options)
			before, batch := c.prepare(b)
			b.mustCommit(b.clear, before)
			n := b.statements(func() { b.mustCommit(b.store, batch) })
			t.Logf("%d statements", n)
			for i, name := range slices.Sorted(maps.Keys(faults)) {
				for _, k := range places(i, n) {
					before, batch := c.prepare(b)
					b.mustCommit(b.clear, before)
					hit := b.inject(k, faults[name])
					r := b.mustCommit(b.store, batch)
					if !hit.Load() {
						t.Fatalf("%s at statement %d of %d: it never came to it", name, k, n)
					}
					b.checkStored(fmt.Sprintf("%s at statement %d", name, k), before, batch, r)
				}
			}
		})
	}
}

// mustCommit commits turns, all of which must be taken.
func (b *bench) mustCommit(s *cockroach.Store, turns []*round.Turn) history.Result {
	b.Helper()
	r, err := s.Commit(b.Context(), historytest.Batch(b, turns...))
	if err != nil {
		b.Fatal(err)
	}
	for i, o := range r.Outcomes {
		if o.Status != history.Committed {
			b.Fatalf("the turn of %q: %v (%+v) %v", turns[i].Instance, o.Status, o.Actual, o.Err)
		}
	}
	return r
}

// checkStored checks that turns are stored exactly once, and that repeating them changes nothing.
func (b *bench) checkStored(what string, before, batch []*round.Turn, r history.Result) {
	b.Helper()
	ids, want, messages := expected(before, batch)
	check := func(when string) {
		b.Helper()
		events, found := b.stored(ids...)
		if events != want {
			b.Fatalf("%s, %s: %d events, want %d", what, when, events, want)
		}
		for _, m := range messages {
			if found[m] != 1 {
				b.Fatalf("%s, %s: %s is in the outbox %d times", what, when, m, found[m])
			}
		}
	}
	check("after the commit")
	again, err := b.clear.Commit(b.Context(), historytest.Batch(b, batch...))
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range again.Outcomes {
		if o.Status != history.Conflict {
			b.Fatalf("%s: the same batch again: %+v", what, o)
		}
	}
	check("after the same batch again")
	if err := b.clear.RemoveOutbox(b.Context(), r.Entries); err != nil {
		b.Fatal(err)
	}
	_, left := b.stored(ids...)
	for _, t := range batch {
		for _, d := range historytest.Batch(b, t).Turns[0].Messages {
			if left[d.Subject] != 0 {
				b.Fatalf("%s: the keys that the commit gave do not cover %s", what, d.Subject)
			}
		}
	}
}

// expected is what turns store: the events of all, and the subjects of all messages.
func expected(before, batch []*round.Turn) (ids []string, events int, messages []string) {
	for _, t := range slices.Concat(before, batch) {
		if !slices.Contains(ids, t.Instance) {
			ids = append(ids, t.Instance)
		}
		for _, x := range t.Executions {
			events += len(x.Events)
		}
	}
	var t testing.T
	for _, d := range historytest.Batch(&t, batch...).Turns {
		for _, w := range d.Messages {
			messages = append(messages, w.Subject)
		}
	}
	return ids, events, messages
}

// TestGivingUp lets every statement fail from one on, until the caller has no more time. The class
// of the error is true: unless it is ambiguous, nothing is stored; if it is, all is stored or
// nothing.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	for _, kind := range slices.Sorted(maps.Keys(commits)) {
		t.Run(kind, func(t *testing.T) {
			c := commits[kind]
			b := newBench(t, c.options)
			before, batch := c.prepare(b)
			b.mustCommit(b.clear, before)
			n := b.statements(func() { b.mustCommit(b.store, batch) })
			for i, name := range slices.Sorted(maps.Keys(faults)) {
				for _, k := range places(i, n) {
					b.giveUp(name, k, c.prepare)
				}
			}
		})
	}
}

func (b *bench) giveUp(name string, k int, prepare func(*bench) (before, batch []*round.Turn)) {
	b.Helper()
	before, batch := prepare(b)
	b.mustCommit(b.clear, before)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	at, times := b.proxy.Count()+k, 0
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if s.N < at {
			return pgfault.Pass
		}
		if times++; times == 3 {
			cancel()
		}
		return faults[name]
	})
	_, err := b.store.Commit(ctx, historytest.Batch(b, batch...))
	b.proxy.Inject(nil)
	what := fmt.Sprintf("%s from statement %d on", name, k)
	if err == nil {
		b.Fatalf("%s: it succeeded", what)
	}
	ids, all, _ := expected(before, batch)
	_, none, _ := expected(before, nil)
	switch events, _ := b.stored(ids...); {
	case events == none:
	case events == all && history.ClassOf(err) == history.Ambiguous:
	default:
		b.Fatalf("%s: %d events of %d to %d; the error says %v: %v", what, events, none, all, history.ClassOf(err), err)
	}
}

// TestACommitThatComesLate lets a commit hang in the network. The client loses patience and commits
// again. When the first one arrives at last, it changes nothing.
func TestACommitThatComesLate(t *testing.T) {
	b := newBench(t, cockroach.Options{Configure: func(c *pgxpool.Config) { c.MaxConns = 2 }})
	a := historytest.NewActor(b.id())
	start := []*round.Turn{a.StartAndCall()}
	b.mustCommit(b.clear, start)
	batch := []*round.Turn{historytest.Sends(a.Note(), "m", a.ID)}
	late, arrived := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if strings.HasPrefix(s.SQL, "WITH won") && first.CompareAndSwap(false, true) {
			close(arrived)
			return pgfault.Hold(late)
		}
		return pgfault.Pass
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := b.store.Commit(ctx, historytest.Batch(t, batch...))
	if history.ClassOf(err) != history.Ambiguous {
		t.Fatalf("a commit without an answer: %v: %v", history.ClassOf(err), err)
	}
	r := b.mustCommit(b.store, batch)
	close(late)
	b.proxy.Inject(nil)
	known, err := b.clear.Load(t.Context(), []string{a.ID}, nil)
	if err != nil || known[0].Row.LastEvent != a.Row.LastEvent || known[0].Unreadable != nil {
		t.Fatalf("%+v, %v", known, err)
	}
	b.checkStored("a late commit", start, batch, r)
}

// TestStormsOnlySlowDown lets statements fail as CockroachDB asks to try again, while a hundred
// orchestrations run: every second one where a commit is one statement, and one in forty at random
// where it is several.
func TestStormsOnlySlowDown(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	storms := map[string]struct {
		options cockroach.Options
		fails   func(n int) bool
		steps   []func(*historytest.Actor) *round.Turn
	}{
		"every second statement": {
			fails: func(n int) bool { return n%2 == 0 },
			steps: []func(*historytest.Actor) *round.Turn{
				func(a *historytest.Actor) *round.Turn { return a.Set("k", `"v"`) },
				func(a *historytest.Actor) *round.Turn { return a.ContinueAsNew() },
			},
		},
		"one in forty": {
			options: cockroach.Options{SingleStatement: 8 << 10},
			fails: func(int) bool {
				mu.Lock()
				defer mu.Unlock()
				return chance.IntN(40) == 0
			},
			steps: []func(*historytest.Actor) *round.Turn{
				func(a *historytest.Actor) *round.Turn { return a.Set("k", `"v"`) },
				func(a *historytest.Actor) *round.Turn { return a.Remove("k") },
				func(a *historytest.Actor) *round.Turn { return a.ContinueAsNew() },
			},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(storms)) {
		t.Run(name, func(t *testing.T) {
			storm := storms[name]
			b := newBench(t, storm.options)
			b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
				if storm.fails(s.N) {
					return pgfault.FailBefore("40001", "restart transaction: a storm")
				}
				return pgfault.Pass
			})
			var actors []*historytest.Actor
			for range 100 {
				actors = append(actors, historytest.NewActor(b.id()))
			}
			for part := range slices.Chunk(actors, 20) {
				steps := []func(*historytest.Actor) *round.Turn{func(a *historytest.Actor) *round.Turn {
					return a.StartAndCall()
				}}
				steps = append(steps, storm.steps...)
				steps = append(steps, func(a *historytest.Actor) *round.Turn { return a.Complete("1") })
				for _, step := range steps {
					var turns []*round.Turn
					for _, a := range part {
						turns = append(turns, step(a))
					}
					b.mustCommit(b.store, turns)
				}
			}
			b.proxy.Inject(nil)
			for _, a := range actors {
				x, err := history.Export(t.Context(), b.clear, a.ID, 1)
				if err != nil || len(x.Events) != len(a.Events[1]) {
					t.Fatalf("%q: %d events, want %d: %v", a.ID, len(x.Events), len(a.Events[1]), err)
				}
			}
		})
	}
}

// TestEveryStatementOfEveryOperationMayFail does the same for all other operations: they succeed
// and do what they say.
func TestEveryStatementOfEveryOperationMayFail(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	ctx := t.Context()
	far := history.Lease{Before: historytest.Began.Add(1000 * time.Hour),
		Until: historytest.Began.Add(2000 * time.Hour), Limit: 1000}
	operations := map[string]func() error{
		"load": func() error {
			a := historytest.NewActor(b.id())
			b.mustCommit(b.clear, []*round.Turn{a.StartAndCall()})
			known, err := b.store.Load(ctx, []string{a.ID}, nil)
			if err == nil && (known[0].Unreadable != nil || len(known[0].History) != 2) {
				err = fmt.Errorf("%+v", known)
			}
			return err
		},
		"take and remove outbox entries": func() error {
			a := historytest.NewActor(b.id())
			r := b.mustCommit(b.clear, []*round.Turn{a.StartAndCall()})
			taken, err := b.store.LeaseOutbox(ctx, history.Lease{Before: historytest.Began.Add(time.Hour),
				Until: historytest.Began.Add(2 * time.Hour), Limit: 1000})
			keys := r.Entries
			for _, p := range taken {
				keys = append(keys, p.Key)
			}
			return errors.Join(err, b.store.RemoveOutbox(ctx, keys),
				b.none(fmt.Sprintf("rondo_outbox WHERE id = %d", r.Entries[0].ID)))
		},
		"lease overdue": func() error {
			a := historytest.NewActor(b.id())
			b.mustCommit(b.clear, []*round.Turn{a.StartAndCall()})
			for { // the other operations have left some, too
				taken, err := b.store.LeaseOverdue(ctx, far)
				if err != nil {
					return err
				}
				if len(taken) < far.Limit {
					break
				}
			}
			return errors.Join(b.none("rondo_instances WHERE wake_at < '2026-03-02'"))
		},
		"delete": func() error {
			a := historytest.NewActor(b.id())
			b.mustCommit(b.clear,
				[]*round.Turn{a.StartAndCall(historytest.WithAttributes(map[string]string{"a": "b"}))})
			_, err := b.store.Delete(ctx, []string{a.ID}, history.Deletion{Force: true})
			return errors.Join(err, b.none("rondo_history WHERE instance = '"+a.ID+"'"), b.none("rondo_attributes"),
				b.none("rondo_instances WHERE status = 'deleting'"))
		},
		"prune": func() error {
			a := historytest.NewActor(b.id())
			b.mustCommit(b.clear, []*round.Turn{a.StartAndCall()})
			b.mustCommit(b.clear, []*round.Turn{a.ContinueAsNew()})
			_, err := b.store.Prune(ctx, a.ID, history.Keep{})
			return errors.Join(err, b.none("rondo_executions"),
				b.none("rondo_history WHERE execution = 1 AND instance = '"+a.ID+"'"))
		},
		"list and count": func() error {
			list, err := b.store.List(ctx, history.Filter{}, history.Page{})
			n, err2 := b.store.Count(ctx, history.Filter{}, 100)
			if err == nil && int64(len(list.Instances)) != n {
				err = fmt.Errorf("%d listed, %d counted", len(list.Instances), n)
			}
			return errors.Join(err, err2)
		},
		"tidy": func() error {
			_, err := b.store.Tidy(ctx)
			return err
		},
	}
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		t.Run(name, func(t *testing.T) {
			n := b.statements(func() {
				if err := operations[name](); err != nil {
					t.Fatal(err)
				}
			})
			for i, fault := range slices.Sorted(maps.Keys(faults)) {
				for _, k := range places(i, n) {
					b.inject(k, faults[fault])
					if err := operations[name](); err != nil {
						t.Fatalf("%s at statement %d of %d: %v", fault, k, n, err)
					}
				}
			}
		})
	}
}

// none checks that a table has no rows left.
func (b *bench) none(where string) error {
	var n int
	err := b.direct.QueryRow(b.Context(), "SELECT count(*) FROM "+where).Scan(&n)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d rows in %s", n, where)
	}
	return err
}
