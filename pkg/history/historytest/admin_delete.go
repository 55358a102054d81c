package historytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var deletionTests = []test{
	{"deletion/delete_terminal_instances", testDeleteEnded},
	{"deletion/delete_running_rejected_force_succeeds", testDeleteRunning},
	{"deletion/delete_nonexistent_instance", testDeleteNobody},
	{"deletion/delete_cleans_queues_and_locks", testDeleteLeavesNothing},
	{"deletion/cascade_delete_hierarchy", testDeleteHierarchy},
	{"deletion/force_delete_prevents_ack_recreation", testDeleteRefusesTurns},
	{"deletion/list_children", testListChildren},
	{"deletion/delete_get_parent_id", testParentOf},
	{"deletion/delete_get_instance_tree", testTreeOfDescendants},
	{"deletion/delete_instances_atomic", testDeleteSeveral},
	{"deletion/delete_instances_atomic_force", testDeleteSeveralForced},
	{"deletion/delete_instances_atomic_orphan_detection", testDeleteWhileChildIsBorn},
	{"deletion/stale_activity_after_delete_recreate", testStaleTurnAfterDeletion},
}

// removalTests are about deletion, too: what no other store is known to guarantee.
var removalTests = []test{
	{"removal/alone", testDeleteAlone},
	{"removal/children", testDeleteChildren},
	{"removal/children_answer_their_parents", testDeletedChildAnswers},
	{"removal/all_or_nothing", testDeleteAllOrNothing},
	{"removal/named_twice", testDeleteTwice},
	{"removal/all_reasons_are_told", testDeleteReasons},
	{"removal/by_many_at_once", testDeleteAtOnce},
	{"removal/tombstones_vanish", testTombstonesVanish},
	{"removal/old_instances_leave_a_short_tombstone", testShortTombstoneForOld},
	{"removal/tombstone_refuses_its_start", testTombstoneRefusesStart},
}

// testDeleteEnded: whatever way an instance has ended, all of it vanishes and is counted, and no
// other is touched.
func testDeleteEnded(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("completed", "failed", "cancelled", "terminated", "other")
	for _, x := range a {
		s.commit(x.Set("k", `1`), NewActor("beside "+x.ID).Start())
		s.commit(x.ContinueAsNew())
	}
	s.commit(a[0].Complete(`1`), a[1].Fail("it broke"), a[2].Cancel(), a[3].Terminate("enough"), a[4].Complete(`1`))
	for _, x := range a[:4] {
		want := counts(x)
		want.Values = 1
		s.equal("deleted", s.remove(history.Deletion{}, x.ID), want)
		s.gone(x.ID)
	}
	s.same(a[4])
	s.valuesAre("other", map[string]string{"k": `1`})
	s.equal("what is left", s.metrics().Instances, map[round.Status]int64{round.Completed: 1, round.Running: 5})
}

// testDeleteRunning: an instance that has not ended is only deleted by force.
func testDeleteRunning(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("running", "suspended", "halted")
	s.commit(a[1].Stand(round.Suspended), a[2].Stand(round.Halted))
	for _, x := range a {
		s.keeps(history.Deletion{}, history.ErrRunning, []string{x.ID}, a...)
	}
	for _, x := range a {
		s.equal("deleted", s.remove(history.Deletion{Force: true}, x.ID), counts(x))
		s.gone(x.ID)
	}
}

// testDeleteNobody: deleting an id that has no instance, or no longer has one, is an error.
func testDeleteNobody(t *testing.T, db *Database) {
	s := open(t, db)
	for _, how := range []history.Deletion{{}, {Force: true}, {Alone: true}, {Children: true}} {
		s.keeps(how, history.ErrNoInstance, []string{"nobody"})
	}
	s.ended("a")
	s.remove(history.Deletion{}, "a")
	s.keeps(history.Deletion{}, history.ErrNoInstance, []string{"a"})
	s.equal("deleting nothing", s.remove(history.Deletion{}), history.DeleteResult{})
}

// testDeleteLeavesNothing: no sweep finds a deleted instance any more, and its id can be used
// again, with nothing left of the former one.
func testDeleteLeavesNothing(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `1`))
	s.commit(a.SetStatus(`"half"`))
	s.commit(a.ContinueAsNew())
	s.commit(a.Wake(Began.Add(time.Minute)))
	s.remove(history.Deletion{Force: true}, "a")
	due := must[[]history.Overdue](s, "overdue")(s.LeaseOverdue(s.ctx(),
		history.Lease{Before: Began.Add(time.Hour), Until: Began.Add(2 * time.Hour), Limit: 10}))
	if len(due) > 0 {
		t.Fatalf("the deleted instance is overdue: %+v", due)
	}
	b := NewActor("a").At(s.clock.Now())
	s.commit(b.StartAndCall(WithMessage("another start")))
	s.same(b)
	s.valuesAre("a", nil)
	s.equal("executions", s.executions("a"), []int64{1})
	s.equal("custom status", must[history.CustomStatus](s, "custom status")(s.CustomStatus(s.ctx(), "a", 0)),
		history.CustomStatus{})
	s.equal("stats", s.stats("a"), history.Stats{Execution: 1, Events: 2, HistoryBytes: b.Row.HistoryBytes})
	s.commit(b.ContinueAsNew())
	s.same(b)
}

// testDeleteHierarchy: a child is not deleted without its parent, and a root takes all its
// descendants along.
func testDeleteHierarchy(t *testing.T, db *Database) {
	s := open(t, db)
	root := s.begin("root", "other")
	child := s.child(root[0], "child")
	grandchild := s.child(child, "grandchild")
	great := s.child(grandchild, "great-grandchild")
	brother := s.child(root[0], "brother")
	family := []*Actor{root[0], child, grandchild, great, brother}
	s.commit(great.Set("k", `1`), brother.Set("k", `1`))
	s.complete(family...)
	for _, id := range []string{"child", "grandchild", "great-grandchild"} {
		s.keeps(history.Deletion{}, history.ErrHasParent, []string{id}, family...)
		s.keeps(history.Deletion{Force: true}, history.ErrHasParent, []string{id}, family...)
	}
	want := counts(family...)
	want.Values = 2
	node := func(depth int, a *Actor, parent string) history.Node {
		return history.Node{Instance: a.ID, Parent: parent, Name: a.Row.Name, Status: round.Completed, Depth: depth}
	}
	nodes := must[[]history.Node](s, "family")(s.Family(s.ctx(), []string{"root", "root"}, history.Deletion{}))
	slices.SortStableFunc(nodes, func(x, y history.Node) int {
		return cmp.Or(x.Depth-y.Depth, strings.Compare(x.Instance, y.Instance))
	})
	s.equal("the family", nodes, []history.Node{node(0, root[0], ""), node(1, brother, "root"), node(1, child, "root"),
		node(2, grandchild, "child"), node(3, great, "grandchild")})
	s.equal("deleted", s.remove(history.Deletion{}, "root"), want)
	s.gone(actorIDs(family...)...)
	s.same(root[1])
	s.equal("tombstones", s.metrics().Tombstones, 5)
}

// testDeleteRefusesTurns: a turn that was in flight when its instance was deleted is refused, and
// does not restore the instance; nor does its start.
func testDeleteRefusesTurns(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.ContinueAsNew())
	turns := []func(*Actor) *round.Turn{
		(*Actor).Note, (*Actor).ContinueAsNew,
		func(a *Actor) *round.Turn { return a.Complete(`1`) },
		func(a *Actor) *round.Turn { return a.Set("k", `1`) },
		func(a *Actor) *round.Turn { return a.Remove("k") },
	}
	s.remove(history.Deletion{Force: true}, "a")
	for _, turn := range turns {
		o := s.refused(history.Conflict, turn(a.Clone()))
		s.equal("where it stands", o.Actual, round.RowVersion{})
		s.gone("a")
	}
	s.refused(history.Deleted, NewActor("a").StartAndCall())
	s.gone("a")
	s.equal("outbox entries", s.metrics().OutboxEntries, 1) // of the turn before the deletion
}

// testListChildren: a parent's children are found by a filter, without their own children.
func testListChildren(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	a := s.child(p, "a")
	s.child(p, "b")
	s.child(a, "c")
	s.lists(history.Filter{Parent: "p"}, "a", "b")
	s.lists(history.Filter{Parent: "a"}, "c")
	s.lists(history.Filter{Parent: "c"})
	s.remove(history.Deletion{Force: true, Children: true}, "a")
	s.lists(history.Filter{Parent: "p"}, "b")
	s.lists(history.Filter{Parent: "a"})
}

// testParentOf: an instance has its parent, with the event reference in the parent's history; a
// root has none.
func testParentOf(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	s.commit(p.Note())
	s.child(p, "a")
	s.equal("parent of a", s.info("a").Parent,
		&events.Parent{Instance: "p", Incarnation: p.Row.Incarnation, Execution: 1, Event: 3})
	s.equal("parent of p", s.info("p").Parent, (*events.Parent)(nil))
	_, err := s.Instance(s.ctx(), "nobody")
	s.fails("parent of nobody", err, history.ErrNoInstance)
}

// testTreeOfDescendants: a deletion takes along the instances that the tree shows.
func testTreeOfDescendants(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "q")[0]
	a := s.child(p, "a")
	b := s.child(a, "b")
	s.child(b, "c")
	s.child(p, "d")
	var ids []string
	for _, n := range s.tree("p") {
		ids = append(ids, n.Instance)
	}
	slices.Sort(ids)
	s.equal("the tree", ids, []string{"a", "b", "c", "d", "p"})
	s.equal("deleted", s.remove(history.Deletion{Force: true}, "p").Instances, len(ids))
	s.gone(ids...)
	s.lists(history.Filter{}, "q")
}

// testDeleteSeveral: several instances with their descendants go together, and are summed up.
func testDeleteSeveral(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a", "b", "c", "d")
	x, y := s.child(a[0], "x"), s.child(a[1], "y")
	s.commit(a[2].ContinueAsNew())
	s.complete(a[0], a[1], a[2], x, y)
	s.equal("deleted", s.remove(history.Deletion{}, "a", "c", "b"), counts(a[0], a[1], a[2], x, y))
	s.gone("a", "b", "c", "x", "y")
	s.same(a[3])
}

// testDeleteSeveralForced: force is for all that are named and for their descendants.
func testDeleteSeveralForced(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a", "b")
	x := s.child(a[0], "x")
	s.complete(a...)
	s.keeps(history.Deletion{}, history.ErrRunning, []string{"a", "b"}, a[0], a[1], x) // a child runs
	s.equal("deleted", s.remove(history.Deletion{Force: true}, "a", "b"), counts(a[0], a[1], x))
	s.gone("a", "b", "x")
}

// testDeleteWhileChildIsBorn: a child that begins while its parent is deleted goes with it or is
// refused; it never stays behind.
func testDeleteWhileChildIsBorn(t *testing.T, db *Database) {
	s := open(t, db)
	other := s.Store
	if db.Shared {
		other = db.Open(t, Options{})
	}
	born := 0
	for n := range 40 {
		p := s.begin(fmt.Sprint("p", n))[0]
		c := NewActor(fmt.Sprint("c", n))
		turn := c.StartAndCall(WithParent(p))
		var (
			result history.Result
			err    error
			both   sync.WaitGroup
			start  = make(chan struct{})
		)
		both.Go(func() {
			<-start
			result, err = other.Commit(t.Context(), Batch(t, turn))
		})
		close(start)
		d := s.remove(history.Deletion{Force: true}, p.ID)
		both.Wait()
		if err != nil {
			t.Fatal(err)
		}
		switch v := result.Outcomes[0].Status; {
		case v == history.Committed && d.Instances == 2:
			born++
		case v == history.ParentDeleted && d.Instances == 1:
		default:
			t.Fatalf("the child is %v, %d were deleted", v, d.Instances)
		}
		s.gone(p.ID, c.ID)
	}
	t.Logf("%d of 40 were born", born)

	p := s.begin("p")[0]
	s.remove(history.Deletion{Force: true}, "p")
	s.refused(history.ParentDeleted, NewActor("c").StartAndCall(WithParent(p)))
	s.gone("p", "c")
}

// testStaleTurnAfterDeletion: a turn that was decided on the deleted instance does not reach the
// new one of that id, even if both have the same last event.
func testStaleTurnAfterDeletion(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.remove(history.Deletion{Force: true}, "a")
	b := NewActor("a").At(s.clock.Now())
	s.commit(b.StartAndCall(WithMessage("another start"))) // stands at the very same event as the other did
	if a.Row.Incarnation == b.Row.Incarnation {
		t.Fatal("both incarnations have the same name")
	}
	for _, turn := range []*round.Turn{a.Clone().Note(), a.Clone().Complete(`"stale"`), a.Clone().Set("k", `"stale"`),
		a.Clone().ContinueAsNew()} {
		o := s.refused(history.Conflict, turn)
		s.equal("where it stands", o.Actual, b.Row.RowVersion())
		s.same(b)
	}
	s.valuesAre("a", nil)
	s.commit(b.Complete(`1`))
	s.same(b)
}

// testDeleteAlone: with Deletion.Alone, a caller must name all descendants, or nothing is deleted.
func testDeleteAlone(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	a := s.child(p, "a")
	b := s.child(a, "b")
	s.complete(p, a, b)
	alone := history.Deletion{Alone: true}
	s.keeps(alone, history.ErrHasChildren, []string{"p"}, p, a, b)
	s.keeps(alone, history.ErrHasChildren, []string{"p", "a"}, p, a, b)
	s.keeps(history.Deletion{Alone: true, Force: true}, history.ErrHasChildren, []string{"p", "b"}, p, a, b)
	s.equal("deleted", s.remove(alone, "p", "a", "b"), counts(p, a, b))
	s.gone("p", "a", "b")
}

// testDeleteChildren: with leave to do so, a child is deleted without its parent; beside its parent
// it may be named without.
func testDeleteChildren(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	a, b := s.child(p, "a"), s.child(p, "b")
	c := s.child(a, "c")
	s.complete(a, b, c)
	s.equal("deleted", s.remove(history.Deletion{Children: true}, "a"), counts(a, c))
	s.gone("a", "c")
	s.same(p)
	s.same(b)
	s.equal("the tree", len(s.tree("p")), 2)
	s.keeps(history.Deletion{Children: true}, history.ErrRunning, []string{"p"}, p, b)
	s.complete(p)
	s.equal("deleted", s.remove(history.Deletion{}, "b", "p"), counts(p, b))
	s.gone("p", "b")
}

// testDeletedChildAnswers: a child that is deleted without its parent answers it, in the same
// transaction, that it was deleted, or once more how it has ended. Nothing is said to a parent that
// is deleted, too, or that has ended, nor about descendants, nor by a deletion that fails.
func testDeletedChildAnswers(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "other", "ended")
	runs, done, failed := s.child(p[0], "runs"), s.child(p[0], "done"), s.child(p[0], "failed")
	s.child(runs, "grandchild")
	together, late := s.child(p[1], "together"), s.child(p[2], "late")
	s.commit(done.Complete(`"well"`), failed.Fail("it broke"))
	s.complete(p[2])
	entries := s.metrics().OutboxEntries
	s.remove(history.Deletion{Force: true, Children: true}, "together", "other")
	s.gone(actorIDs(together)...)
	s.remove(history.Deletion{Force: true, Children: true}, "late")
	s.gone(actorIDs(late)...)
	s.keeps(history.Deletion{Children: true}, history.ErrRunning, []string{"runs", "done"}, runs, done)
	s.equal("outbox entries", s.metrics().OutboxEntries, entries)
	how := history.Deletion{Force: true, Children: true}
	before := s.clock.Now()
	s.remove(how, "done", "failed", "runs")
	s.gone("done", "failed", "runs", "grandchild")
	var said []string
	s.clock.Advance(time.Minute)
	for _, e := range must[[]history.OutboxEntry](s, "entries")(s.LeaseOutbox(s.ctx(),
		history.Lease{Before: s.clock.Now(), Until: before.Add(time.Hour), Limit: 100})) {
		for _, w := range e.Messages {
			if !strings.HasPrefix(w.Subject, events.DefaultPrefix+"."+string(events.VerbChild)+".") {
				continue
			}
			m, err := events.Decode(events.DefaultPrefix, w.Subject, w.Header, w.Body, "")
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, m.ID+" for "+m.Instance+": "+asJSON(m.Content))
		}
	}
	answer := func(a *Actor, content func(events.Ref) events.Content) string {
		p := a.Row.Parent
		from := events.Ref{Incarnation: a.Row.Incarnation, Execution: a.Row.Execution, Event: p.Event}
		to := events.Ref{Incarnation: p.Incarnation, Execution: p.Execution, Event: p.Event}
		return events.MessageID(events.VerbChild, a.ID, from) + " for " + p.Instance + ": " + asJSON(content(to))
	}
	fails := func(err *failure.Error) func(events.Ref) events.Content {
		return func(r events.Ref) events.Content { return &events.ChildError{Ref: r, Error: err} }
	}
	want := []string{
		answer(done, func(r events.Ref) events.Content { return &events.ChildDone{Ref: r, Output: done.Row.Output} }),
		answer(failed, fails(failed.Row.Error)),
		answer(runs, fails(&failure.Error{Kind: failure.Terminated, Message: "it was deleted", NonRetryable: true})),
	}
	slices.Sort(said)
	slices.Sort(want)
	s.equal("what parents are told", said, want)
}

// testDeleteAllOrNothing: one id that must not be deleted keeps all others, wherever it stands in
// the list.
func testDeleteAllOrNothing(t *testing.T, db *Database) {
	s := open(t, db)
	ids := numbered("e", 600)
	var turns []*round.Turn
	var actors []*Actor
	for _, id := range ids {
		a := NewActor(id)
		actors = append(actors, a)
		turns = append(turns, a.Start())
	}
	s.commit(turns...)
	s.complete(actors...)
	running := s.begin("running")[0]
	child := s.child(running, "child")
	s.complete(child)
	for name, c := range map[string]struct {
		how history.Deletion
		why error
	}{
		"running": {history.Deletion{}, history.ErrRunning}, "child": {history.Deletion{}, history.ErrHasParent},
		"nobody": {history.Deletion{Force: true}, history.ErrNoInstance},
		"e0000x": {history.Deletion{Force: true}, history.ErrNoInstance},
	} {
		for _, at := range []int{0, 300, 600} {
			s.keeps(c.how, c.why, slices.Insert(slices.Clone(ids), at, name), actors[0], actors[599], running, child)
		}
	}
	s.equal("instances", s.count(history.Filter{}, 0), 602)
	s.equal("deleted", s.remove(history.Deletion{}, ids...), counts(actors...))
	s.lists(history.Filter{}, "running", "child")
}

// testDeleteTwice: an id that is named twice, or whose parent is named, too, is deleted and counted
// once.
func testDeleteTwice(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	c := s.child(p, "c")
	s.complete(p, c)
	ids := []string{"p", "c", "p", "p", "c"}
	s.equal("deleted", s.remove(history.Deletion{Alone: true}, ids...), counts(p, c))
	s.equal("the list that was passed in", ids, []string{"p", "c", "p", "p", "c"})
}

// testDeleteReasons: the error names all that is in the way, and with many a few.
func testDeleteReasons(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	c := s.child(p, "c")
	_, err := s.Delete(s.ctx(), []string{"c", "nobody"}, history.Deletion{})
	for _, why := range []error{history.ErrRunning, history.ErrHasParent, history.ErrNoInstance} {
		s.fails("delete", err, why)
	}
	s.same(c)
	ids := numbered("r", 300)
	s.begin(ids...)
	_, err = s.Delete(s.ctx(), ids, history.Deletion{})
	s.fails("delete", err, history.ErrRunning)
	if n := len(err.Error()); n > 2000 {
		t.Fatalf("an error of %d bytes: %v", n, err)
	}
}

// testDeleteAtOnce: of several callers that delete the same instances at the same time, each wins
// or finds them gone; each instance is deleted and counted once.
func testDeleteAtOnce(t *testing.T, db *Database) {
	s := open(t, db)
	stores := []history.Store{s.Store, s.Store, s.Store}
	if db.Shared {
		stores[1], stores[2] = db.Open(t, Options{}), db.Open(t, Options{})
	}
	for n := range 10 {
		ids := numbered(fmt.Sprint("d", n, "-"), 6)
		actors := s.begin(ids...)
		child := s.child(actors[0], fmt.Sprint("child", n))
		var (
			mu    sync.Mutex
			total history.DeleteResult
			all   sync.WaitGroup
		)
		for i, store := range stores {
			all.Go(func() {
				mine := slices.Clone(ids)
				if i > 0 {
					slices.Reverse(mine)
				}
				d, err := store.Delete(t.Context(), mine, history.Deletion{Force: true})
				if err != nil {
					s.deletedByAnother(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total.Add(d)
			})
		}
		all.Wait()
		s.equal("deleted by all", total, counts(append(actors, child)...))
		s.gone(ids[0], ids[5], child.ID)
	}
}

// deletedByAnother checks the error of a caller that lost the race. It may run in any goroutine.
func (s *remover) deletedByAnother(err error) {
	s.Helper()
	if c := history.ClassOf(err); c != history.Permanent {
		s.Errorf("who came late got %v (%v)", err, c)
	}
}

// testTombstonesVanish: a tombstone stays as long as it must, and goes with the first tidying
// afterwards; only then may the same start come again.
func testTombstonesVanish(t *testing.T, db *Database) {
	s := open(t, db)
	s.ended("a", "b")
	s.remove(history.Deletion{}, "a")
	s.clock.Advance(history.TombstoneTTL / 2)
	s.remove(history.Deletion{}, "b")
	tombstones := func(want int) {
		t.Helper()
		s.tidy()
		s.equal("tombstones", s.metrics().Tombstones, want)
	}
	tombstones(2)
	s.clock.Advance(history.TombstoneTTL / 2)
	tombstones(2) // just as old as it must become
	s.refused(history.Deleted, NewActor("a").StartAndCall())
	s.clock.Advance(time.Second)
	tombstones(1)
	s.clock.Advance(history.TombstoneTTL)
	tombstones(0)
	for _, id := range []string{"a", "b"} {
		s.gone(id)
		a := NewActor(id)
		s.commit(a.StartAndCall())
		s.same(a)
	}
	tombstones(0)
	s.lists(history.Filter{}, "a", "b")
}

// testShortTombstoneForOld: an instance that ended long before its deletion keeps its tombstone
// only while a statement that saw the instance may be in flight. Otherwise retention would leave as
// many tombstones as instances end each day.
func testShortTombstoneForOld(t *testing.T, db *Database) {
	s := open(t, db)
	s.ended("old", "as old")
	running := s.begin("runs")[0]
	s.clock.Advance(history.TombstoneTTL)
	young := s.ended("young")
	s.clock.Advance(time.Second)
	s.remove(history.Deletion{Force: true}, "old", "as old", "runs", young[0].ID)
	s.tidy()
	s.equal("tombstones", s.metrics().Tombstones, 4)
	s.clock.Advance(time.Hour + time.Second)
	s.tidy()
	s.equal("tombstones", s.metrics().Tombstones, 2)
	s.refused(history.Conflict, running.Note())
	s.refused(history.Deleted, NewActor("runs").StartAndCall())
	s.refused(history.Deleted, NewActor("young").StartAndCall())
	s.commit(NewActor("old").StartAndCall())
}

// testTombstoneRefusesStart: the tombstone refuses the start of the incarnation that was deleted,
// and no other; the next incarnation's tombstone refuses that one's.
func testTombstoneRefusesStart(t *testing.T, db *Database) {
	s := open(t, db)
	first := NewActor("a")
	s.commit(first.StartAndCall(WithMessage("one")))
	s.remove(history.Deletion{Force: true}, "a")
	s.refused(history.Deleted, NewActor("a").StartAndCall(WithMessage("one")))
	s.refused(history.Deleted, NewActor("a").At(Began.Add(time.Hour)).StartAndCall(WithMessage("one")))
	second := NewActor("a")
	s.commit(second.StartAndCall(WithMessage("two")))
	s.same(second)
	// the instance exists again: this start conflicts with it, and is not one of a deleted instance
	s.refused(history.Conflict, NewActor("a").StartAndCall(WithMessage("one")))
	s.remove(history.Deletion{Force: true}, "a")
	s.refused(history.Deleted, NewActor("a").StartAndCall(WithMessage("two")))
	s.commit(NewActor("a").StartAndCall(WithMessage("three")))
}
