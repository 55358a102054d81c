package historytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// zombieTests are about turns that were in flight when an instance was deleted, and must not
// restore it.
var zombieTests = []test{
	{"zombies/a_turn_after_its_deletion", turnAfterDeletion},
	{"zombies/a_turn_after_a_recreation", turnAfterRecreation},
	{"zombies/a_deleted_start_stays_deleted", startAfterDeletion},
	{"zombies/a_buried_start_with_odd_text", oddStartAfterDeletion},
	{"zombies/a_buried_start_of_a_later_incarnation", restartAfterDeletion},
	{"zombies/a_start_while_it_is_erased", startWhileErased},
	{"zombies/a_new_incarnation_has_nothing_of_the_former", newIncarnation},
	{"zombies/a_grave_is_forgotten_in_time", tombstoneForgotten},
	{"zombies/a_grave_does_not_live", tombstoneDoesNotLive},
	{"zombies/an_orphan_is_not_born", orphanNotBorn},
	{"zombies/an_orphan_of_a_former_incarnation_is_not_born", orphanOfFormerIncarnation},
	{"zombies/a_child_of_an_ended_parent_is_born", childOfEnded},
	{"zombies/an_orphan_among_others", orphanAmongOthers},
	{"zombies/a_child_is_born_while_its_parent_is_deleted", birthDuringDeletion},
	{"zombies/a_grandchild_is_born_while_the_root_is_deleted", grandchildDuringDeletion},
	{"zombies/a_turn_is_committed_while_its_instance_is_deleted", turnDuringDeletion},
	{"zombies/a_parent_that_must_stay_because_it_has_a_child", birthDuringLonelyDeletion},
}

// turnAfterDeletion shows that a turn that was decided before the instance was deleted is refused,
// of whatever kind it is, and leaves nothing.
func turnAfterDeletion(t *testing.T, db *Database) {
	s := open(t, db)
	kinds := []func(*Actor) *round.Turn{
		func(a *Actor) *round.Turn { return a.Note() },
		func(a *Actor) *round.Turn { return a.everything() },
		func(a *Actor) *round.Turn { return a.Complete("1") },
		func(a *Actor) *round.Turn { return a.ContinueAsNew() },
	}
	for i, kind := range kinds {
		a := NewActor(fmt.Sprint("a", i))
		s.commit(a.StartAndCall(), NewActor(fmt.Sprint("other", i)).Start())
		turn := kind(a)
		s.delete(a.ID)
		if o := s.refused(history.Conflict, turn); o.Actual != (round.RowVersion{}) {
			t.Fatalf("told %+v of a deleted instance", o.Actual)
		}
		s.absent(a.ID)
		s.hasValues(a.ID, nil)
	}
	if m := s.metrics(); m.Instances[round.Running] != int64(len(kinds)) || m.Events != int64(len(kinds)) ||
		m.Tombstones != int64(len(kinds)) {
		t.Fatalf("%+v", m)
	}
}

// turnAfterRecreation shows that a turn of a former incarnation is refused by the one that has the
// same id now, however alike they are: the same number of events in the same execution, and even
// the same start at another time.
func turnAfterRecreation(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.StartAndCall(WithMessage("first")))
	late := a.Say(&events.ActivityCompleted{Schedule: 2, Result: codec.Payload(`"of the former incarnation"`)})
	s.delete("a")
	next := NewActor("a")
	s.commit(next.StartAndCall(WithMessage("second")))
	if o := s.refused(history.Conflict, late); o.Actual != next.Row.RowVersion() {
		t.Fatalf("told %+v, it stands at %+v", o.Actual, next.Row.RowVersion())
	}
	s.same(next)
	s.commit(next.Complete("1"))
	s.refused(history.Conflict, late)
	s.same(next)
}

// startAfterDeletion shows that the start that began a deleted instance does not begin it again
// when it comes again, and that another one does, once.
func startAfterDeletion(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start(WithMessage("first")))
	s.commit(a.Complete("1"))
	s.delete("a")
	for range 2 {
		s.refused(history.Deleted, NewActor("a").At(Began.Add(time.Hour)).Start(WithMessage("first")))
		s.absent("a")
	}
	next := NewActor("a")
	start := next.Start(WithMessage("second"))
	s.commit(start)
	s.refused(history.Conflict, start)
	s.same(next)
}

// oddStartAfterDeletion shows that a start is known again if its id has characters that databases
// do not keep.
func oddStartAfterDeletion(t *testing.T, db *Database) {
	s := open(t, db)
	for i, message := range []string{"nul\x00nul", "\xff\xfe", "ü 🙂"} {
		id := fmt.Sprint("a", i)
		s.commit(NewActor(id).Start(WithMessage(message)))
		s.delete(id)
		s.refused(history.Deleted, NewActor(id).Start(WithMessage(message)))
		s.commit(NewActor(id).Start(WithMessage(message + "!")))
	}
}

// restartAfterDeletion shows that the tombstone of an instance that was started anew remembers the
// start of its last incarnation.
func restartAfterDeletion(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start(WithMessage("first")))
	s.commit(a.Complete("1"))
	s.commit(a.Start(WithMessage("second")))
	s.delete("a")
	s.refused(history.Deleted, NewActor("a").Start(WithMessage("second")))
	s.commit(NewActor("a").Start(WithMessage("third")))
}

// halfErased makes a deleted instance one whose deletion was interrupted, if there can be such.
func (s *remover) halfErased(id string) {
	s.Helper()
	if s.db.AtOnce {
		return
	}
	s.db.exec(s.TB, "UPDATE rondo_instances SET status = 'deleting', last_event = -1 WHERE instance = $1", id)
}

// startWhileErased shows that an id cannot be used while its former incarnation is being erased:
// the store answers starts with Deleting, and takes them when the erasing is done.
func startWhileErased(t *testing.T, db *Database) {
	if db.AtOnce {
		t.Skip("the store erases an instance at once")
	}
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start(WithMessage("first")))
	late := a.Clone().Note()
	s.delete("a")
	s.halfErased("a")
	next := NewActor("a")
	start := next.StartAndCall(WithMessage("second"))
	s.refused(history.Deleting, start)
	s.refused(history.Deleting, NewActor("a").Start(WithMessage("first")))
	s.refused(history.Conflict, late)
	s.absent("a")
	s.entries(0)
	s.tidy()
	s.refused(history.Deleted, NewActor("a").Start(WithMessage("first")))
	s.commit(start)
	s.same(next)
}

// newIncarnation shows that a new instance under the id of a deleted one begins with nothing of it:
// no event, execution, value, attribute, status or time.
func newIncarnation(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.StartAndCall(WithAttributes(map[string]string{"x": "old", "y": "old"}), WithMessage("first")))
	s.commit(a.everything())
	s.commit(Together(a.Note(), a.Note(), a.ContinueAsNew(), a.Note()))
	s.delete("a")
	later := Began.Add(time.Hour)
	next := NewActor("a").At(later)
	s.commit(next.Start(WithMessage("second"), WithAttributes(map[string]string{"x": "new"})))
	s.same(next)
	s.hasValues("a", nil)
	s.status("a", 0, history.CustomStatus{})
	if got := s.executions("a"); fmt.Sprint(got) != "[1]" {
		t.Fatal(got)
	}
	if info := s.info("a"); !info.CreatedAt.Equal(later) {
		t.Fatal(info.CreatedAt)
	}
	for value, want := range map[string]int64{"old": 0, "new": 1} {
		if n, err := s.Count(s.ctx(), history.Filter{Attributes: map[string]string{"x": value}}, 0); err != nil ||
			n != want {
			t.Fatalf("%d instances have x = %q, want %d (%v)", n, value, want, err)
		}
	}
	s.commit(Together(next.Note(), next.Set("k", "2"), next.ContinueAsNew()))
	s.same(next)
}

// tombstoneForgotten shows that a tombstone stays for as long as it must, refusing the start, and
// is forgotten after that: the id is as new.
func tombstoneForgotten(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start(WithMessage("first")))
	s.delete("a")
	s.clock.Advance(history.TombstoneTTL - time.Minute)
	s.tidy()
	s.refused(history.Deleted, NewActor("a").At(s.clock.Now()).Start(WithMessage("first")))
	if m := s.metrics(); m.Tombstones != 1 {
		t.Fatalf("%+v", m)
	}
	s.clock.Advance(2 * time.Minute)
	s.tidy()
	if m := s.metrics(); m.Tombstones != 0 {
		t.Fatalf("%+v", m)
	}
	next := NewActor("a").At(s.clock.Now())
	s.commit(next.Start(WithMessage("first")))
	s.same(next)
}

// tombstoneDoesNotLive shows that a tombstone is not an instance: it is not loaded, not due, not
// listed, and cannot be deleted again.
func tombstoneDoesNotLive(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.StartAndCall())
	s.delete("a")
	for range 2 {
		if k := s.loadAll(func(string, round.Row) bool {
			t.Error("a tombstone was to be admitted")
			return true
		}, "a")[0]; k.Row.Execution != 0 {
			t.Fatalf("%+v", k)
		}
		s.due(time.Hour)
		if n, err := s.Count(s.ctx(), history.Filter{}, 0); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.Delete(s.ctx(), []string{"a"}, history.Deletion{Force: true}); !errors.Is(err,
			history.ErrNoInstance) {
			t.Fatal(err)
		}
		s.halfErased("a")
	}
}

// ---- Orphans.

// orphanNotBorn shows that a child whose parent was deleted is not born, whether its own id was
// ever used or not; that it leaves nothing; and that one whose parent never was is none either.
func orphanNotBorn(t *testing.T, db *Database) {
	s, p, c := open(t, db), NewActor("parent"), NewActor("child")
	s.commit(p.Start(), c.Start(WithMessage("of its own")))
	s.delete("child")
	s.delete("parent")
	for _, id := range []string{"child", "child-2"} {
		c := NewActor(id)
		s.refused(history.ParentDeleted,
			Together(c.StartAndCall(WithParent(p), WithAttributes(map[string]string{"x": "y"})), c.Set("k", "1")))
		s.absent(id)
		s.hasValues(id, nil)
	}
	s.halfErased("parent")
	s.refused(history.ParentDeleted, NewActor("child-3").Start(WithParent(p)))
	never := NewActor("never")
	never.Start()
	s.refused(history.ParentDeleted, NewActor("child-4").Start(WithParent(never)))
	s.entries(0)
}

// orphanOfFormerIncarnation shows that a child that a deleted instance wanted to start is not born
// to another one that has the same id now.
func orphanOfFormerIncarnation(t *testing.T, db *Database) {
	s, p := open(t, db), NewActor("parent")
	s.commit(p.Start(WithMessage("first")))
	birth := NewActor("child").Start(WithParent(p))
	s.delete("parent")
	next := NewActor("parent")
	s.commit(next.Start(WithMessage("second")))
	s.refused(history.ParentDeleted, birth)
	s.absent("child")
	s.commit(NewActor("child").Start(WithParent(next)))
}

// childOfEnded shows that a parent that has ended, or gone on to another execution, can still have
// a child: only deletion makes orphans.
func childOfEnded(t *testing.T, db *Database) {
	s := open(t, db)
	after := []func(*Actor) *round.Turn{
		func(a *Actor) *round.Turn { return a.Complete("1") },
		func(a *Actor) *round.Turn { return a.ContinueAsNew() },
		func(a *Actor) *round.Turn { return Together(a.Complete("1"), a.Start(WithMessage("again"))) },
	}
	for i, goOn := range after {
		p, c := NewActor(fmt.Sprint("parent", i)), NewActor(fmt.Sprint("child", i))
		s.commit(p.Start())
		birth := c.Start(WithParent(p))
		s.commit(goOn(p))
		s.commit(birth)
		s.same(c)
	}
}

// orphanAmongOthers shows that orphans and starts of deleted instances hold back no other turn of
// their batch.
func orphanAmongOthers(t *testing.T, db *Database) {
	s, p, q := open(t, db), NewActor("parent"), NewActor("living")
	s.commit(p.Start(), q.Start(), NewActor("buried").Start(WithMessage("first")),
		NewActor("deleting").Start(WithMessage("first")))
	s.delete("parent", "buried", "deleting")
	s.halfErased("deleting")
	a, b, c := NewActor("a"), NewActor("b"), NewActor("c")
	r := s.try(
		a.StartAndCall(), NewActor("orphan").StartAndCall(WithParent(p)), b.StartAndCall(WithParent(q)),
		NewActor("buried").StartAndCall(WithMessage("first")),
		NewActor("deleting").StartAndCall(WithMessage("second")), c.StartAndCall())
	second, messages := history.Deleting, 3
	if db.AtOnce {
		second, messages = history.Committed, 4
	}
	s.verdicts(r, history.Committed, history.ParentDeleted, history.Committed, history.Deleted, second,
		history.Committed)
	s.same(a)
	s.same(b)
	s.same(c)
	if got := s.messages(s.lease(10, time.Hour)); len(got) != messages {
		t.Fatal(got)
	}
}

// rivals gives two stores that work on the same database, as two processes if there can be two.
func rivals(t *testing.T, db *Database) (one, other *store) {
	one = open(t, db)
	if db.Shared {
		return one, open(t, db)
	}
	return one, one
}

// race does two things at once.
func race(one, other func()) {
	var both sync.WaitGroup
	begin := make(chan struct{})
	both.Go(func() { <-begin; one() })
	both.Go(func() { <-begin; other() })
	close(begin)
	both.Wait()
}

// fate is the outcome of one turn of a race.
func (s *rounds) fate(turn *round.Turn, batch history.Batch) history.CommitStatus {
	r, err := s.Commit(context.Background(), batch)
	if err != nil {
		s.Errorf("commit of %q: %v (%v)", turn.Instance, err, history.ClassOf(err))
		return 0
	}
	return r.Outcomes[0].Status
}

// birthDuringDeletion shows that a child that is born while its parent is deleted is either never
// born or deleted with it, whichever comes first.
func birthDuringDeletion(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	seen := make(map[history.CommitStatus]int)
	for n := range 40 {
		p, c := NewActor(fmt.Sprint("parent", n)), NewActor(fmt.Sprint("child", n))
		s.commit(p.Start())
		birth := c.StartAndCall(WithParent(p))
		if n%2 == 1 {
			birth = Together(birth, c.Remove("k"))
		}
		batch := Batch(t, birth)
		var verdict history.CommitStatus
		race(func() { verdict = other.fate(birth, batch) }, func() { s.delete(p.ID) })
		seen[verdict]++
		if verdict != history.Committed && verdict != history.ParentDeleted {
			t.Fatalf("the child was told: %v", verdict)
		}
		s.absent(p.ID)
		s.absent(c.ID)
		s.refused(history.ParentDeleted, NewActor(c.ID).Start(WithParent(p), WithMessage("again")))
	}
	t.Log(seen)
}

// grandchildDuringDeletion shows the same for a grandchild, whose own parent is deleted with the
// root.
func grandchildDuringDeletion(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	for n := range 20 {
		p, c, g := NewActor(fmt.Sprint("parent", n)), NewActor(fmt.Sprint("child", n)),
			NewActor(fmt.Sprint("grandchild", n))
		s.commit(p.Start())
		s.commit(c.Start(WithParent(p)))
		birth := g.Start(WithParent(c))
		batch := Batch(t, birth)
		var verdict history.CommitStatus
		race(func() { verdict = other.fate(birth, batch) }, func() { s.delete(p.ID) })
		if verdict != history.Committed && verdict != history.ParentDeleted {
			t.Fatalf("the grandchild was told: %v", verdict)
		}
		for _, id := range []string{p.ID, c.ID, g.ID} {
			s.absent(id)
		}
	}
}

// turnDuringDeletion shows that a turn that is committed while its instance is deleted is taken
// before that or refused, and does not bring it back.
func turnDuringDeletion(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	for n := range 30 {
		a := NewActor(fmt.Sprint("a", n))
		s.commit(Together(a.Start(), a.Set("k", "1"), a.Set("l", "1")))
		turn := a.Note()
		if n%2 == 1 {
			turn = Together(turn, a.everything())
		}
		batch := Batch(t, turn)
		var verdict history.CommitStatus
		race(func() { verdict = other.fate(turn, batch) }, func() { s.delete(a.ID) })
		if verdict != history.Committed && verdict != history.Conflict {
			t.Fatalf("the turn was told: %v", verdict)
		}
		s.absent(a.ID)
		s.hasValues(a.ID, nil)
		s.refused(history.Conflict, turn)
	}
	if m := s.metrics(); m.Executions != 0 || m.Events != 0 || len(m.Instances) != 0 {
		t.Fatalf("%+v", m)
	}
}

// birthDuringLonelyDeletion shows that a parent that was to be deleted alone stays if its child is
// born first, and that the child is not born otherwise.
func birthDuringLonelyDeletion(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	for n := range 30 {
		p, c := NewActor(fmt.Sprint("parent", n)), NewActor(fmt.Sprint("child", n))
		s.commit(p.Start())
		birth := c.Start(WithParent(p))
		batch := Batch(t, birth)
		var verdict history.CommitStatus
		var err error
		race(func() { verdict = other.fate(birth, batch) }, func() {
			_, err = s.Delete(context.Background(), []string{p.ID}, history.Deletion{Force: true, Alone: true})
		})
		switch {
		case verdict == history.Committed && errors.Is(err, history.ErrHasChildren):
			s.same(p)
			s.same(c)
		case verdict == history.ParentDeleted && err == nil:
			s.absent(p.ID)
			s.absent(c.ID)
		default:
			t.Fatalf("the child was told %v, the deletion %v", verdict, err)
		}
	}
}
