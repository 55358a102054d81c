package historytest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var pagingTests = []test{
	{"list/newest_first", testNewestFirst},
	{"list/pages_while_nothing_happens", testPages},
	{"list/pages_while_everything_happens", testPagesWhileThingsHappen},
	{"list/pages_by_prefix_while_everything_happens", testPrefixPagesWhileThingsHappen},
	{"list/cursors", testCursors},
	{"list/limits", testLimits},
	{"list/count", testCount},
}

// testNewestFirst: the instance created last comes first; a new incarnation is new, a new execution
// is not.
func testNewestFirst(t *testing.T, db *Database) {
	s := open(t, db)
	var actors []*Actor
	for i := range 5 {
		a := NewActor(string("caebd"[i])).At(Began.Add(time.Duration(i) * time.Second))
		s.commit(a.Start())
		actors = append(actors, a)
	}
	order := func(want string) {
		t.Helper()
		for _, f := range []history.Filter{{}, {IDs: []string{"a", "b", "c", "d", "e"}}, {Name: "orders"},
			{Statuses: round.Statuses()}} {
			if got := strings.Join(idsOf(s.page(f, history.Page{}).Instances), ""); got != want {
				t.Fatalf("with %+v the order is %s, want %s", f, got, want)
			}
		}
	}
	order("dbeac")
	s.commit(actors[1].At(Began.Add(time.Hour)).ContinueAsNew())
	order("dbeac")
	s.commit(actors[0].At(Began.Add(time.Hour)).Complete(`1`))
	order("dbeac")
	s.commit(actors[0].At(Began.Add(2 * time.Hour)).Start(WithMessage("again")))
	order("cdbea")
}

// testPages: whatever the size of the pages, the list is the same, also where many instances began
// at the same moment.
func testPages(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 4 {
		s.begin(numbered(fmt.Sprint("p", i%2, "-", i), 15)...)
		s.clock.Advance(time.Duration(i%2) * time.Second)
	}
	for _, f := range []history.Filter{{}, {IDPrefix: "p1"},
		{Name: "orders", Statuses: []round.Status{round.Running}}} {
		whole := s.page(f, history.Page{Limit: 1000})
		s.ordered(f, whole.Instances)
		for _, n := range []int{1, 7, 30, 59, 60, 61} {
			if n == 1 && f.IDPrefix == "" {
				continue
			}
			s.equal(fmt.Sprintf("pages of %d", n), idsOf(s.walk(f, func() int {
				return n
			}, quiet)), idsOf(whole.Instances))
		}
	}
}

// shake changes everything between two pages: instances begin, change, begin anew, and are deleted.
// It tells which were touched in a way that moves them in the list.
func (w *world) shake(moved map[string]bool, prefix string) {
	w.Helper()
	w.clock.Advance(time.Millisecond)
	all := w.all()
	before := make(map[string]string)
	for _, a := range all {
		before[a.ID] = a.Row.Incarnation
	}
	w.grow(3)
	w.live(25)
	for _, a := range w.all() {
		if before[a.ID] != a.Row.Incarnation {
			moved[a.ID] = true
		}
	}
	for range 3 {
		a := pick(w.r, all...)
		if w.actors[a.ID] == nil || prefix != "" && !strings.HasPrefix(a.ID, prefix) {
			continue
		}
		for _, n := range must[[]history.Node](w.store, "tree")(w.Tree(w.ctx(), a.ID)) {
			moved[n.Instance] = true
			delete(w.actors, n.Instance)
		}
		w.remove(history.Deletion{Force: true, Children: true}, a.ID)
	}
}

// walkShaken walks through a list while it is shaken, and checks that every instance that stayed
// where it was came once, and nothing twice.
func (w *world) walkShaken(f history.Filter, size int) {
	w.Helper()
	stable := w.fit(f)
	moved := make(map[string]bool)
	list := w.walk(f, w.sizes(size), func() { w.shake(moved, f.IDPrefix) })
	count := make(map[string]int)
	for _, info := range list {
		count[info.Instance]++
		if count[info.Instance] > 1 && !moved[info.Instance] {
			w.Fatalf("%q came twice", info.Instance)
		}
	}
	missing := 0
	for _, id := range stable {
		if moved[id] {
			continue
		}
		missing++
		if count[id] != 1 {
			w.Fatalf("%q was there all the time and came %d times", id, count[id])
		}
	}
	if missing == 0 || len(moved) == 0 {
		w.Fatalf("%d instances stayed and %d moved: this has shown nothing", missing, len(moved))
	}
	still := slices.DeleteFunc(slices.Clone(list), func(info history.Info) bool { return moved[info.Instance] })
	w.ordered(f, still)
}

// testPagesWhileThingsHappen: a reader that pages through the list while instances change sees each
// instance that stays exactly once.
func testPagesWhileThingsHappen(t *testing.T, db *Database) {
	w := newWorld(open(t, db), 2)
	for range racetest.Short(2, 1) {
		w.grow(60)
		w.live(60)
	}
	for _, f := range []history.Filter{{}, {Name: "orders"}} {
		w.walkShaken(f, 20)
	}
}

// testPrefixPagesWhileThingsHappen: the same for a list in the order of ids, where nothing moves
// but by being deleted.
func testPrefixPagesWhileThingsHappen(t *testing.T, db *Database) {
	w := newWorld(open(t, db), 3)
	for range racetest.Short(2, 1) {
		w.grow(80)
		w.live(60)
	}
	for range racetest.Short(3, 1) {
		w.walkShaken(history.Filter{IDPrefix: "a"}, 12)
	}
}

// testCursors: a text that is not a cursor of such a list is refused, and a cursor whose instance
// is gone still shows where the list continues.
func testCursors(t *testing.T, db *Database) {
	s := open(t, db)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.begin(id)
		s.clock.Advance(time.Second)
	}
	newest := s.page(history.Filter{}, history.Page{Limit: 2})
	prefix := s.page(history.Filter{IDPrefix: "a"}, history.Page{})
	s.equal("the newest", idsOf(newest.Instances), []string{"d", "c"})
	s.equal("no next page", prefix.Next, "")
	s.begin("a1")
	prefix = s.page(history.Filter{IDPrefix: "a"}, history.Page{Limit: 1})

	bad := func(f history.Filter, cursor string) {
		t.Helper()
		_, err := s.List(s.ctx(), f, history.Page{Cursor: cursor})
		s.fails(fmt.Sprintf("cursor %q with %+v", cursor, f), err, history.ErrBadCursor)
		_, err = s.DeleteEnded(s.ctx(), f, history.Page{Cursor: cursor})
		s.fails(fmt.Sprintf("deletion from cursor %q with %+v", cursor, f), err, history.ErrBadCursor)
		_, err = s.PruneAll(s.ctx(), f, history.Keep{}, history.Page{Cursor: cursor})
		s.fails(fmt.Sprintf("pruning from cursor %q with %+v", cursor, f), err, history.ErrBadCursor)
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, cursor := range []string{
		" ", "a", "1", "%", "nonsense", strings.Repeat("A", 5000), newest.Next[1:], newest.Next + "A", "\x00", "ä",
		encode("{}"), encode("[]"), encode("null"), encode(`{"i":""}`),
		encode(`{"i":"a\u0000"}`), encode(`{"c":"x","i":"a"}`), encode(`{"c":1e300,"i":"a"}`),
		encode("{\"c\":1,\"i\":\"" + strings.Repeat("a", 300) + "\"}"),
	} {
		bad(history.Filter{}, cursor)
		bad(history.Filter{IDPrefix: "a"}, cursor)
	}
	bad(history.Filter{}, prefix.Next)
	bad(history.Filter{IDPrefix: "a"}, newest.Next)

	s.remove(history.Deletion{Force: true}, "c", "a")
	s.equal("behind one that is gone", idsOf(s.page(history.Filter{}, history.Page{Cursor: newest.Next}).Instances),
		[]string{"b"})
	s.equal("behind one that is gone",
		idsOf(s.page(history.Filter{IDPrefix: "a"}, history.Page{Cursor: prefix.Next}).Instances), []string{"a1"})
	s.equal("the same page again", idsOf(s.page(history.Filter{}, history.Page{Cursor: newest.Next}).Instances),
		[]string{"b"})
}

// testLimits: without a limit a page has 100, and never more than 1,000.
func testLimits(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	for _, id := range numbered("a", 1010) {
		turns = append(turns, NewActor(id).Start())
	}
	s.commit(turns...)
	for limit, want := range map[int]int{0: 100, -1: 100, 1: 1, 999: 999, 1000: 1000, 1001: 1000, 1 << 40: 1000} {
		list := s.page(history.Filter{}, history.Page{Limit: limit})
		if len(list.Instances) != want || list.Next == "" {
			t.Errorf("a page of %d has %d instances, want %d; next %q", limit, len(list.Instances), want, list.Next)
		}
	}
	rest := s.page(history.Filter{IDPrefix: "a1"}, history.Page{Limit: 10})
	if len(rest.Instances) != 10 || rest.Next != "" {
		t.Errorf("a page that is just full says that there is more: %d, %q", len(rest.Instances), rest.Next)
	}
	s.equal("count", s.count(history.Filter{}, 0), 1010)
}

// testCount: counting stops at the limit, so that it costs no more than that.
func testCount(t *testing.T, db *Database) {
	s := open(t, db)
	s.equal("count of nothing", s.count(history.Filter{}, 0), 0)
	s.begin(numbered("a", 20)...)
	s.ended(numbered("b", 10)...)
	s.remove(history.Deletion{}, "b0000")
	for limit, want := range map[int64]int64{0: 29, -1: 29, 1: 1, 28: 28, 29: 29, 30: 29} {
		s.equal(fmt.Sprintf("count to %d", limit), s.count(history.Filter{}, limit), want)
	}
	s.equal("count of those that have ended", s.count(history.Filter{Statuses: []round.Status{round.Completed}}, 5), 5)
	s.equal("count by prefix", s.count(history.Filter{IDPrefix: "a", Name: "orders"}, 100), 20)
	_, err := s.Count(s.ctx(), history.Filter{Statuses: []round.Status{"?"}}, 0)
	if err == nil || errors.Is(err, history.ErrBadCursor) {
		t.Fatal(err)
	}
}
