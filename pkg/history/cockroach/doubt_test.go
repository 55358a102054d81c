package cockroach_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// readingBack matches the statement that looks up refused turns.
func readingBack(s pgfault.Statement) bool { return strings.HasPrefix(s.SQL, "SELECT i.shard") }

// TestReadingBackMayFail lets the read of a refused turn's row fail after the store has committed
// the other turns of the batch. Those must not count as refused when the commit is retried, nor as
// untouched when there is no more time.
func TestReadingBackMayFail(t *testing.T) {
	b := newBench(t, cockroach.Options{})
	for _, name := range []string{"statement time", "serialization", "cut before"} {
		for _, giveUp := range []bool{false, true} {
			taken, refused := historytest.NewActor(b.id()), historytest.NewActor(b.id())
			b.mustCommit(b.clear, []*round.Turn{refused.StartAndCall()})
			b.mustCommit(b.clear, []*round.Turn{refused.Clone().At(historytest.Began.Add(time.Second)).Note()})
			batch := historytest.Batch(t, taken.StartAndCall(), refused.Note())
			ctx, cancel := context.WithCancel(t.Context())
			b.proxy.Inject(pgfault.Once(func(s pgfault.Statement) bool {
				if readingBack(s) && giveUp {
					cancel()
				}
				return readingBack(s)
			}, faults[name]))
			r, err := b.store.Commit(ctx, batch)
			cancel()
			switch {
			case giveUp && history.ClassOf(err) != history.Ambiguous:
				t.Errorf("%s, and no more time: the first turn is stored, the error says %v: %v", name,
					history.ClassOf(err), err)
			case giveUp:
			case err != nil:
				t.Error(err)
			case r.Outcomes[0].Status != history.Committed || r.Outcomes[1].Status != history.Conflict:
				t.Errorf("%s: %+v", name, r.Outcomes)
			}
		}
	}
}

// TestOutboxEntriesOfATurnThatIsNotRecognized lets the answer to a commit be lost, and the
// execution that it stored be pruned before the retry. The orchestrator does not publish the
// messages of a refused turn. So the keys must not cover its outbox entry, which is left to the
// sweep.
func TestOutboxEntriesOfATurnThatIsNotRecognized(t *testing.T) {
	b := newBench(t, cockroach.Options{})
	x, y := historytest.NewActor(b.id()), historytest.NewActor(b.id())
	b.mustCommit(b.clear, []*round.Turn{x.StartAndCall(), y.StartAndCall()})
	if err := b.clear.RemoveOutbox(t.Context(), b.allEntries()); err != nil {
		t.Fatal(err)
	}
	batch := historytest.Batch(t, historytest.Sends(x.Note(), "m", x.ID), historytest.Sends(y.Note(), "n", y.ID))
	tries := 0
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if !strings.HasPrefix(s.SQL, "WITH won") {
			return pgfault.Pass
		}
		if tries++; tries == 1 {
			return pgfault.CutAfter
		}
		if tries == 2 {
			b.mustCommit(b.clear, []*round.Turn{x.ContinueAsNew()})
			if _, err := b.clear.Prune(t.Context(), x.ID, history.Keep{}); err != nil {
				t.Error(err)
			}
		}
		return pgfault.Pass
	})
	r, err := b.store.Commit(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	b.proxy.Inject(nil)
	if err := b.clear.RemoveOutbox(t.Context(), r.Entries); err != nil {
		t.Fatal(err)
	}
	_, left := b.stored(x.ID)
	if r.Outcomes[0].Status != history.Committed && len(left) == 0 {
		t.Errorf("the turn of %q counts as %v, and its outbox entry is gone", x.ID, r.Outcomes[0].Status)
	}
}

// TestACancelledCommitMayHaveHappened has a commit happen, and its statement answer query_canceled,
// as CockroachDB does when the time limit ends a statement that is committing. The store must not
// take its own turn for one of another process.
func TestACancelledCommitMayHaveHappened(t *testing.T) {
	b := newBench(t, cockroach.Options{})
	cockroach.TakeForCockroachDB(b.store)
	x := historytest.NewActor(b.id())
	b.mustCommit(b.clear, []*round.Turn{x.StartAndCall()})
	turn := x.Note()
	happened := false
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if happened || !strings.HasPrefix(s.SQL, "WITH won") {
			return pgfault.Pass
		}
		happened = true
		b.mustCommit(b.clear, []*round.Turn{turn})
		return faults["statement time"]
	})
	r, err := b.store.Commit(t.Context(), historytest.Batch(t, turn))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Outcomes[0]; got.Status != history.Committed {
		t.Errorf("the turn that is stored counts as %v (%+v)", got.Status, got.Actual)
	}
}

func (b *bench) allEntries() (keys []history.OutboxKey) {
	b.Helper()
	rows, err := b.direct.Query(b.Context(), "SELECT shard, id FROM rondo_outbox")
	if err != nil {
		b.Fatal(err)
	}
	keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[history.OutboxKey])
	if err != nil {
		b.Fatal(err)
	}
	return keys
}

// TestAWakeTimeThatHasPassedBeforeAnothersSweep lets a process that has not swept for an hour
// commit a turn whose time has passed. Another has moved the mark meanwhile. All clocks are the
// same.
func TestAWakeTimeThatHasPassedBeforeAnothersSweep(t *testing.T) {
	now := historytest.Began
	b := newBench(t, cockroach.Options{Now: func() time.Time { return now }})
	sweep := func() []history.Overdue {
		list, err := b.clear.LeaseOverdue(t.Context(), history.Lease{Before: now, Until: now.Add(time.Hour),
			Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	now = now.Add(2 * time.Hour)
	sweep()
	a := historytest.NewActor(b.id())
	b.mustCommit(b.store, []*round.Turn{historytest.Together(a.Start(), a.Wake(historytest.Began.Add(time.Hour)))})
	now = now.Add(time.Minute)
	if list := sweep(); len(list) != 1 {
		t.Fatalf("%+v", list)
	}
}

// TestManyOutboxEntriesBelowAMark lets a process whose clock is far behind the mark make more
// outbox entries than one microsecond has room for.
func TestManyOutboxEntriesBelowAMark(t *testing.T) {
	now := historytest.Began
	b := newBench(t, cockroach.Options{Now: func() time.Time { return now }})
	sweep := func(s *cockroach.Store) {
		if _, err := s.LeaseOutbox(t.Context(),
			history.Lease{Before: now, Until: now.Add(time.Hour), Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Hour)
	sweep(b.clear)
	now = now.Add(-time.Hour)
	sweep(b.store)
	// the mark is the slack behind, and the outbox entries the slack before it
	mark := history.OutboxID(historytest.Began.Add(time.Hour), 0)
	if _, err := b.direct.Exec(t.Context(),
		"INSERT INTO rondo_outbox (shard, id, messages) SELECT s, $1::INT8 + i, '' FROM generate_series(0, 15) s, "+
			"generate_series(0, 4095) i", mark); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := b.store.Commit(ctx, historytest.Batch(t, historytest.NewActor(b.id()).StartAndCall())); err != nil {
		t.Fatal(err)
	}
}

// TestNoStatementIsTooLarge measures the parameters of each statement of large batches. CockroachDB
// takes no message of 16 MiB or more.
func TestNoStatementIsTooLarge(t *testing.T) {
	racetest.TooMuch(t)
	trace := &sizes{}
	b := newBench(t, cockroach.Options{Configure: func(c *pgxpool.Config) { c.ConnConfig.Tracer = trace }})
	check := func(what string, turns []*round.Turn) {
		t.Helper()
		trace.largest = 0
		b.mustCommit(b.store, turns)
		if trace.largest >= 16<<20 {
			t.Errorf("%s: a statement of %d MiB", what, trace.largest>>20)
		}
	}
	large := strings.Repeat("x", 1<<20)
	attributes := make(map[string]string)
	for i := range 500 {
		attributes[fmt.Sprintf("%04d", i)] = strings.Repeat("v", 1000)
	}
	var start, fail, restart, complete, again, labelled []*round.Turn
	for n := range 40 {
		labelled = append(labelled, historytest.NewActor(b.id()).StartAndCall(historytest.WithAttributes(attributes)))
		if n >= racetest.Short(40, 20) {
			continue // that is more than 16 MiB of all others
		}
		a, c := historytest.NewActor(b.id()), historytest.NewActor(b.id())
		start = append(start, a.StartAndCall(), c.StartAndCall())
		fail = append(fail, a.Fail(large))
		complete = append(complete, c.Complete(`"`+large+`"`))
		restart = append(restart, a.StartAndCall(historytest.WithMessage("again")))
		again = append(again, c.StartAndCall(historytest.WithMessage("again")))
	}
	check("starts", start)
	check("errors", fail)
	check("outputs", complete)
	check("former errors", restart)
	check("former outputs", again)
	check("attributes", labelled)
}

// sizes notes how large the parameters of a statement are.
type sizes struct {
	mu      sync.Mutex
	largest int
}

func (s *sizes) note(args []any) {
	n := 0
	for _, a := range args {
		switch v := a.(type) {
		case []byte:
			n += len(v)
		case [][]byte:
			for _, b := range v {
				n += len(b)
			}
		case []string:
			for _, b := range v {
				n += len(b)
			}
		}
	}
	s.mu.Lock()
	s.largest = max(s.largest, n)
	s.mu.Unlock()
}

func (s *sizes) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.note(d.Args)
	return ctx
}
func (s *sizes) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *sizes) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		s.note(q.Arguments)
	}
	return ctx
}
func (s *sizes) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *sizes) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TestDeletingTwiceSparesWhatBeganAgain lets the answer to a deletion be lost, and its instance
// begin again before it is tried again.
func TestDeletingTwiceSparesWhatBeganAgain(t *testing.T) {
	b := newBench(t, cockroach.Options{})
	a := historytest.NewActor(b.id())
	b.mustCommit(b.clear, []*round.Turn{a.StartAndCall()})
	commits, cut := 0, false
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		switch {
		case pgfault.Is("commit")(s) && commits == 0:
			commits++
			cut = true
			return pgfault.CutAfter
		case pgfault.Is("begin")(s) && cut:
			cut = false
			if _, err := b.clear.Tidy(t.Context()); err != nil {
				t.Error(err)
			}
			again := historytest.NewActor(a.ID).At(historytest.Began.Add(time.Minute))
			b.mustCommit(b.clear, []*round.Turn{again.StartAndCall(historytest.WithMessage("again"))})
		}
		return pgfault.Pass
	})
	if _, err := b.store.Delete(t.Context(), []string{a.ID}, history.Deletion{Force: true}); err != nil {
		t.Fatal(err)
	}
	b.proxy.Inject(nil)
	if _, err := b.clear.Instance(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
}

// TestNothingWasSent shows that a commit that never got as far as a connection has changed nothing,
// and says so.
func TestNothingWasSent(t *testing.T) {
	for kind, c := range commits {
		b := newBench(t, c.options)
		before, batch := c.prepare(b)
		b.mustCommit(b.clear, before)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.store.Commit(ctx, historytest.Batch(t, batch...)); history.ClassOf(err) != history.Retry {
			t.Errorf("%s: %v: %v", kind, history.ClassOf(err), err)
		}
	}
}

// TestASweepKeepsWhatItTook shows that a sweep that cannot store its mark still returns the overdue
// instances that it has leased, without an error.
func TestASweepKeepsWhatItTook(t *testing.T) {
	now := historytest.Began.Add(time.Hour)
	b := newBench(t, cockroach.Options{Now: func() time.Time { return now }})
	a := historytest.NewActor(b.id())
	b.mustCommit(b.clear, []*round.Turn{a.StartAndCall()})
	b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
		if strings.HasPrefix(s.SQL, "INSERT INTO rondo_marks") {
			return pgfault.FailBefore("XX000", "internal error")
		}
		return pgfault.Pass
	})
	take := history.Lease{Before: now, Until: now.Add(time.Hour), Limit: 100}
	if list, err := b.store.LeaseOverdue(t.Context(), take); err != nil {
		t.Errorf("%d taken, and the error %v", len(list), err)
	}
}
