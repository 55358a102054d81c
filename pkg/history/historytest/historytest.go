package historytest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Database is a fresh database of one kind, for one test.
type Database struct {
	// Open opens a store on it. The store is closed when the test ends. A store that is opened
	// again finds what the one before has stored.
	Open func(tb testing.TB, options Options) history.Store
	// Shared says that several stores may be open at once, as of several processes.
	Shared bool
	// Volatile says that a store loses all its data when it is closed.
	Volatile bool
	// Marks says that sweeps begin from remembered marks.
	Marks bool
	// Exec runs a statement behind the store's back, with parameters $1, $2, …; several with a
	// semicolon between them if there are no parameters. It is nil for a store that has no tables
	// of SQL: each test then gets a database of its own, and is skipped from where it damages rows.
	Exec func(tb testing.TB, statement string, args ...any)
	// AtOnce says that a store erases a deleted instance in the transaction that deletes it,
	// however large it is, so that there are no deletions to resume.
	AtOnce bool
	// Hold runs a statement in a transaction that stays open until it is released, and is then
	// rolled back; nil where that would block all other writers.
	Hold func(tb testing.TB, statement string, args ...any) (release func())
	// SecondsAfter is an expression for the time that lies as many seconds behind a moment as a
	// column says.
	SecondsAfter func(from time.Time, column string) string
	// Deadlocks counts those that the database had to resolve so far; nil where there is no such
	// count.
	Deadlocks func(tb testing.TB) int64
	// ServerCPU is the CPU time that the database's own processes have spent for a store so far;
	// nil where that cannot be told.
	ServerCPU func(history.Store) time.Duration
	// Shard is the value of the column shard for an instance.
	Shard func(instance string) int16
}

// Options are the settings of a store that the suite changes.
type Options struct {
	// Now is the store's clock.
	Now func() time.Time
	// Observer gets the store's operations.
	Observer history.Observer
}

// exec runs a statement behind the store's back, or skips the rest of the test.
func (db *Database) exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	if db.Exec == nil {
		tb.Skip("the store has no tables that a statement could change behind its back")
	}
	db.Exec(tb, statement, args...)
}

// Clock is a clock that only moves when a test moves it.
type Clock struct{ at time.Time }

// NewClock makes a clock that stands where everything begins.
func NewClock() *Clock { return &Clock{at: Began} }

// Now is the time.
func (c *Clock) Now() time.Time { return c.at }

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.at = c.at.Add(d) }

// store is a store with a test around it: an unexpected error of an operation fails the test. Its
// parts follow the interfaces of the contract.
type store struct {
	*opened
	*rounds
	*outboxed
	*sleepers
	*reader
	*remover
}

// opened is a store, with what a test has beside it.
type opened struct {
	testing.TB
	history.Store
	db    *Database
	clock *Clock
}

type (
	// rounds commits turns and loads instances: [history.Rounds].
	rounds struct{ *opened }
	// outboxed leases outbox entries: [history.Outbox].
	outboxed struct{ *rounds }
	// sleepers leases overdue instances: [history.Wakes].
	sleepers struct{ *rounds }
	// reader reads: [history.Reader].
	reader struct{ *opened }
	// remover deletes and prunes, and looks at what stays: [history.Remover].
	remover struct {
		*opened
		*rounds
		*reader
	}
)

func open(tb testing.TB, db *Database) *store {
	tb.Helper()
	clock := NewClock()
	return newStore(tb, db.Open(tb, Options{Now: clock.Now}), db, clock)
}

func newStore(tb testing.TB, s history.Store, db *Database, clock *Clock) *store {
	o := &opened{tb, s, db, clock}
	t, r := &rounds{o}, &reader{o}
	return &store{o, t, &outboxed{t}, &sleepers{t}, r, &remover{o, t, r}}
}

// ctx bounds each wait of a test.
func (s *opened) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.Cleanup(cancel)
	return ctx
}

// commit commits turns, all of which must be taken.
func (s *rounds) commit(turns ...*round.Turn) history.Result {
	s.Helper()
	r := s.try(turns...)
	for i, o := range r.Outcomes {
		if o.Status != history.Committed {
			s.Fatalf("the turn of %q was not taken: %v, stored %+v, %v", turns[i].Instance, o.Status, o.Actual, o.Err)
		}
	}
	return r
}

// try commits turns, some of which may be refused.
func (s *rounds) try(turns ...*round.Turn) history.Result {
	s.Helper()
	r, err := s.Commit(s.ctx(), Batch(s.TB, turns...))
	if err != nil {
		s.Fatalf("commit: %v", err)
	}
	if len(r.Outcomes) != len(turns) {
		s.Fatalf("%d turns, %d outcomes", len(turns), len(r.Outcomes))
	}
	return r
}

// refused commits one turn, which must be refused in one way.
func (s *rounds) refused(want history.CommitStatus, turn *round.Turn) history.Outcome {
	s.Helper()
	o := s.try(turn).Outcomes[0]
	if o.Status != want {
		s.Fatalf("the turn of %q: %v, want %v (stored %+v, %v)", turn.Instance, o.Status, want, o.Actual, o.Err)
	}
	return o
}

// load loads one instance.
func (s *rounds) load(id string) round.Known {
	s.Helper()
	known, err := s.Load(s.ctx(), []string{id}, nil)
	if err != nil {
		s.Fatalf("load %q: %v", id, err)
	}
	if len(known) != 1 || known[0].Instance != id {
		s.Fatalf("load %q gave %+v", id, known)
	}
	return known[0]
}

// same checks that the store has exactly the data of the actor for an instance.
func (s *rounds) same(a *Actor) {
	s.Helper()
	known := s.load(a.ID)
	if known.Unreadable != nil {
		s.Fatalf("%q: %v", a.ID, known.Unreadable)
	}
	want := a.Row
	known.Row.WakeAt, want.WakeAt = time.Time{}, time.Time{} // it may be rounded
	if got, want := asJSON(known.Row), asJSON(want); got != want {
		s.Fatalf("the row of %q is\n%s\nwant\n%s", a.ID, got, want)
	}
	s.sameEvents(a.ID, a.Row.Execution, known.History, a.Events[a.Row.Execution])
	for x, list := range a.Events {
		got, err := history.Export(s.ctx(), s.Store, a.ID, x)
		if err != nil {
			s.Fatalf("history of %q, execution %d: %v", a.ID, x, err)
		}
		s.sameEvents(a.ID, x, got.Events, list)
	}
}

func (s *rounds) sameEvents(id string, execution int64, got, want []events.Event) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("%q, execution %d: %d events, want %d", id, execution, len(got), len(want))
	}
	for i := range got {
		g, err1 := events.EncodeEvent(got[i])
		w, err2 := events.EncodeEvent(want[i])
		if err1 != nil || err2 != nil || string(g) != string(w) {
			s.Fatalf("%q, execution %d, event %d:\n%s\nwant\n%s (%v, %v)", id, execution, i+1, g, w, err1, err2)
		}
	}
}

// [rounds.absent] checks that no instance has an id.
func (s *rounds) absent(id string) {
	s.Helper()
	known := s.load(id)
	if known.Row.Execution != 0 || known.History != nil || known.Unreadable != nil {
		s.Fatalf("%q should not exist: %+v", id, known)
	}
}

// verdicts checks the outcomes of the turns of a batch.
func (s *rounds) verdicts(r history.Result, want ...history.CommitStatus) {
	s.Helper()
	var got []history.CommitStatus
	for _, o := range r.Outcomes {
		got = append(got, o.Status)
	}
	if !slices.Equal(got, want) {
		s.Fatalf("the turns are %v, want %v", got, want)
	}
}

// delete deletes instances, whatever they are doing.
func (s *remover) delete(ids ...string) history.DeleteResult {
	s.Helper()
	d, err := s.Delete(s.ctx(), ids, history.Deletion{Force: true, Children: true})
	if err != nil {
		s.Fatalf("delete %q: %v", ids, err)
	}
	return d
}

// entries checks how many rows the outbox has.
func (s *outboxed) entries(want int) {
	s.Helper()
	if n, err := s.CountOutbox(s.ctx(), want+1000); err != nil || n != want {
		s.Fatalf("there are %d outbox entries (%v), want %d", n, err, want)
	}
}

// class checks the class of an error.
func (s *opened) class(err error, want history.Class) {
	s.Helper()
	if err == nil || history.ClassOf(err) != want {
		s.Fatalf("the error is of class %v, want %v: %v", history.ClassOf(err), want, err)
	}
}
