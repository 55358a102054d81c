package historytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// listTests are about filters, pagingTests about pages.
var listTests = []test{
	{"list/filter_status", testFilterStatus},
	{"list/filter_name_and_version", testFilterName},
	{"list/filter_ids", testFilterIDs},
	{"list/filter_prefix", testFilterPrefix},
	{"list/filter_parent_and_roots", testFilterParent},
	{"list/filter_attributes", testFilterAttributes},
	{"list/filter_attributes_of_a_new_incarnation", testFilterAttributesOfNewIncarnation},
	{"list/filter_created", testFilterCreated},
	{"list/filter_ended_before", testFilterEnded},
	{"list/filter_that_nothing_can_fit", testFilterImpossible},
	{"list/filter_that_is_wrong", testFilterWrong},
	{"list/filters_combined", testFiltersCombined},
}

// testFilterStatus: a status is that of the current execution of the current incarnation, and
// tombstones have none.
func testFilterStatus(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.ended("a", "b", "c")
	s.commit(a[0].Start(WithMessage("again")))
	s.remove(history.Deletion{}, "c")
	s.lists(history.Filter{Statuses: []round.Status{round.Running}}, "a")
	s.lists(history.Filter{Statuses: []round.Status{round.Completed}}, "b")
	s.lists(history.Filter{}, "a", "b")
}

// testFilterName: names and versions are compared as a whole, also those that a later execution
// has.
func testFilterName(t *testing.T, db *Database) {
	s := open(t, db)
	a, b, c := NewActor("a"), NewActor("b"), NewActor("c")
	s.commit(a.Start(WithName("orders", "1.0.0")), b.Start(WithName("orders", "1.0.1")),
		c.Start(WithName("orders.eu", "1.0.0")))
	s.lists(history.Filter{Name: "orders"}, "a", "b")
	s.lists(history.Filter{Version: "1.0.0"}, "a", "c")
	s.lists(history.Filter{Name: "orders", Version: "1.0.0"}, "a")
	s.lists(history.Filter{Name: "orders", Statuses: []round.Status{round.Failed}})
	s.lists(history.Filter{Name: "order%"})
	s.lists(history.Filter{Name: "ORDERS"})
	b.Row.Version = "2.0.0"
	s.commit(b.ContinueAsNew())
	s.lists(history.Filter{Name: "orders", Version: "1.0.1"})
	s.lists(history.Filter{Name: "orders", Version: "2.0.0"}, "b")
}

// testFilterIDs: ids that are not there are no error, and one that is named twice comes once.
func testFilterIDs(t *testing.T, db *Database) {
	s := open(t, db)
	s.begin("a", "b", "c", "A")
	s.lists(history.Filter{IDs: []string{"b"}}, "b")
	s.lists(history.Filter{IDs: []string{"c", "nobody", "a", "c", "c"}}, "a", "c")
	s.lists(history.Filter{IDs: []string{"nobody"}})
	s.lists(history.Filter{IDs: []string{"a", "b"}, Statuses: []round.Status{round.Failed}})
}

// testFilterPrefix: a prefix is compared byte by byte, whatever its characters mean elsewhere, and
// such a list is in the order of the ids.
func testFilterPrefix(t *testing.T, db *Database) {
	s := open(t, db)
	s.begin("a", "a%", "a%1", "a_", "a_1", "ab", "aB", "b", "ä", "äa", "z", "日本", "日本語", "日", "a\\", "a'", "a*", "🙂",
		"🙂🙂", "~", "a🙂")
	for prefix, want := range map[string][]string{
		"a":   {"a", "a%", "a%1", "a'", "a*", "aB", "a\\", "a_", "a_1", "ab", "a🙂"},
		"a%":  {"a%", "a%1"},
		"a_":  {"a_", "a_1"},
		"a\\": {"a\\"},
		"a'":  {"a'"},
		"a*":  {"a*"},
		"aB":  {"aB"},
		"ä":   {"ä", "äa"},
		"日":   {"日", "日本", "日本語"},
		"日本":  {"日本", "日本語"},
		"🙂":   {"🙂", "🙂🙂"},
		"%":   nil,
		"abc": nil,
	} {
		s.equal("in the order of ids", append([]string{},
			idsOf(s.page(history.Filter{IDPrefix: prefix}, history.Page{}).Instances)...), append([]string{}, want...))
		s.lists(history.Filter{IDPrefix: prefix}, want...)
	}
	s.remove(history.Deletion{Force: true}, "ab", "a")
	s.lists(history.Filter{IDPrefix: "a", Statuses: []round.Status{round.Running}}, "a%", "a%1", "a'", "a*", "aB",
		"a\\", "a_", "a_1", "a🙂")
	s.lists(history.Filter{IDPrefix: "a", Statuses: []round.Status{round.Failed}})
}

// testFilterParent: a parent's children are found, those of its former incarnations, too, but not
// its grandchildren; roots are those without a parent.
func testFilterParent(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p", "q")[0]
	a := s.child(p, "a")
	s.child(p, "b")
	s.child(a, "a1")
	s.commit(p.Complete(`1`))
	s.commit(p.Start(WithMessage("again")))
	s.child(p, "c")
	s.lists(history.Filter{Parent: "p"}, "a", "b", "c")
	s.lists(history.Filter{Parent: "a"}, "a1")
	s.lists(history.Filter{Parent: "q"})
	s.lists(history.Filter{Parent: "nobody"})
	s.lists(history.Filter{RootsOnly: true}, "p", "q")
	s.lists(history.Filter{RootsOnly: true, Parent: "p"})
	s.lists(history.Filter{Parent: "p", IDPrefix: "b"}, "b")
	s.lists(history.Filter{Parent: "p", IDs: []string{"a", "a1"}}, "a")
}

// testFilterAttributes: all attributes that are asked for must be there with their values; an empty
// value is a value.
func testFilterAttributes(t *testing.T, db *Database) {
	s := open(t, db)
	for id, attributes := range map[string]map[string]string{
		"eu1": {"region": "eu", "tier": "1"}, "eu2": {"region": "eu", "tier": "2", "ä": "ö%_"},
		"us1": {"region": "us", "tier": "1"}, "none": nil, "empty": {"region": ""},
	} {
		a := NewActor(id)
		s.commit(a.StartAndCall(WithAttributes(attributes)))
		s.commit(a.Note())
		s.commit(a.ContinueAsNew())
	}
	s.lists(history.Filter{Attributes: map[string]string{"region": "eu"}}, "eu1", "eu2")
	s.lists(history.Filter{Attributes: map[string]string{"region": "eu", "tier": "1"}}, "eu1")
	s.lists(history.Filter{Attributes: map[string]string{"region": "eu", "tier": "2", "ä": "ö%_"}}, "eu2")
	s.lists(history.Filter{Attributes: map[string]string{"region": "us", "tier": "2"}})
	s.lists(history.Filter{Attributes: map[string]string{"region": ""}}, "empty")
	s.lists(history.Filter{Attributes: map[string]string{"Region": "eu"}})
	s.lists(history.Filter{Attributes: map[string]string{"region": "e%"}})
	s.lists(history.Filter{Attributes: map[string]string{"tier": "1"}, IDPrefix: "us"}, "us1")
	s.lists(history.Filter{Attributes: map[string]string{"tier": "1"}, Name: "orders", IDs: []string{"eu1", "eu2"}},
		"eu1")
}

// testFilterAttributesOfNewIncarnation: a new incarnation is found by its own attributes only,
// after a restart and after a deletion, also within the same moment.
func testFilterAttributesOfNewIncarnation(t *testing.T, db *Database) {
	s := open(t, db)
	eu := history.Filter{Attributes: map[string]string{"region": "eu"}}
	us := history.Filter{Attributes: map[string]string{"region": "us"}}
	for i, pause := range []time.Duration{0, time.Second} {
		a := NewActor(fmt.Sprint("a", i))
		s.commit(a.Start(WithAttributes(eu.Attributes)))
		s.commit(a.Complete(`1`))
		s.lists(eu, a.ID)
		s.commit(a.At(a.now.Add(pause)).Start(WithMessage("again"), WithAttributes(us.Attributes)))
		s.lists(eu)
		s.lists(us, a.ID)
		s.remove(history.Deletion{Force: true}, a.ID)
		s.lists(us)
		b := NewActor(a.ID).At(a.now.Add(pause))
		s.commit(b.Start(WithMessage("once more"), WithAttributes(eu.Attributes)))
		s.lists(us)
		s.lists(eu, a.ID)
		s.remove(history.Deletion{Force: true}, a.ID)
	}
}

// testFilterCreated: the first moment belongs to the range, the last does not; what counts is when
// the incarnation began, not the execution.
func testFilterCreated(t *testing.T, db *Database) {
	s := open(t, db)
	at := func(n int) time.Time { return Began.Add(time.Duration(n) * time.Microsecond) }
	for i := range 4 {
		a := NewActor(fmt.Sprint("a", i)).At(at(i))
		s.commit(a.Start())
		s.commit(a.At(at(100)).ContinueAsNew())
	}
	s.lists(history.Filter{CreatedAfter: at(1)}, "a1", "a2", "a3")
	s.lists(history.Filter{CreatedBefore: at(1)}, "a0")
	s.lists(history.Filter{CreatedAfter: at(1), CreatedBefore: at(3)}, "a1", "a2")
	s.lists(history.Filter{CreatedAfter: at(1), CreatedBefore: at(2)}, "a1")
	s.lists(history.Filter{CreatedAfter: at(4)})
	s.lists(history.Filter{CreatedAfter: at(1).In(time.FixedZone("elsewhere", 3600)), CreatedBefore: at(2)}, "a1")
}

// testFilterEnded: only instances that ended before the moment fit, and neither running ones nor
// those that ended at that moment; or those that ended at a moment or later.
func testFilterEnded(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("early", "late", "runs", "again")
	s.commit(a[0].At(Began.Add(time.Minute)).Complete(`1`), a[1].At(Began.Add(2*time.Minute)).Fail("it broke"),
		a[3].Complete(`1`))
	s.commit(a[3].Start(WithMessage("again")))
	s.lists(history.Filter{EndedBefore: Began.Add(time.Minute)})
	s.lists(history.Filter{EndedBefore: Began.Add(time.Minute + time.Microsecond)}, "early")
	s.lists(history.Filter{EndedBefore: Began.Add(2 * time.Minute)}, "early")
	s.lists(history.Filter{EndedBefore: Began.Add(time.Hour)}, "early", "late")
	s.lists(history.Filter{EndedBefore: Began.Add(time.Hour), Statuses: []round.Status{round.Failed, round.Running}},
		"late")
	s.lists(history.Filter{EndedAfter: Began.Add(time.Minute)}, "early", "late")
	s.lists(history.Filter{EndedAfter: Began.Add(time.Minute + time.Microsecond)}, "late")
	s.lists(history.Filter{EndedAfter: Began.Add(time.Minute), EndedBefore: Began.Add(2 * time.Minute)}, "early")
	s.lists(history.Filter{EndedAfter: Began, Statuses: []round.Status{round.Completed, round.Running}}, "early")
	s.lists(history.Filter{EndedAfter: Began.Add(2*time.Minute + time.Microsecond)})
}

// testFilterImpossible: a text that no database could store fits no instance, and is not an error.
func testFilterImpossible(t *testing.T, db *Database) {
	s := open(t, db)
	p := NewActor("p�q")
	s.commit(p.Start(WithAttributes(map[string]string{"k�": "v�"}), WithName("n", "v�")))
	s.child(p, "c")
	for _, bad := range []string{"p\x00q", "p\xffq", "\x00", "\xff"} {
		for _, f := range []history.Filter{
			{IDs: []string{bad}}, {IDPrefix: bad}, {Parent: bad}, {Name: bad}, {Version: bad},
			{Attributes: map[string]string{bad: "v�"}}, {Attributes: map[string]string{"k�": bad}},
			{Version: "v\x00"}, {Version: "v\xff"}, {Attributes: map[string]string{"k�": "v\x00"}},
		} {
			s.lists(f)
		}
		s.gone(bad)
		_, err := s.Delete(s.ctx(), []string{bad}, history.Deletion{Force: true})
		s.fails("delete it", err, history.ErrNoInstance)
		_, err = s.Prune(s.ctx(), bad, history.Keep{})
		s.fails("prune it", err, history.ErrNoInstance)
	}
	s.lists(history.Filter{IDs: []string{"p\x00q", "p�q"}}, "p�q")
	if _, ok, err := s.Value(s.ctx(), "p�q", "\x00"); ok || err != nil {
		t.Fatal("a value without a possible key", ok, err)
	}
	s.same(p)
}

// testFilterWrong: a filter that contradicts itself is an error in every method that takes one, and
// removes nothing.
func testFilterWrong(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.ended("a")[0]
	for _, f := range []history.Filter{
		{IDs: []string{"a"}, IDPrefix: "a"},
		{Statuses: []round.Status{"done"}},
		{Statuses: []round.Status{round.Completed, ""}},
		{Statuses: []round.Status{round.ContinuedAsNew}},
		{Statuses: []round.Status{"deleting"}},
		{CreatedAfter: Began, CreatedBefore: Began},
		{CreatedAfter: Began.Add(1), CreatedBefore: Began},
	} {
		_, list := s.List(s.ctx(), f, history.Page{})
		_, count := s.Count(s.ctx(), f, 0)
		_, remove := s.DeleteEnded(s.ctx(), f, history.Page{})
		_, prune := s.PruneAll(s.ctx(), f, history.Keep{}, history.Page{})
		for _, err := range []error{list, count, remove, prune} {
			s.class(err, history.Permanent)
		}
	}
	s.same(a)
}

// testFiltersCombined: random filters over many instances find and count what a model says, and put
// it in an order that does not depend on the pages.
func testFiltersCombined(t *testing.T, db *Database) {
	w := newWorld(open(t, db), 1)
	for range racetest.Short(4, 2) {
		w.grow(70)
		w.live(80)
	}
	victim := w.all()[0].ID
	for _, n := range must[[]history.Node](w.store, "tree")(w.Tree(w.ctx(), victim)) {
		delete(w.actors, n.Instance)
	}
	w.remove(history.Deletion{Force: true, Children: true}, victim)
	for range racetest.Short(60, 15) {
		f := w.filter()
		want := w.fit(f)
		w.lists(f, want...)
		whole := w.page(f, history.Page{Limit: 1000}).Instances
		w.ordered(f, whole)
		if len(whole) > 1 {
			w.equal(fmt.Sprintf("pages of %+v", f), idsOf(w.walk(f, w.sizes(1+len(whole)), quiet)), idsOf(whole))
		}
		limit := int64(1 + w.r.IntN(5))
		w.equal("count up to a limit", w.count(f, limit), min(limit, int64(len(want))))
	}
}

// ordered checks the order of a list.
func (s *reader) ordered(f history.Filter, list []history.Info) {
	s.Helper()
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		switch {
		case a.Instance == b.Instance,
			f.IDPrefix != "" && a.Instance > b.Instance,
			f.IDPrefix == "" && a.CreatedAt.Before(b.CreatedAt):
			s.Fatalf("%q of %v is before %q of %v, with %+v", a.Instance, a.CreatedAt, b.Instance, b.CreatedAt, f)
		}
	}
}
