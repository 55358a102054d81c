package historytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var bulkTests = []test{
	{"bulk_deletion/delete_instance_bulk_filter_combinations", testBulkFilters},
	{"bulk_deletion/delete_instance_bulk_safety_and_limits", testBulkLimits},
	{"bulk_deletion/delete_instance_bulk_completed_before_filter", testBulkEndedBefore},
	{"bulk_deletion/delete_instance_bulk_cascades_to_children", testBulkChildren},
}

// retentionTests are about removing old instances regularly.
var retentionTests = []test{
	{"retention/only_what_has_ended", testRetainRunning},
	{"retention/descendants_protect_the_root", testRetainRoot},
	{"retention/children_are_not_deleted_alone", testRetainChildren},
	{"retention/children_are_not_skipped_when_their_root_goes", testRetainSkipped},
	{"retention/sweep", testRetentionSweep},
	{"retention/sweep_interrupted_anywhere", testRetentionInterrupted},
	{"retention/sweep_beside_new_incarnations", testRetentionBesideIncarnations},
	{"retention/random_world", testRetentionOfWorld},
}

// deleteEnded deletes one page of ended instances.
func (s *remover) deleteEnded(f history.Filter, p history.Page) history.DeleteResultPage {
	s.Helper()
	return must[history.DeleteResultPage](s, fmt.Sprintf("delete ended %+v", f))(s.DeleteEnded(s.ctx(), f, p))
}

// swept checks which instances a sweep deletes, all on one page.
func (s *remover) swept(f history.Filter, skipped int64, gone ...*Actor) {
	s.Helper()
	got := s.deleteEnded(f, history.Page{Limit: 1000})
	got.Values = 0
	s.equal(fmt.Sprintf("swept with %+v", f), got,
		history.DeleteResultPage{DeleteResult: counts(gone...), Skipped: skipped})
	s.gone(actorIDs(gone...)...)
}

// testBulkFilters: with ids, a moment, both or neither, DeleteEnded deletes the instances that a
// list with that filter shows.
func testBulkFilters(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a", "b", "c", "d", "e", "f", "g")
	for i, x := range a[:6] {
		s.commit(x.At(Began.Add(time.Duration(i) * time.Hour)).Complete(`1`))
	}
	at := func(hours int) time.Time { return Began.Add(time.Duration(hours) * time.Hour) }
	s.swept(history.Filter{IDs: []string{"nobody"}}, 0)
	s.swept(history.Filter{IDs: []string{"a", "nobody", "g"}}, 0, a[0])
	s.swept(history.Filter{IDs: []string{"b", "d"}, EndedBefore: at(2)}, 0, a[1])
	s.swept(history.Filter{EndedBefore: at(3)}, 0, a[2])
	s.swept(history.Filter{Name: "refunds"}, 0)
	s.swept(history.Filter{IDPrefix: "d"}, 0, a[3])
	s.swept(history.Filter{Name: "orders", Version: "1.0.0", RootsOnly: true, Statuses: []round.Status{round.Failed}},
		0)
	s.swept(history.Filter{}, 0, a[4], a[5])
	s.same(a[6])
}

// testBulkLimits: what runs stays, a page deletes no more than its limit, and can be repeated until
// nothing is left.
func testBulkLimits(t *testing.T, db *Database) {
	s := open(t, db)
	running := s.begin("running")[0]
	s.ended(numbered("a", 25)...)
	for _, want := range []int64{10, 10, 5, 0} {
		page := s.deleteEnded(history.Filter{}, history.Page{Limit: 10})
		s.equal("deleted", page.DeleteResult, history.DeleteResult{Instances: want, Executions: want, Events: 3 * want})
		if more := page.Next != ""; more != (want == 10) {
			t.Fatalf("%d were deleted, next %q", want, page.Next)
		}
	}
	s.ended(numbered("b", 130)...)
	s.equal("without a limit", s.deleteEnded(history.Filter{}, history.Page{}).Instances, 100)
	s.same(running)
	s.equal("left", s.count(history.Filter{}, 0), 31)
}

// testBulkEndedBefore: an instance that ended at the moment or later stays.
func testBulkEndedBefore(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("early", "at", "late", "runs")
	for i, x := range a[:3] {
		s.commit(x.At(Began.Add(time.Minute + time.Duration(i-1)*time.Microsecond)).Complete(`1`))
	}
	s.swept(history.Filter{EndedBefore: Began.Add(time.Minute)}, 0, a[0])
	for _, x := range a[1:] {
		s.same(x)
	}
	s.swept(history.Filter{EndedBefore: Began.Add(time.Minute + time.Microsecond)}, 0, a[1])
}

// testBulkChildren: a root takes its descendants along, whether they fit the filter or not.
func testBulkChildren(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "q")
	a := s.child(p[0], "a", WithName("refunds", "1"))
	b := s.child(a, "b", WithName("refunds", "1"))
	x := s.child(p[1], "x")
	s.complete(p[0], p[1], a, b, x)
	s.swept(history.Filter{RootsOnly: true, IDs: []string{"p", "a"}}, 0, p[0], a, b)
	s.swept(history.Filter{Name: "orders"}, 0, p[1], x)
}

// testRetainRunning: filters that ask for what runs delete nothing, and not everything else
// instead.
func testRetainRunning(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("running", "suspended", "halted", "completed", "failed", "cancelled", "terminated")
	s.commit(a[1].Stand(round.Suspended), a[2].Stand(round.Halted), a[3].Complete(`1`), a[4].Fail("it broke"),
		a[5].Cancel(), a[6].Terminate("enough"))
	s.swept(history.Filter{Statuses: []round.Status{round.Running}}, 0)
	s.swept(history.Filter{Statuses: []round.Status{round.Suspended, round.Halted}}, 0)
	s.swept(history.Filter{Statuses: []round.Status{round.Running, round.Failed, round.Failed}}, 0, a[4])
	statuses := round.Statuses()
	s.swept(history.Filter{Statuses: statuses}, 0, a[3], a[5], a[6])
	s.equal("the list that was passed in", statuses, round.Statuses())
	for _, x := range a[:3] {
		s.same(x)
	}
}

// testRetainRoot: a descendant that runs, or ended too late, keeps the whole tree.
func testRetainRoot(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "q")
	a := s.child(p[0], "a")
	b := s.child(a, "b")
	s.complete(p[0], p[1], a)
	s.swept(history.Filter{RootsOnly: true}, 1, p[1])
	for _, x := range []*Actor{p[0], a, b} {
		s.same(x)
	}
	s.clock.Advance(time.Hour)
	s.complete(b)
	s.swept(history.Filter{RootsOnly: true, EndedBefore: Began.Add(time.Hour)}, 1)
	s.swept(history.Filter{RootsOnly: true, EndedBefore: Began.Add(time.Hour + 1000)}, 0, p[0], a, b)
}

// testRetainChildren: a child stays as long as its parent is there, though it fits the filter and
// its parent does not, or must stay for another reason.
func testRetainChildren(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "q")
	a := s.child(p[0], "a")
	b := s.child(p[1], "b")
	c := s.child(p[1], "c") // it runs, and so q stays
	s.complete(a, b, p[1])
	s.swept(history.Filter{}, 3)
	s.swept(history.Filter{IDs: []string{"a", "b", "c"}}, 2)
	for _, x := range []*Actor{p[0], p[1], a, b, c} {
		s.same(x)
	}
	s.complete(c, p[0])
	s.swept(history.Filter{}, 0, p[0], p[1], a, b, c)
}

// testRetainSkipped: children come before their parents in the list, in front of a whole page; what
// goes on the same page was not skipped.
func testRetainSkipped(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	s.clock.Advance(time.Second)
	var turns []*round.Turn
	family := []*Actor{p}
	n := racetest.Short(250, 60)
	for _, id := range numbered("c", n) {
		c := NewActor(id).At(s.clock.Now())
		turns = append(turns, c.Start(WithParent(p)))
		family = append(family, c)
	}
	s.commit(turns...)
	s.complete(family...)
	page := n * 4 / 5
	s.equal("a page of children only", s.deleteEnded(history.Filter{}, history.Page{Limit: page}).Skipped, int64(page))
	s.swept(history.Filter{}, 0, family...)
}

// retained makes instances of which some stay: every tenth runs, and every tenth has a child that
// runs.
func (s *rounds) retained(n int) (stay []string) {
	s.Helper()
	const batch = 500
	for from := 0; from < n; from += batch {
		var starts, ends []*round.Turn
		for i := from; i < from+batch; i++ {
			a := NewActor(fmt.Sprintf("r%05d", i)).At(Began.Add(time.Duration(i/7) * time.Second))
			starts = append(starts, a.Start())
			if i%10 == 0 {
				stay = append(stay, a.ID)
				continue
			}
			ends = append(ends, a.Complete(`1`))
			if i%10 == 1 {
				c := NewActor("child of " + a.ID).At(a.now)
				ends = append(ends, c.Start(WithParent(a)))
				stay = append(stay, a.ID, c.ID)
			}
		}
		s.commit(starts...)
		s.commit(ends...)
	}
	return stay
}

// testRetentionSweep: page by page, all old instances are deleted, those that stay are skipped
// once, and deletions do not invalidate the cursor.
func testRetentionSweep(t *testing.T, db *Database) {
	s := open(t, db)
	n := racetest.Short(2000, 500)
	stay := s.retained(n)
	var total history.DeleteResult
	skipped, pages := int64(0), 0
	for p := (history.Page{Limit: n * 3 / 20}); ; pages++ {
		got := s.deleteEnded(history.Filter{}, p)
		total.Add(got.DeleteResult)
		skipped += got.Skipped
		if got.Next == "" {
			break
		}
		p.Cursor = got.Next
	}
	s.equal("deleted", total, history.DeleteResult{Instances: int64(n * 8 / 10), Executions: int64(n * 8 / 10),
		Events: int64(n * 16 / 10)})
	s.equal("skipped", skipped, int64(n/10)) // those whose child runs; the others do not fit the filter
	s.equal("pages", pages+1, 6)
	s.lists(history.Filter{}, stay...)
	again := s.deleteEnded(history.Filter{}, history.Page{Limit: 1000})
	s.equal("once more", again, history.DeleteResultPage{Skipped: int64(n / 10)})
}

// testRetentionInterrupted: wherever a sweep is interrupted, repeating the sweep and tidying remove
// the rest.
func testRetentionInterrupted(t *testing.T, db *Database) {
	s := open(t, db)
	running := s.begin("running")[0]
	for n := range 3 {
		a := s.ended(numbered(fmt.Sprint("a", n, "-"), 8)...)
		s.complete(s.child(a[0], fmt.Sprint("child", n)))
	}
	s.interrupt(racetest.Short(7, 29), func(ctx context.Context) error {
		for p := (history.Page{Limit: 10}); ; {
			got, err := s.DeleteEnded(ctx, history.Filter{RootsOnly: true}, p)
			if err != nil || got.Next == "" {
				return err
			}
			p.Cursor = got.Next
		}
	}, func(err error) {
		if c := history.ClassOf(err); c == history.Permanent || c == history.Corrupt {
			t.Fatalf("the interruption is %v: %v", c, err)
		}
	})
	s.tidy()
	s.lists(history.Filter{}, "running")
	s.same(running)
	m := s.metrics()
	s.equal("what is left", []int64{m.Executions, m.Events, m.Tombstones}, []int64{1, 2, 27})
	for n := range 3 { // nothing is left that would be in the way
		a := NewActor(fmt.Sprint("a", n, "-0000"))
		s.commit(a.StartAndCall(WithMessage("another start")))
		s.same(a)
	}
}

// testRetentionBesideIncarnations: an instance that begins anew while it is to be deleted is
// deleted in time or left alone; an incarnation that runs is never deleted.
func testRetentionBesideIncarnations(t *testing.T, db *Database) {
	s := open(t, db)
	other := s.Store
	if db.Shared {
		other = db.Open(t, Options{})
	}
	for n := range racetest.Short(10, 3) {
		actors := s.ended(numbered(fmt.Sprint("a", n, "-"), 10)...)
		done := make(chan error, 1)
		go func() {
			_, err := other.DeleteEnded(t.Context(), history.Filter{}, history.Page{})
			done <- err
		}()
		var turns []*round.Turn
		for _, a := range actors {
			turns = append(turns, a.Start(WithMessage("again")))
		}
		r := s.try(turns...)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for i, a := range actors {
			switch r.Outcomes[i].Status {
			case history.Committed:
				s.same(a)
			case history.Conflict:
				s.gone(a.ID)
			default:
				t.Fatal(r.Outcomes[i])
			}
		}
	}
}

// testRetentionOfWorld: in a random world, a sweep deletes the trees that have ended as a whole,
// and nothing else.
func testRetentionOfWorld(t *testing.T, db *Database) {
	w := newWorld(open(t, db), 7)
	for range 3 {
		w.grow(racetest.Short(90, 45))
		w.live(racetest.Short(150, 75))
	}
	children := make(map[string][]*Actor)
	for _, a := range w.all() {
		if p := a.Row.Parent; p != nil {
			children[p.Instance] = append(children[p.Instance], a)
		}
	}
	before := w.clock.Now().Add(2 * time.Minute)
	var whole func(a *Actor) []*Actor
	whole = func(a *Actor) []*Actor {
		all := []*Actor{a}
		for _, c := range children[a.ID] {
			all = append(all, whole(c)...)
		}
		return all
	}
	var gone []*Actor
	skipped := int64(0)
	f := history.Filter{EndedBefore: before, RootsOnly: true}
	for _, root := range w.all() {
		if !fits(f, root.ID, root.Row, w.born[root.ID]) {
			continue
		}
		all := true
		for _, a := range whole(root) {
			all = all && a.Row.Status.Ended() && a.Row.EndedAt.Before(before)
		}
		if all {
			gone = append(gone, whole(root)...)
		} else {
			skipped++
		}
	}
	if len(gone) < 10 || skipped < 3 {
		t.Fatalf("%d go and %d are skipped: this shows nothing", len(gone), skipped)
	}
	w.swept(f, skipped, gone...)
	for _, a := range gone {
		delete(w.actors, a.ID)
	}
	for _, a := range w.all() {
		w.same(a)
	}
}
