package historytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// loadTests are about loading: which instances a filter admits, and how the store reports data that
// cannot be read.
var loadTests = []test{
	{"load/order_duplicates_and_strangers", loadOrder},
	{"load/many_at_once", loadMany},
	{"load/current_execution_only", loadCurrent},
	{"load/while_others_commit", loadWhileOthersCommit},
	{"load/read_corrupted_history", loadCorrupt},
	{"load/missing_rows", loadMissing},
	{"load/row_beyond_the_end", loadBeyond},
	{"load/event_of_another_row", loadMismatch},
	{"load/event_of_many_of_a_turn", loadTurn},
	{"load/payloads_end_no_line", loadLines},
	{"load/turn_in_several_rows", loadParts},
	{"load/unreadable_columns", loadColumns},
	{"load/columns_that_a_turn_replaces", loadColumnsReplaced},
	{"capability_filtering/fetch_with_filter_none_returns_any_item", admitNil},
	{"capability_filtering/fetch_with_compatible_filter_returns_item", admitted},
	{"capability_filtering/fetch_with_incompatible_filter_skips_item", notAdmitted},
	{"capability_filtering/fetch_filter_skips_incompatible_selects_compatible", admittedAmongOthers},
	{"capability_filtering/fetch_filter_does_not_lock_skipped_instances", notAdmittedStaysFree},
	{"capability_filtering/fetch_filter_null_pinned_version_always_compatible", admitWithoutPin},
	{"capability_filtering/fetch_filter_boundary_versions", admitBoundaries},
	{"capability_filtering/pinned_version_stored_via_ack_metadata", pinStored},
	{"capability_filtering/pinned_version_immutable_across_ack_cycles", pinStays},
	{"capability_filtering/continue_as_new_execution_gets_own_pinned_version", pinOfExecution},
	{"capability_filtering/filter_with_empty_supported_versions_returns_nothing", admitNobody},
	{"capability_filtering/concurrent_filtered_fetch_no_double_lock", admittedToMany},
	{"capability_filtering/ack_stores_pinned_version_via_metadata_update", pinLater},
	{"capability_filtering/provider_updates_pinned_version_when_told", pinOverwritten},
	{"capability_filtering/fetch_corrupted_history_filtered_vs_unfiltered", corruptBehindPin},
	{"capability_filtering/fetch_filter_applied_before_history_deserialization", corruptBehindPinAmongOthers},
	{"capability_filtering/ack_appends_event_to_corrupted_history", failureAppended},
	{"race_replay/queue_replay_version_stamp_roundtrip", stampStays},
}

// loadAll loads instances that a filter admits.
func (s *rounds) loadAll(admit func(string, round.Row) bool, ids ...string) []round.Known {
	s.Helper()
	known, err := s.Load(s.ctx(), ids, admit)
	if err != nil {
		s.Fatalf("load: %v", err)
	}
	if len(known) != len(ids) {
		s.Fatalf("%d instances were asked for, %d came", len(ids), len(known))
	}
	for i, k := range known {
		if k.Instance != ids[i] {
			s.Fatalf("place %d has %q, want %q", i, k.Instance, ids[i])
		}
	}
	return known
}

// engines admits instances that are pinned to an engine up to the newest that is known.
func engines(newest int) func(string, round.Row) bool {
	return func(_ string, row round.Row) bool { return row.Engine <= newest }
}

// pinned commits a new instance that is pinned to an engine.
func (s *rounds) pinned(id string, engine int) *Actor {
	s.Helper()
	a := NewActor(id)
	s.commit(a.StartAndCall(func(x *events.Started) { x.Engine = engine }))
	return a
}

// ---- Loading.

// loadOrder shows that instances come in the order asked for, each as often as it was, those that
// do not exist with nothing but their ids.
func loadOrder(t *testing.T, db *Database) {
	s, a, b := open(t, db), NewActor("a"), NewActor("b")
	s.commit(a.StartAndCall(), b.Start())
	s.commit(b.ContinueAsNew())
	known := s.loadAll(nil, "b", "nobody", "a", "b", "", "a")
	want := []int{1, 0, 2, 1, 0, 2}
	for i, k := range known {
		if len(k.History) != want[i] || k.Unreadable != nil || (k.Row.Execution == 0) != (want[i] == 0) {
			t.Fatalf("place %d: %+v", i, k)
		}
	}
	s.loadAll(nil)
	s.loadAll(func(string, round.Row) bool { panic("nobody was asked for") })
}

// loadMany shows that hundreds of instances are loaded together, each with its own history.
func loadMany(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	var ids []string
	for i := range 300 {
		a := NewActor(fmt.Sprint("a", i))
		turn := a.Start()
		for range i % 5 {
			turn = Together(turn, a.Note())
		}
		turns, ids = append(turns, turn), append(ids, a.ID, fmt.Sprint("nobody", i))
	}
	s.commit(turns...)
	for i, k := range s.loadAll(nil, ids...) {
		want := 0
		if i%2 == 0 {
			want = 1 + i/2%5
		}
		if len(k.History) != want || k.Unreadable != nil {
			t.Fatalf("%q has %d events, want %d: %v", k.Instance, len(k.History), want, k.Unreadable)
		}
	}
}

// loadCurrent shows that the history that is loaded is that of the current execution, when the
// former ones are gone, too.
func loadCurrent(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Note()))
	s.commit(a.ContinueAsNew())
	s.sameEvents("a", 2, s.load("a").History, a.Events[2])
	if _, err := s.Prune(s.ctx(), "a", history.Keep{}); err != nil {
		t.Fatal(err)
	}
	s.sameEvents("a", 2, s.load("a").History, a.Events[2])
}

// loadWhileOthersCommit shows that an instance is never seen torn while others take it on to
// further executions, delete it and start it again.
func loadWhileOthersCommit(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	reader := s
	if db.Shared {
		reader = open(t, db)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			known, err := reader.Load(t.Context(), []string{"a"}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if k := known[0]; k.Unreadable != nil || int64(len(k.History)) != k.Row.LastEvent {
				t.Errorf("%d events: %+v", len(k.History), k)
				return
			}
		}
	}()
	for n := range 25 {
		s.commit(Together(a.Start(WithMessage(fmt.Sprint("start", n))), a.Note(), a.Note()))
		s.commit(Together(a.ContinueAsNew(), a.Note()))
		s.commit(a.ContinueAsNew())
		if n%5 == 4 {
			s.delete("a")
			a = NewActor("a")
			continue
		}
		s.commit(a.Complete("1"))
	}
	close(stop)
	<-stopped
}

// ---- Unreadable data.

// isUnreadable checks that an error names the data that cannot be read.
func (s *opened) isUnreadable(err error, want history.UnreadableError) {
	s.Helper()
	var u *history.UnreadableError
	if !errors.As(err, &u) {
		s.Fatalf("%v, want what is unreadable", err)
	}
	if u.Instance != want.Instance || u.Execution != want.Execution || u.Event != want.Event ||
		u.Column != want.Column || u.Err == nil {
		s.Fatalf("unreadable is %+v, want %+v", *u, want)
	}
	if !strings.Contains(u.Error(), fmt.Sprintf("%q", want.Instance)) || !strings.Contains(u.Error(), want.Column) {
		s.Fatalf("%q does not say what is unreadable", u.Error())
	}
}

// three commits an instance with three events between two that are well.
func (s *rounds) three(id string) (a *Actor, known func() round.Known) {
	s.Helper()
	a = NewActor(id)
	before, behind := NewActor(id+"-before"), NewActor(id+"-behind")
	s.commit(before.StartAndCall(), a.Start(), behind.StartAndCall())
	s.commit(a.Note())
	s.commit(a.Note())
	return a, func() round.Known {
		s.Helper()
		all := s.loadAll(nil, before.ID, a.ID, behind.ID)
		for _, k := range []round.Known{all[0], all[2]} {
			if k.Unreadable != nil || len(k.History) != 2 {
				s.Fatalf("%q suffers with %q: %+v", k.Instance, a.ID, k)
			}
		}
		return all[1]
	}
}

// loadCorrupt shows that an event that cannot be read makes its instance unreadable, says which
// event, leaves the row readable and harms no other instance that is loaded with it.
func loadCorrupt(t *testing.T, db *Database) {
	s := open(t, db)
	bad := []string{"", "nonsense", "{", "null", `{"id":2}`,
		`{"id":2,"at":"2026-03-01T12:00:00Z","kind":"of_the_future","data":{}}`, "\x00\xff"}
	for i, data := range bad {
		for event := int64(1); event <= 3; event++ {
			a, known := s.three(fmt.Sprint("a", i, "-", event))
			s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = $2 AND event = $3",
				[]byte(data), a.ID, event)
			k := known()
			s.isUnreadable(k.Unreadable,
				history.UnreadableError{Instance: a.ID, Execution: 1, Event: event, Column: "data"})
			if k.History != nil || asJSON(k.Row.RowVersion()) != asJSON(a.Row.RowVersion()) ||
				k.Row.Name != a.Row.Name {
				t.Fatalf("%+v", k)
			}
			if i > 1 {
				break // one place will do
			}
		}
	}
}

// loadMissing shows that a row of history that is missing is noticed, wherever it is, and named.
func loadMissing(t *testing.T, db *Database) {
	s := open(t, db)
	for event := int64(1); event <= 3; event++ {
		a, known := s.three(fmt.Sprint("a", event))
		s.db.exec(t, "DELETE FROM rondo_history WHERE instance = $1 AND event = $2", a.ID, event)
		s.isUnreadable(known().Unreadable,
			history.UnreadableError{Instance: a.ID, Execution: 1, Event: event, Column: "data"})
	}
	a, known := s.three("empty")
	s.db.exec(t, "DELETE FROM rondo_history WHERE instance = $1", a.ID)
	s.isUnreadable(known().Unreadable, history.UnreadableError{Instance: a.ID, Execution: 1, Event: 1, Column: "data"})
}

// loadBeyond shows that history ends where the row says: events beyond were not committed.
func loadBeyond(t *testing.T, db *Database) {
	s := open(t, db)
	a, known := s.three("a")
	s.plant(a)
	if k := known(); k.Unreadable != nil || len(k.History) != 3 {
		t.Fatalf("%+v", k)
	}
}

// loadMismatch shows that an event that stands in the row of another is noticed.
func loadMismatch(t *testing.T, db *Database) {
	s := open(t, db)
	a, known := s.three("a")
	data, err := events.EncodeEvent(a.Events[1][2])
	if err != nil {
		t.Fatal(err)
	}
	s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = $2 AND event = 2", data, a.ID)
	s.isUnreadable(known().Unreadable, history.UnreadableError{Instance: a.ID, Execution: 1, Event: 2, Column: "data"})
}

// loadColumns shows that a part of the row that cannot be read makes the instance unreadable, that
// the error names the part, and that other instances are not affected.
func loadColumns(t *testing.T, db *Database) {
	s := open(t, db)
	for _, column := range []string{"error", "attributes"} {
		for i, data := range []string{"nonsense", "{", `["list"]`, "\x00"} {
			a, known := s.three(fmt.Sprint(column, i))
			s.db.exec(t, "UPDATE rondo_instances SET "+column+" = $1 WHERE instance = $2", []byte(data), a.ID)
			k := known()
			s.isUnreadable(k.Unreadable, history.UnreadableError{Instance: a.ID, Execution: 1, Column: column})
			if k.Row.RowVersion() != a.Row.RowVersion() || k.Row.Name != "orders" || k.Row.Status != round.Running {
				t.Fatalf("the rest of the row is lost: %+v", k.Row)
			}
			if info := s.info(a.ID); info.Problem == nil || info.LastEvent != 3 {
				t.Fatalf("%+v", info)
			}
		}
	}
	a, known := s.three("status")
	s.db.exec(t, "UPDATE rondo_instances SET status = 'confused' WHERE instance = $1", a.ID)
	s.isUnreadable(known().Unreadable, history.UnreadableError{Instance: a.ID, Execution: 1, Column: "status"})
}

// loadColumnsReplaced shows that an instance whose error cannot be read is healed by a turn that
// writes another one, and that one whose attributes cannot be read can still be ended, started anew
// and deleted.
func loadColumnsReplaced(t *testing.T, db *Database) {
	s := open(t, db)
	a, known := s.three("a")
	s.db.exec(t, "UPDATE rondo_instances SET error = $1 WHERE instance = $2", []byte("nonsense"), a.ID)
	s.commit(a.Fail("unreadable"))
	if k := known(); k.Unreadable != nil || k.Row.Error.Message != "unreadable" {
		t.Fatalf("%+v", k)
	}
	b := NewActor("b")
	s.commit(b.Start(WithAttributes(map[string]string{"x": "y"})))
	s.db.exec(t, "UPDATE rondo_instances SET attributes = $1 WHERE instance = $2", []byte("nonsense"), b.ID)
	s.commit(b.Fail("unreadable"))
	s.isUnreadable(s.load("b").Unreadable, history.UnreadableError{Instance: "b", Execution: 1, Column: "attributes"})
	s.commit(b.At(Began.Add(time.Hour)).Start(WithMessage("again"), WithAttributes(map[string]string{"x": "z"})))
	s.same(b)
	s.db.exec(t, "UPDATE rondo_instances SET attributes = $1 WHERE instance = $2", []byte("nonsense"), b.ID)
	s.delete("b")
	s.absent("b")
}

// ---- Pins and filters.

// admitNil shows that without a filter every history is read, whatever it is pinned to.
func admitNil(t *testing.T, db *Database) {
	s := open(t, db)
	a, b := s.pinned("a", 1), s.pinned("b", 99)
	s.same(a)
	s.same(b)
}

// admitted shows that the filter sees the row as it is stored, once for each instance that exists,
// and that what it admits comes with its history.
func admitted(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 3)
	asked := 0
	known := s.loadAll(func(id string, row round.Row) bool {
		asked++
		row.WakeAt = a.Row.WakeAt
		if id != "a" || asJSON(row) != asJSON(a.Row) {
			t.Errorf("asked for %q:\n%s\nwant\n%s", id, asJSON(row), asJSON(a.Row))
		}
		return true
	}, "a", "nobody")
	s.sameEvents("a", 1, known[0].History, a.Events[1])
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
}

// notAdmitted shows that what the filter refuses comes with its row and without history, which is
// no error.
func notAdmitted(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 3)
	k := s.loadAll(engines(2), "a")[0]
	if k.History != nil || k.Unreadable != nil || k.Row.Engine != 3 || k.Row.RowVersion() != a.Row.RowVersion() {
		t.Fatalf("%+v", k)
	}
}

// admittedAmongOthers shows that each instance is admitted or not by itself.
func admittedAmongOthers(t *testing.T, db *Database) {
	s := open(t, db)
	s.pinned("new", 3)
	s.pinned("old", 1)
	s.pinned("new-too", 3)
	var got []int
	for _, k := range s.loadAll(engines(2), "new", "old", "nobody", "new-too") {
		got = append(got, len(k.History))
	}
	if !slices.Equal(got, []int{0, 2, 0, 0}) {
		t.Fatal(got)
	}
}

// notAdmittedStaysFree shows that looking at an instance that is not admitted does not keep others
// from it.
func notAdmittedStaysFree(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 3)
	s.loadAll(engines(2), "a")
	other := s
	if db.Shared {
		other = open(t, db)
	}
	other.sameEvents("a", 1, other.loadAll(engines(3), "a")[0].History, a.Events[1])
	other.commit(a.Note())
	s.loadAll(engines(2), "a")
	other.commit(a.Complete("1"))
	s.same(a)
}

// admitWithoutPin shows that an instance without a pin is seen as such by the filter, so that every
// engine takes it.
func admitWithoutPin(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turn := a.StartAndCall()
	a.Row.Engine, turn.Row.Engine = 0, 0
	s.commit(turn)
	for _, admit := range []func(string, round.Row) bool{
		engines(0), engines(1), engines(99), func(_ string, row round.Row) bool { return round.CanRead(row) },
	} {
		k := s.loadAll(admit, "a")[0]
		if k.Row.Engine != 0 || k.Unreadable != nil {
			t.Fatalf("%+v", k)
		}
		s.sameEvents("a", 1, k.History, a.Events[1])
	}
	s.same(a)
}

// admitBoundaries shows that the filter alone decides, at both ends of what it supports.
func admitBoundaries(t *testing.T, db *Database) {
	s := open(t, db)
	var ids []string
	for engine := 1; engine <= 5; engine++ {
		ids = append(ids, s.pinned(fmt.Sprint("a", engine), engine).ID)
	}
	for i, k := range s.loadAll(func(_ string, row round.Row) bool {
		return row.Engine >= 2 && row.Engine <= 4
	}, ids...) {
		if engine := i + 1; (k.History != nil) != (engine >= 2 && engine <= 4) || k.Row.Engine != engine {
			t.Fatalf("%+v", k)
		}
	}
}

// pinStored shows that the pin is stored with the first commit.
func pinStored(t *testing.T, db *Database) {
	s := open(t, db)
	s.pinned("a", 7)
	if e := s.load("a").Row.Engine; e != 7 {
		t.Fatal(e)
	}
	if e := s.info("a").Engine; e != 7 {
		t.Fatal(e)
	}
}

// pinStays shows that the pin stays through further turns, reading and loading.
func pinStays(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 7)
	for range 3 {
		s.commit(Resume(s.load("a"), Began).Note())
		if e := s.load("a").Row.Engine; e != 7 {
			t.Fatal(e)
		}
	}
	s.commit(Resume(s.load("a"), Began).Complete("1"))
	if e := s.load("a").Row.Engine; e != 7 || a.Row.Engine != 7 {
		t.Fatal(e)
	}
}

// pinOfExecution shows that each execution has the pin it was begun with, the former ones, too.
func pinOfExecution(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 1)
	turn := a.ContinueAsNew()
	a.Row.Engine, turn.Row.Engine = 2, 2
	s.commit(turn)
	list, err := s.Executions(s.ctx(), "a", 0, 10)
	if err != nil || len(list) != 2 || list[0].Engine != 1 || list[1].Engine != 2 {
		t.Fatal(list, err)
	}
	if k := s.loadAll(engines(1), "a")[0]; k.History != nil || k.Row.Engine != 2 {
		t.Fatalf("%+v", k)
	}
}

// admitNobody shows that a filter that supports nothing gives rows only.
func admitNobody(t *testing.T, db *Database) {
	s := open(t, db)
	s.pinned("a", 1)
	s.pinned("b", 2)
	for _, k := range s.loadAll(func(string, round.Row) bool { return false }, "a", "b") {
		if k.History != nil || k.Unreadable != nil || k.Row.Execution != 1 {
			t.Fatalf("%+v", k)
		}
	}
}

// admittedToMany shows that of owners that look at the same instances at the same moment, through
// the same filter, one has its turn taken for each instance that is admitted, and that those that
// are not are left as they were.
func admittedToMany(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	stores := []*store{s, other}
	var ids []string
	var refused []*Actor
	for i := range 12 {
		a := s.pinned(fmt.Sprint("a", i), 1+i%3)
		ids = append(ids, a.ID)
		if a.Row.Engine > 2 {
			refused = append(refused, a)
		}
	}
	const owners = 4
	var looked, all sync.WaitGroup
	looked.Add(owners)
	taken := make([][]string, owners)
	for i := range owners {
		all.Go(func() {
			store := stores[i%len(stores)]
			known, err := store.Load(context.Background(), ids, engines(2))
			looked.Done()
			looked.Wait() // all have loaded before the first one commits
			if err != nil {
				t.Error(err)
				return
			}
			var turns []*round.Turn
			for _, k := range known {
				if k.History != nil {
					turns = append(turns, Resume(k, Began).Note())
				}
			}
			r, err := store.Commit(context.Background(), Batch(t, turns...))
			if err != nil {
				t.Error(err)
				return
			}
			for j, o := range r.Outcomes {
				if o.Status == history.Committed {
					taken[i] = append(taken[i], turns[j].Instance)
				}
			}
		})
	}
	all.Wait()
	got := slices.Concat(taken...)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a0", "a1", "a10", "a3", "a4", "a6", "a7", "a9"}) {
		t.Fatalf("turns were taken of %q", got)
	}
	for _, a := range refused {
		s.same(a)
	}
}

// pinLater shows that a pin may come with a later commit.
func pinLater(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turn := a.Start()
	a.Row.Engine, turn.Row.Engine = 0, 0
	s.commit(turn)
	if e := s.load("a").Row.Engine; e != 0 {
		t.Fatal(e)
	}
	a.Row.Engine = 5
	s.commit(a.Note())
	if e := s.load("a").Row.Engine; e != 5 {
		t.Fatal(e)
	}
}

// pinOverwritten shows that the store writes the pin it is told, lower ones, too: that a pin stays
// is the engine's business.
func pinOverwritten(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 5)
	for _, engine := range []int{6, 2} {
		a.Row.Engine = engine
		s.commit(a.Note())
		if e := s.load("a").Row.Engine; e != engine {
			t.Fatal(e)
		}
	}
}

// corruptBehindPin shows that a history that cannot be read is not an error for an orchestrator
// that does not admit the instance.
func corruptBehindPin(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.pinned("a", 3)
	s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = $2", []byte("of the future"), "a")
	if k := s.loadAll(engines(2), "a")[0]; k.Unreadable != nil || k.History != nil ||
		k.Row.RowVersion() != a.Row.RowVersion() {
		t.Fatalf("%+v", k)
	}
	s.isUnreadable(s.loadAll(engines(3), "a")[0].Unreadable,
		history.UnreadableError{Instance: "a", Execution: 1, Event: 1, Column: "data"})
}

// corruptBehindPinAmongOthers shows the same for a batch: the store does not read the histories of
// instances that are not admitted, and reads the others.
func corruptBehindPinAmongOthers(t *testing.T, db *Database) {
	s := open(t, db)
	s.pinned("a", 3)
	b := s.pinned("b", 1)
	s.pinned("c", 3)
	s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = $2", []byte("of the future"), "a")
	s.db.exec(t, "DELETE FROM rondo_history WHERE instance = $1", "c")
	known := s.loadAll(engines(2), "a", "b", "c")
	for _, k := range known {
		if k.Unreadable != nil || (k.History != nil) != (k.Instance == "b") {
			t.Fatalf("%+v", k)
		}
	}
	s.sameEvents("b", 1, known[1].History, b.Events[1])
}

// failureAppended shows that a failure can be appended to a history that cannot be read: the row
// has the last event's number. The stored events stay as they are.
func failureAppended(t *testing.T, db *Database) {
	s := open(t, db)
	_, known := s.three("a")
	s.db.exec(t, "UPDATE rondo_history SET data = $1 WHERE instance = $2 AND event = 2", []byte("nonsense"), "a")
	k := known()
	s.isUnreadable(k.Unreadable, history.UnreadableError{Instance: "a", Execution: 1, Event: 2, Column: "data"})
	failed := Resume(k, Began)
	s.commit(failed.Fail(k.Unreadable.Error()))
	k = known()
	s.isUnreadable(k.Unreadable, history.UnreadableError{Instance: "a", Execution: 1, Event: 2, Column: "data"})
	if k.Row.Status != round.Failed || k.Row.LastEvent != 4 || k.Row.Error == nil ||
		!strings.Contains(k.Row.Error.Message, "event 2") {
		t.Fatalf("%+v", k.Row)
	}
	list, err := s.Events(s.ctx(), "a", 1, 3, 10)
	if err != nil || len(list) != 1 || list[0].Fact.Kind() != events.KindFailed {
		t.Fatal(list, err)
	}
	s.commit(failed.Start(WithMessage("again")))
	if k := known(); k.Unreadable != nil || k.Row.Execution != 2 {
		t.Fatalf("%+v", k)
	}
}

// stampStays shows that the engine's stamp of a history with queues in it is the same however it is
// read and how often, in the row and in the events, for a former execution, too.
func stampStays(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	read := &events.MailboxRead{Mailbox: "orders"}
	s.commit(Together(
		a.Start(func(x *events.Started) { x.Engine = 7 }),
		a.Say(read, &events.MessageReceived{Mailbox: "orders", Data: codec.Payload("1"), Message: "m1"}, read)))
	for x := int64(1); x <= 2; x++ {
		for range 2 {
			s.due(time.Hour)
			list, err := s.Executions(s.ctx(), "a", 0, 10)
			if err != nil || int64(len(list)) != x {
				t.Fatal(list, err)
			}
			stamps := []int{s.load("a").Row.Engine, s.info("a").Engine,
				s.page(history.Filter{}, history.Page{}).Instances[0].Engine}
			for _, e := range list {
				stamps = append(stamps, e.Engine)
				exported, err := history.Export(s.ctx(), s.Store, "a", e.Execution)
				if err != nil {
					t.Fatal(err)
				}
				stamps = append(stamps, exported.Events[0].Fact.(*events.Started).Engine)
			}
			for _, stamp := range stamps {
				if stamp != 7 {
					t.Fatalf("the stamps are %v, want 7 everywhere", stamps)
				}
			}
			s.same(a)
		}
		if x == 1 {
			s.commit(a.ContinueAsNew())
		}
	}
}
