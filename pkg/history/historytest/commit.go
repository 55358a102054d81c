package historytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// commitTests are about the turns that a commit stores, and those that it refuses.
var commitTests = []test{
	{"atomicity/atomicity_failure_rollback", nothingOfUnstorable},
	{"atomicity/multi_operation_atomic_ack", allAtOnce},
	{"atomicity/lock_released_only_on_successful_ack", sameTurnAfterFailure},
	{"atomicity/concurrent_ack_prevention", oneOfManyWins},
	{"atomicity/entries_and_values_come_with_their_turn", entriesAndValues},
	{"error_handling/invalid_lock_token_on_ack", versionThatNeverWas},
	{"error_handling/duplicate_event_id_rejection", eventTwice},
	{"error_handling/missing_instance_metadata", rowWithoutNames},
	{"error_handling/corrupted_serialization_data", corruptEntry},
	{"error_handling/lock_expiration_during_ack", overtaken},
	{"error_handling/wrong_batches", wrongBatches},
	{"error_handling/unstorable_among_others", unstorableAmongOthers},
	{"error_handling/unfit_and_published", unstorableAndPublished},
	{"error_handling/cancelled_before", cancelledBefore},
	{"error_handling/cancelled_during", cancelledDuring},
	{"instance_creation/instance_creation_via_metadata", bornAtFirstCommit},
	{"instance_creation/no_instance_creation_on_enqueue", storedStart},
	{"instance_creation/null_version_handling", versionLater},
	{"instance_creation/sub_orchestration_instance_creation", childIsBorn},
	{"instance_creation/child_beside_its_parent", childBesideParent},
	{"instance_locking/lock_token_uniqueness", versionIsGoodOnce},
	{"instance_locking/invalid_lock_token_rejection", everyPartOfTheVersion},
	{"instance_locking/concurrent_instance_fetching", eachItsOwn},
	{"instance_locking/cross_instance_lock_isolation", conflictsAreAlone},
	{"instance_locking/ack_only_affects_locked_messages", publishedOnly},
	{"instance_locking/multi_threaded_lock_contention", manyOnOne},
	{"instance_locking/multi_threaded_no_duplicate_processing", manyOnMany},
	{"instance_locking/multi_threaded_lock_expiration_recovery", takenOver},
	{"multi_execution/execution_isolation", executionsApart},
	{"multi_execution/latest_execution_detection", latestExecution},
	{"multi_execution/execution_id_sequencing", executionsInSequence},
	{"multi_execution/continue_as_new_creates_new_execution", continuedAsNew},
	{"multi_execution/execution_history_persistence", formerExecutionsStay},
}

// ---- All or nothing.

// plant puts a row of history where an instance's next event belongs, so that the database does not
// take its next turn.
func (s *rounds) plant(a *Actor) {
	s.Helper()
	s.db.exec(s.TB, "INSERT INTO rondo_history (shard, instance, execution, event, last_event, data) VALUES ($1, "+
		"$2, $3, $4, $4, $5)",
		s.db.Shard(a.ID), a.ID, max(a.Row.Execution, 1), a.Row.LastEvent+1, []byte("planted"))
}

// everything is a turn that writes to each of the tables.
func (a *Actor) everything() *round.Turn {
	return Together(a.SetStatus(`"changed"`), Sends(a.Set("k", "changed"), "m-"+a.ID, "other"), a.Remove("l"),
		a.ContinueAsNew(), a.Wake(a.now.Add(time.Hour)))
}

// nothingOfUnstorable shows that a turn that fails in the middle leaves nothing behind, of an
// instance that is there and of a new one, and so nothing that would be in its way when it is tried
// again.
func nothingOfUnstorable(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(Together(a.Start(WithAttributes(map[string]string{"x": "y"})), a.Set("k", "1"), a.Set("l", "2")))
	before := a.Clone()
	s.plant(a)
	s.plant(b)
	turns := []*round.Turn{a.everything(),
		Together(b.Start(WithAttributes(map[string]string{"x": "y"})), b.everything())}
	for _, turn := range turns {
		if o := s.refused(history.Unstorable, turn); o.Err == nil {
			t.Fatal("unfit without a reason")
		}
	}
	s.same(before)
	s.absent("b")
	s.hasValues("a", map[string]history.Value{"k": value("1", 1, Began), "l": value("2", 1, Began)})
	s.hasValues("b", nil)
	s.status("a", 0, history.CustomStatus{})
	s.entries(0)
	if due := s.overdue(24 * time.Hour); len(due) > 0 {
		t.Fatal(due)
	}
	m, err := s.Metrics(s.ctx())
	if err != nil || m.Executions != 1 || m.Events != before.Row.LastEvent || m.Tombstones != 0 {
		t.Fatal(m, err)
	}
	s.db.exec(t, "DELETE FROM rondo_history WHERE data = $1", []byte("planted"))
	s.commit(turns...)
	s.same(a)
	s.same(b)
	s.entries(1)
}

// allAtOnce shows that a reader sees the whole of a turn or nothing while turns are committed: row,
// history, status and value rise together.
func allAtOnce(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	reader := s
	if db.Shared {
		reader = open(t, db)
	}
	s.commit(Together(a.Start(), a.SetStatus("-1"), a.Set("n", "-1")))
	done := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			known, err := reader.Load(context.Background(), []string{"a"}, nil)
			if err != nil || known[0].Unreadable != nil {
				t.Error(err, known)
				return
			}
			row, list := known[0].Row, known[0].History
			set, ok := list[len(list)-1].Fact.(*events.ValueSet)
			if !ok || int64(len(list)) != row.LastEvent || string(set.Value) != string(row.CustomStatus) {
				t.Errorf("the history has %d events, the last is %+v; the row says %d and %s", len(list),
					list[len(list)-1].Fact, row.LastEvent, row.CustomStatus)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for n := range 50 {
		turns := []*round.Turn{a.Note()}
		if n%10 == 9 {
			turns = append(turns, a.ContinueAsNew())
		}
		turn := Together(append(turns, a.SetStatus(fmt.Sprint(n)), a.Set("n", fmt.Sprint(n)))...)
		Sends(turn, fmt.Sprint("m", n), "other")
		if r := s.commit(turn); len(r.Entries) != 1 {
			t.Fatal(r.Entries)
		}
	}
	close(done)
	readers.Wait()
	s.same(a)
	s.status("a", 0, history.CustomStatus{Data: codec.Payload("49"), Version: a.Row.CustomStatusVersion,
		Changed: true})
	s.hasValues("a", map[string]history.Value{"n": value("49", 6, Began)})
	s.entries(50)
}

// entriesAndValues shows that the messages of a turn and the values it sets are there as soon as
// the turn is, and not before it.
func entriesAndValues(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	reader := s
	if db.Shared {
		reader = open(t, db)
	}
	const turns = 60
	next := func(n int) *round.Turn {
		if n == 0 {
			return Sends(Together(a.Start(), a.SetStatus("0"), a.Set("n", "0")), "m0", "other")
		}
		return Sends(Together(a.SetStatus(fmt.Sprint(n)), a.Set("n", fmt.Sprint(n))), fmt.Sprint("m", n), "other")
	}
	s.commit(next(0))
	done := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		look := func() (stored, value int, err error) {
			stored, err = reader.CountOutbox(context.Background(), 2*turns)
			if err != nil {
				return 0, 0, err
			}
			v, _, err := reader.Value(context.Background(), "a", "n")
			if err != nil {
				return 0, 0, err
			}
			value, err = strconv.Atoi(string(v.Data))
			return stored - 1, value, err
		}
		for more := true; more; {
			select {
			case <-done:
				more = false // one last time
			default:
			}
			stored1, value1, err1 := look()
			known, err := reader.Load(context.Background(), []string{"a"}, nil)
			stored2, value2, err2 := look()
			if err := errors.Join(err1, err, err2); err != nil {
				t.Error(err)
				return
			}
			n, err := strconv.Atoi(string(known[0].Row.CustomStatus))
			if err != nil || stored1 > n || value1 > n || stored2 < n || value2 < n {
				t.Errorf("turn %d: before, %d turns had an outbox entry and the value was %d; afterwards %d and %d "+
					"(%v)", n,
					stored1, value1, stored2, value2, err)
				return
			}
		}
	})
	for n := range turns - 1 {
		s.commit(next(n + 1))
	}
	close(done)
	readers.Wait()
	s.entries(turns)
}

// sameTurnAfterFailure shows that a commit that failed leaves the instance where it was: the same
// turn is taken afterwards, once.
func sameTurnAfterFailure(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	before := a.Clone()
	turn := a.everything()
	ctx, cancel := context.WithCancel(s.ctx())
	cancel()
	if _, err := s.Commit(ctx, Batch(t, turn)); err == nil {
		t.Fatal("a commit without time")
	}
	s.same(before)
	s.commit(turn)
	s.same(a)
	s.refused(history.Conflict, turn)
	s.same(a)
}

// oneOfManyWins shows that of turns that were decided on the same version, and are committed at the
// same time, exactly one is taken, and that the others learn where the instance stands then.
func oneOfManyWins(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	stores := []*store{s}
	if db.Shared {
		stores = append(stores, open(t, db))
	}
	s.commit(a.Start())
	for n := range 20 {
		rivals := make([]*Actor, 4)
		outcomes := make([]history.Outcome, len(rivals))
		var all sync.WaitGroup
		for i := range rivals {
			rivals[i] = a.Clone()
			turn := rivals[i].Say(&events.EventReceived{Wait: 1, Name: "rival", Data: codec.Payload(fmt.Sprint(i))})
			if n%2 == 1 {
				turn = Together(turn, rivals[i].Remove("k")) // committed in another way
			}
			batch := Batch(t, turn)
			all.Go(func() {
				r, err := stores[i%len(stores)].Commit(context.Background(), batch)
				if err != nil {
					t.Error(err)
					return
				}
				outcomes[i] = r.Outcomes[0]
			})
		}
		all.Wait()
		winners := 0
		for i, o := range outcomes {
			if o.Status == history.Committed {
				winners++
				a = rivals[i]
			}
		}
		if winners != 1 {
			t.Fatalf("%d winners: %+v", winners, outcomes)
		}
		for _, o := range outcomes {
			if o.Status != history.Committed && (o.Status != history.Conflict || o.Actual != a.Row.RowVersion()) {
				t.Fatalf("a loser was told %+v, the winner stands at %+v", o, a.Row.RowVersion())
			}
		}
	}
	s.same(a)
}

// ---- Errors.

// versionThatNeverWas shows that the store refuses a turn that was decided on a version that never
// existed, and that the answer has the actual version.
func versionThatNeverWas(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(a.Start())
	ahead := a.Clone()
	ahead.Note()
	if o := s.refused(history.Conflict, ahead.Note()); o.Actual != a.Row.RowVersion() {
		t.Fatalf("told %+v, it stands at %+v", o.Actual, a.Row.RowVersion())
	}
	s.same(a)
	b.Start()
	if o := s.refused(history.Conflict, b.Note()); o.Actual != (round.RowVersion{}) {
		t.Fatalf("told %+v of an instance that does not exist", o.Actual)
	}
	s.absent("b")
	if o := s.refused(history.Conflict, NewActor("a").Start()); o.Actual != a.Row.RowVersion() {
		t.Fatalf("told %+v, it stands at %+v", o.Actual, a.Row.RowVersion())
	}
}

// eventTwice shows that an event cannot be stored twice: not in one turn, not by two turns, and not
// when the row of history is there behind the fence.
func eventTwice(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	turn := Together(a.Note(), a.Note())
	twice := *turn
	twice.Executions = []round.Execution{{ID: 1,
		Events: []events.Event{turn.Executions[0].Events[0], turn.Executions[0].Events[0]}}}
	if _, err := s.Commit(s.ctx(), Batch(t, &twice)); err == nil {
		t.Fatal("a turn with an event twice was taken")
	}
	s.commit(turn)
	s.refused(history.Conflict, turn)
	s.same(a)
	s.plant(a)
	s.refused(history.Unstorable, a.Note())
	a.Back()
	s.same(a)
}

// rowWithoutNames shows that a row of which next to nothing is known can be stored and loaded: the
// store needs none of it.
func rowWithoutNames(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turn := a.Start()
	a.Row = round.Row{Execution: 1, Incarnation: a.Row.Incarnation, Status: round.Running, UpdatedAt: Began,
		LastEvent: a.Row.LastEvent}
	turn.Row = a.Row
	s.commit(turn)
	s.same(a)
	s.commit(a.Note())
	s.same(a)
}

// overtaken shows that a turn that was decided before another owner took the instance further is
// refused, after the other's instance has ended, too.
func overtaken(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	for _, other := range []*round.Turn{a.Note(), a.ContinueAsNew(), a.Complete("1"), a.Start(WithMessage("again"))} {
		late := s.load("a")
		s.commit(other)
		if o := s.refused(history.Conflict, Resume(late, Began).Note()); o.Actual != other.Row.RowVersion() {
			t.Fatalf("told %+v, it stands at %+v", o.Actual, other.Row.RowVersion())
		}
	}
	s.same(a)
}

// wrongBatches shows that mistakes of the caller are permanent errors, and that nothing of such a
// batch is stored.
func wrongBatches(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	gap := func() *round.Turn {
		x := a.Clone()
		turn := Together(x.Note(), x.Note(), x.Note())
		turn.Executions[0].Events = append(turn.Executions[0].Events[:1:1], turn.Executions[0].Events[2])
		return turn
	}
	wrong := func(change func(*round.Turn)) *round.Turn {
		turn := a.Clone().Note()
		change(turn)
		return turn
	}
	cases := map[string][]*round.Turn{
		"two turns of one":     {a.Clone().Note(), a.Clone().Note()},
		"no events":            {wrong(func(t *round.Turn) { t.Executions = nil })},
		"nobody":               {wrong(func(t *round.Turn) { t.Instance = "" })},
		"no turn":              {nil},
		"a gap":                {gap()},
		"a row that is ahead":  {wrong(func(t *round.Turn) { t.Row.LastEvent++ })},
		"a row that is behind": {wrong(func(t *round.Turn) { t.Row.Execution-- })},
		"events of the past":   {wrong(func(t *round.Turn) { t.Expected.LastEvent++ })},
		"back to an execution": {wrong(func(t *round.Turn) { t.Expected.Execution++ })},
		"an event without facts": {wrong(func(t *round.Turn) {
			t.Executions[0].Events = []events.Event{{ID: 2, At: Began}}
		})},
	}
	for name, turns := range cases {
		b := NewActor("b")
		batch := Batch(t, b.StartAndCall())
		for _, turn := range turns {
			batch.Turns = append(batch.Turns, history.Decided{Turn: turn})
		}
		_, err := s.Commit(s.ctx(), batch)
		if err == nil || history.ClassOf(err) != history.Permanent {
			t.Errorf("%s: %v (%v)", name, err, history.ClassOf(err))
		}
		s.absent("b")
	}
	s.same(a)
	s.entries(0)
}

// unstorableAmongOthers shows that a turn that the database does not take does not hold back the
// others of the batch, wherever it stands.
func unstorableAmongOthers(t *testing.T, db *Database) {
	s := open(t, db)
	const size = 7
	for bad := range size {
		var turns []*round.Turn
		var actors []*Actor
		var want []history.CommitStatus
		for i := range size {
			a := NewActor(fmt.Sprintf("a-%d-%d", bad, i))
			actors, turns, want = append(actors, a), append(turns, a.StartAndCall()), append(want, history.Committed)
		}
		stale := NewActor(fmt.Sprintf("stale-%d", bad))
		stale.Start()
		turns, want = append(turns, stale.Note()), append(want, history.Conflict)
		s.db.exec(t, "INSERT INTO rondo_history (shard, instance, execution, event, last_event, data) VALUES ($1, "+
			"$2, 1, 1, 1, $3)", db.Shard(actors[bad].ID), actors[bad].ID, []byte("x"))
		want[bad] = history.Unstorable
		r := s.try(turns...)
		s.verdicts(r, want...)
		if r.Outcomes[bad].Err == nil || !strings.Contains(r.Outcomes[bad].Err.Error(), "history") {
			t.Fatalf("the reason is %v", r.Outcomes[bad].Err)
		}
		for i, a := range actors {
			if i == bad {
				s.absent(a.ID)
			} else {
				s.same(a)
			}
		}
		if got := s.messages(s.lease(100, time.Hour)); len(got) != size-1 {
			t.Fatalf("%d messages were stored by %d turns: %v", len(got), size-1, got)
		}
		if err := s.RemoveOutbox(s.ctx(), r.Entries); err != nil {
			t.Fatal(err)
		}
		s.entries(0) // the result has named all of them
	}
}

// unstorableAndPublished shows that published outbox entries are removed with a batch of which the
// database does not take anything.
func unstorableAndPublished(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	r := s.commit(a.StartAndCall())
	s.plant(b)
	batch := Batch(t, b.Start())
	batch.Published = r.Entries
	got, err := s.Commit(s.ctx(), batch)
	if err != nil {
		t.Fatal(err)
	}
	s.verdicts(got, history.Unstorable)
	s.entries(0)
}

// cancelledBefore shows that a context that has ended stops everything before it begins.
func cancelledBefore(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.StartAndCall())
	ctx, cancel := context.WithCancel(s.ctx())
	cancel()
	take := history.Lease{Before: Began.Add(time.Hour), Until: Began.Add(2 * time.Hour), Limit: 10}
	calls := map[string]func() error{
		"commit":        func() error { _, err := s.Commit(ctx, Batch(t, a.Clone().Note())); return err },
		"load":          func() error { _, err := s.Load(ctx, []string{"a"}, nil); return err },
		"take":          func() error { _, err := s.LeaseOutbox(ctx, take); return err },
		"remove":        func() error { return s.RemoveOutbox(ctx, []history.OutboxKey{{ID: 1}}) },
		"count":         func() error { _, err := s.CountOutbox(ctx, 10); return err },
		"lease overdue": func() error { _, err := s.LeaseOverdue(ctx, take); return err },
		"ping":          func() error { return s.Ping(ctx) },
		"clock":         func() error { _, err := s.Clock(ctx); return err },
		"identity":      func() error { _, err := s.Identity(ctx); return err },
		"set identity":  func() error { _, _, err := s.SetIdentity(ctx, history.System{}, "x", 1); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil || history.ClassOf(err) != history.Retry {
			t.Errorf("%s: %v (%v)", name, err, history.ClassOf(err))
		}
	}
	s.same(a)
	s.entries(1)
}

// cancelledDuring shows that the error of a commit that runs out of time at any moment is true: a
// turn that it reports as not stored is not there, one that it reports as stored is, and one of
// ambiguous outcome is there as a whole or not at all.
func cancelledDuring(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	seen := make(map[history.Class]int)
	for n := range racetest.Short(60, 20) {
		before := a.Clone()
		turns := []*round.Turn{a.Set("n", fmt.Sprint(n))}
		if n%2 == 1 {
			turns = append(turns, a.Remove("m"), a.ContinueAsNew())
		}
		ctx, cancel := context.WithTimeout(s.ctx(), rand.N(4*time.Millisecond))
		r, err := s.Commit(ctx, Batch(t, Together(turns...)))
		cancel()
		class := history.ClassOf(err)
		if err == nil {
			class = 0
			s.verdicts(r, history.Committed)
		}
		seen[class]++
		switch class {
		case 0:
		case history.Retry, history.Contended:
			a = before
		case history.Ambiguous:
			// The commit may still be in flight. A turn on the old version waits for it, and shows
			// which of the two was first.
			if s.try(before.Note()).Outcomes[0].Status == history.Committed {
				a = before
			}
		default:
			t.Fatalf("a commit that ran out of time: %v (%v)", err, class)
		}
		s.same(a)
	}
	t.Log(seen)
}
