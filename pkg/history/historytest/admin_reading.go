package historytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var readingTests = []test{
	{"reading/executions_in_pages", testExecutionPages},
	{"reading/events_in_pages", testEventPages},
	{"reading/pages_within_bytes", testBoundedPages},
	{"reading/unknown_execution", testUnknownExecution},
	{"reading/corrupt_row_and_the_list_goes_on", testCorruptRow},
	{"reading/corrupt_execution", testCorruptExecution},
	{"reading/custom_status_polling", testPolling},
	{"reading/metrics_of_a_random_world", testMetricsOfWorld},
	{"reading/events_while_they_are_removed", testEventsWhileRemoved},
	{"reading/another_store_sees_the_same", testAnotherReader},
	{"export/round_trip", testExport},
	{"export/what_cannot_be_exported", testExportNothing},
}

// treeTests are about trees of parents and children.
var treeTests = []test{
	{"tree/order_and_depth", testTreeOrder},
	{"tree/several_incarnations", testTreeOfIncarnations},
	{"tree/large", testLargeTree},
	{"tree/circle", testCircle},
}

// testExecutionPages: executions come in pages that go on behind an execution, those that were
// pruned left out.
func testExecutionPages(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	for range 11 {
		s.commit(a.ContinueAsNew())
	}
	page := func(after int64, limit int) (ids []int64) {
		t.Helper()
		for _, x := range must[[]history.ExecutionInfo](s, "executions")(s.Executions(s.ctx(), "a", after, limit)) {
			ids = append(ids, x.Execution)
		}
		return ids
	}
	s.equal("first page", page(0, 5), []int64{1, 2, 3, 4, 5})
	s.equal("second page", page(5, 5), []int64{6, 7, 8, 9, 10})
	s.equal("last page", page(10, 5), []int64{11, 12})
	s.equal("behind the last", page(12, 5), []int64(nil))
	s.equal("from anywhere", page(-3, 1), []int64{1})
	s.equal("without a limit", len(page(0, 0)), 12)
	must[history.DeleteResult](s, "prune")(s.Prune(s.ctx(), "a", history.Keep{Last: 3}))
	s.equal("after pruning", page(0, 2), []int64{10, 11})
	s.equal("behind one that was pruned", page(4, 2), []int64{10, 11})
}

// testEventPages: each execution's history comes in pages; without a limit 100 events, and never
// more than 1,000.
func testEventPages(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Notes(1200))
	s.commit(a.ContinueAsNew())
	s.commit(a.Notes(30))
	s.commit(a.ContinueAsNew())
	for x, all := range a.Events {
		for _, limit := range []int{0, 1, 7, 1000, 5000} {
			size := history.Page{Limit: limit}.Size()
			for _, after := range []int64{-1, 0, 1, 29, 30, 31, 1200, 1202, 5000} {
				got := must[[]events.Event](s, "events")(s.Events(s.ctx(), "a", x, after, limit))
				from := min(max(int(after), 0), len(all))
				s.sameEvents("a", x, got, all[from:min(from+size, len(all))])
			}
		}
	}
	s.sameEvents("a", 3, must[[]events.Event](s, "the current one")(s.Events(s.ctx(), "a", 0, 0, 0)), a.Events[3])
}

// testBoundedPages: a page ends with the row that makes it as large as the bound, and the pages
// after it continue there, until one is empty.
func testBoundedPages(t *testing.T, db *Database) {
	s := open(t, db)
	const size, runs = 10_000, 7
	output := `"` + strings.Repeat("x", size-2) + `"`
	var ids []string
	for i := range runs {
		a := s.begin(fmt.Sprint("large-", i))[0]
		s.commit(a.Complete(output))
		ids = append(ids, a.ID)
	}
	a := s.begin("long")[0]
	for i := range runs - 1 {
		s.commit(a.Complete(output))
		s.commit(a.Start(WithMessage(fmt.Sprint("again-", i))))
	}
	s.commit(a.Notes(1000))
	for bytes, want := range map[int][]int{
		1: {1, 1, 1, 1, 1, 1, 1}, size: {1, 1, 1, 1, 1, 1, 1}, size + 1: {2, 2, 2, 1}, 3 * size: {3, 3, 1},
		1 << 20: {7},
	} {
		r := s.Store.Within(bytes)
		var sizes []int
		var listed []string
		for page := (history.Page{Limit: 100}); ; {
			list := must[history.InstanceList](s, "list")(r.List(s.ctx(), history.Filter{IDPrefix: "large-"}, page))
			sizes, listed = append(sizes, len(list.Instances)), append(listed, idsOf(list.Instances)...)
			if page.Cursor = list.Next; page.Cursor == "" {
				break
			}
		}
		s.equal(fmt.Sprintf("pages of instances of %d bytes", bytes), sizes, want)
		s.equal("the instances of all pages", listed, ids)

		sizes = nil
		after := int64(0)
		for {
			page := must[[]history.ExecutionInfo](s, "executions")(r.Executions(s.ctx(), "long", after, 100))
			if len(page) == 0 {
				break
			}
			sizes = append(sizes, len(page))
			s.equal("the first of a page", page[0].Execution, after+1)
			after = page[len(page)-1].Execution
		}
		s.equal("the last execution", after, int64(runs))
		s.equal(fmt.Sprintf("pages of executions of %d bytes", bytes), sizes, want)

		var all []events.Event
		for {
			page := must[[]events.Event](s, "events")(r.Events(s.ctx(), "long", 0, int64(len(all)), 1000))
			if len(page) == 0 {
				break
			}
			if all = append(all, page...); bytes == 1 && len(page) > 32 || bytes == 1<<20 && len(page) < 1000 &&
				len(all) < len(a.Events[runs]) {
				t.Errorf("a page of %d bytes has %d events", bytes, len(page))
			}
		}
		s.sameEvents("long", runs, all, a.Events[runs])
	}
	_, err := s.Store.Within(1).Events(s.ctx(), "nobody", 1, 0, 0)
	s.fails("events of nobody", err, history.ErrNoInstance)
	_, err = s.Store.Within(1).Executions(s.ctx(), "nobody", 0, 0)
	s.fails("executions of nobody", err, history.ErrNoInstance)
	_, err = s.Store.Within(1).List(s.ctx(), history.Filter{}, history.Page{Cursor: "nonsense"})
	s.fails("list behind nonsense", err, history.ErrBadCursor)
}

// testUnknownExecution: an execution that never was, or is no longer kept, is told apart from an
// instance that is not there.
func testUnknownExecution(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.ContinueAsNew())
	s.commit(a.ContinueAsNew())
	must[history.DeleteResult](s, "prune")(s.Prune(s.ctx(), "a", history.Keep{Last: 2}))
	for _, x := range []int64{1, 4, -1} {
		_, err := s.Events(s.ctx(), "a", x, 0, 0)
		s.fails(fmt.Sprint("execution ", x), err, history.ErrNoExecution)
		_, err = history.Export(s.ctx(), s.Store, "a", x)
		s.fails(fmt.Sprint("export of execution ", x), err, history.ErrNoExecution)
	}
	_, err := s.Events(s.ctx(), "nobody", 1, 0, 0)
	s.fails("events of nobody", err, history.ErrNoInstance)
}

// testCorruptRow: an instance whose error, attributes or status cannot be read says so, keeps what
// can be read, and does not hide the others. It can be deleted.
func testCorruptRow(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("good", "error", "attributes")
	s.child(a[2], "status", WithAttributes(map[string]string{"region": "eu"}))
	s.commit(a[1].Fail("it broke"))
	s.db.exec(t, "UPDATE rondo_instances SET error = $1 WHERE instance = 'error'", []byte("{"))
	s.db.exec(t, "UPDATE rondo_instances SET attributes = $1 WHERE instance = 'attributes'", []byte(`{"region":1}`))
	s.db.exec(t, "UPDATE rondo_instances SET status = 'dancing' WHERE instance = 'status'")
	s.lists(history.Filter{IDs: []string{"good", "error", "attributes", "status"}}, "good", "error",
		"attributes", "status")
	for _, info := range append(s.page(history.Filter{}, history.Page{}).Instances, s.info("error"),
		s.info("attributes"), s.info("status")) {
		if info.Instance == "good" {
			if info.Problem != nil {
				t.Fatal(info.Problem)
			}
			continue
		}
		var u *history.UnreadableError
		if !errors.As(info.Problem, &u) || u.Instance != info.Instance || u.Column != info.Instance || u.Event != 0 {
			t.Fatalf("%q has the problem %v", info.Instance, info.Problem)
		}
		if info.Name != "orders" || info.LastEvent < 2 || info.Execution != 1 || info.CreatedAt != Began {
			t.Fatalf("the rest of %q is lost: %+v", info.Instance, info)
		}
	}
	s.lists(history.Filter{Statuses: []round.Status{round.Failed}}, "error")
	s.remove(history.Deletion{Force: true}, "error", "attributes")
	s.gone("error", "attributes", "status")
	s.same(a[0])
}

// testCorruptExecution: where the error of a former execution cannot be read, the list of
// executions says which it is.
func testCorruptExecution(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Fail("it broke"))
	s.commit(a.Start(WithMessage("again")))
	s.db.exec(t, "UPDATE rondo_executions SET error = $1 WHERE instance = 'a'", []byte("nonsense"))
	_, err := s.Executions(s.ctx(), "a", 0, 0)
	s.unreadable(err, history.UnreadableError{Instance: "a", Execution: 1, Column: "error"})
	s.equal("the others", len(must[[]history.ExecutionInfo](s, "executions")(s.Executions(s.ctx(), "a", 1, 0))), 1)
	s.same(a)
}

// testPolling: a reader that polls with the version it knows receives each change once, across
// executions and deletions.
func testPolling(t *testing.T, db *Database) {
	s := open(t, db)
	known := int64(0)
	poll := func(want string, changed bool) {
		t.Helper()
		got := must[history.CustomStatus](s, "custom status")(s.CustomStatus(s.ctx(), "a", known))
		if got.Changed != changed || string(got.Data) != want {
			t.Fatalf("polled %+v (%s) knowing version %d, want %s, changed: %v", got, got.Data, known, want, changed)
		}
		known = got.Version
	}
	poll("", false)
	a := s.begin("a")[0]
	poll("", false)
	s.commit(a.SetStatus(`"one"`))
	poll(`"one"`, true)
	poll("", false)
	s.commit(a.ContinueAsNew())
	poll("", false)
	s.commit(a.SetStatus(`"two"`))
	s.commit(a.SetStatus(`"three"`))
	poll(`"three"`, true)
	s.commit(a.SetStatus(""))
	poll("", true)
	poll("", false)
	s.remove(history.Deletion{Force: true}, "a")
	poll("", true) // back to version 0
	poll("", false)
}

// testMetricsOfWorld: after all kinds of operations, the metrics equal those of a model.
func testMetricsOfWorld(t *testing.T, db *Database) {
	w := newWorld(open(t, db), 4)
	for step := range 12 {
		w.grow(15)
		w.live(40)
		if step%3 == 2 {
			a := pick(w.r, w.all()...)
			for _, n := range must[[]history.Node](w.store, "tree")(w.Tree(w.ctx(), a.ID)) {
				delete(w.actors, n.Instance)
			}
			w.remove(history.Deletion{Force: true, Children: true}, a.ID)
			b := pick(w.r, w.all()...)
			must[history.DeleteResult](w.store, "prune")(w.Prune(w.ctx(), b.ID, history.Keep{}))
			for x := range b.Events {
				if x != b.Row.Execution {
					delete(b.Events, x)
				}
			}
		}
	}
	want := make(map[round.Status]int64)
	for _, a := range w.all() {
		want[a.Row.Status]++
	}
	sum := counts(w.all()...)
	got := w.metrics()
	got.OutboxEntries, got.Tombstones = 0, 0
	w.equal("metrics", got, history.Metrics{Instances: want, Executions: sum.Executions, Events: sum.Events})
}

// testEventsWhileRemoved: a reader of a history that is being pruned or deleted gets all of it, or
// an error that says it is gone; the history never looks corrupt.
func testEventsWhileRemoved(t *testing.T, db *Database) {
	s := open(t, db)
	reader := s.Store
	if db.Shared {
		reader = db.Open(t, Options{})
	}
	for n := range 8 {
		a := s.begin(fmt.Sprint("a", n))[0]
		s.commit(a.Notes(200))
		s.commit(a.ContinueAsNew())
		s.commit(a.Notes(200))
		done := make(chan struct{})
		var readers sync.WaitGroup
		for _, x := range []int64{0, 1, 2} {
			readers.Go(func() {
				for more := true; more; {
					select {
					case <-done:
						more = false // one last time
					default:
					}
					list, err := reader.Events(t.Context(), a.ID, x, 0, 1000)
					switch {
					case errors.Is(err, history.ErrNoInstance), errors.Is(err, history.ErrNoExecution):
					case err != nil:
						t.Errorf("execution %d: %v", x, err)
						return
					case len(list) != len(a.Events[1]) && len(list) != len(a.Events[2]):
						t.Errorf("execution %d: %d events", x, len(list))
						return
					}
				}
			})
		}
		must[history.DeleteResult](s, "prune")(s.Prune(s.ctx(), a.ID, history.Keep{}))
		s.remove(history.Deletion{Force: true}, a.ID)
		close(done)
		readers.Wait()
	}
}

// testAnotherReader: a store that is opened later reads what this one has written.
func testAnotherReader(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.child(a, "b", WithAttributes(map[string]string{"region": "eu"}))
	s.commit(a.Set("k", `1`))
	want := s.page(history.Filter{}, history.Page{})
	if !db.Shared {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	other := newStore(t, db.Open(t, Options{}), db, s.clock)
	other.equal("the list", other.page(history.Filter{}, history.Page{}), want)
	other.same(a)
	other.valuesAre("a", map[string]string{"k": `1`})
	other.lists(history.Filter{Attributes: map[string]string{"region": "eu"}}, "b")
}

// testExport: the history of each execution goes through a file and comes back as it was.
func testExport(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Set("k", `{"n":1}`), NewActor("b").Start())
	s.commit(a.SetStatus(`"half"`))
	s.commit(a.Notes(2500))
	s.commit(a.ContinueAsNew())
	s.commit(a.Fail("it broke"))
	for _, x := range []int64{0, 1, 2} {
		exported := must[events.Export](s, "export")(history.Export(s.ctx(), s.Store, "a", x))
		data := must[[]byte](s, "write")(json.Marshal(exported))
		var back events.Export
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if x == 0 {
			x = 2
		}
		if back.Instance != "a" || back.Execution != x {
			t.Fatalf("execution %d of %q came back", back.Execution, back.Instance)
		}
		s.sameEvents("a", x, back.Events, a.Events[x])
	}
}

// testExportNothing: exporting an instance or an execution that does not exist is an error.
func testExportNothing(t *testing.T, db *Database) {
	s := open(t, db)
	s.begin("a")
	for _, x := range []int64{0, 1} {
		_, err := history.Export(s.ctx(), s.Store, "nobody", x)
		s.fails("export of nobody", err, history.ErrNoInstance)
	}
	_, err := history.Export(s.ctx(), s.Store, "a", 2)
	s.fails("export of an execution that never was", err, history.ErrNoExecution)
}

func (s *reader) tree(id string) []history.Node {
	s.Helper()
	return must[[]history.Node](s, "tree of "+id)(s.Tree(s.ctx(), id))
}

// testTreeOrder: parents come before their children, each with its depth below the one that was
// asked for.
func testTreeOrder(t *testing.T, db *Database) {
	s := open(t, db)
	root := s.begin("root", "other")[0]
	z := s.child(root, "z")
	a := s.child(root, "a", WithName("refunds", "1"))
	s.child(z, "b")
	c := s.child(a, "c")
	s.child(c, "d")
	s.commit(c.Complete(`1`))
	node := func(id, parent, name string, status round.Status, depth int) history.Node {
		return history.Node{Instance: id, Parent: parent, Name: name, Status: status, Depth: depth}
	}
	want := map[string]history.Node{
		"root": node("root", "", "orders", round.Running, 0), "a": node("a", "root", "refunds", round.Running, 1),
		"z": node("z", "root", "orders", round.Running, 1),
		"b": node("b", "z", "orders", round.Running, 2), "c": node("c", "a", "orders", round.Completed, 2),
		"d": node("d", "c", "orders", round.Running, 3),
	}
	tree := s.tree("root")
	s.equal("size of the tree", len(tree), len(want))
	seen := map[string]bool{"": true}
	for _, n := range tree {
		s.equal("node "+n.Instance, n, want[n.Instance])
		if !seen[n.Parent] {
			t.Fatalf("%q comes before its parent %q", n.Instance, n.Parent)
		}
		seen[n.Instance] = true
	}
	s.equal("a part of it", s.tree("c"),
		[]history.Node{node("c", "a", "orders", round.Completed, 0), node("d", "c", "orders", round.Running, 1)})
	s.equal("a leaf", s.tree("other"), []history.Node{node("other", "", "orders", round.Running, 0)})
	_, err := s.Tree(s.ctx(), "nobody")
	s.fails("tree of nobody", err, history.ErrNoInstance)
}

// testTreeOfIncarnations: the children of all incarnations belong to the tree; an instance that was
// started without a parent does not.
func testTreeOfIncarnations(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	s.child(p, "of the first incarnation")
	s.commit(p.ContinueAsNew())
	s.child(p, "of the second execution")
	s.commit(p.Complete(`1`))
	s.commit(p.Start(WithMessage("again")))
	x := s.child(p, "of the second incarnation")
	s.begin("detached")
	ids := make(map[string]int)
	for _, n := range s.tree("p") {
		ids[n.Instance] = n.Depth
	}
	s.equal("the tree", ids,
		map[string]int{"p": 0, "of the first incarnation": 1, "of the second execution": 1,
			"of the second incarnation": 1})
	s.commit(x.Complete(`1`))
	s.commit(x.Start(WithMessage("by itself"))) // no longer a child
	s.equal("the tree without the one that left", len(s.tree("p")), 3)
	s.equal("a tree of its own", s.tree(x.ID)[0].Parent, "")
}

// testLargeTree: a tree may be wider than the limit of one statement.
func testLargeTree(t *testing.T, db *Database) {
	s := open(t, db)
	p := s.begin("p")[0]
	var turns []*round.Turn
	var c *Actor
	for _, id := range numbered("c", 1100) {
		c = NewActor(id)
		turns = append(turns, c.Start(WithParent(p)))
	}
	s.commit(turns...)
	s.child(c, "d")
	tree := s.tree("p")
	s.equal("size", len(tree), 1102)
	s.equal("the last", tree[1101].Instance, "d")
	started := time.Now()
	d := s.remove(history.Deletion{Force: true}, "p")
	s.equal("deleted", d, history.DeleteResult{Instances: 1102, Executions: 1102, Events: 2 + 1100 + 2})
	t.Logf("deleted in %v", time.Since(started))
	s.lists(history.Filter{})
}

// testCircle: two incarnations that are each other's parents are no trap: they can be seen,
// retention leaves them alone, and they can be deleted.
func testCircle(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	b := s.child(a, "b")
	s.commit(a.Complete(`1`))
	s.commit(a.Start(WithMessage("by its child"), WithParent(b)))
	s.commit(a.Complete(`1`), b.Complete(`1`))
	s.equal("the tree", len(s.tree("a")), 2)
	s.equal("the tree", len(s.tree("b")), 2)
	page := must[history.DeleteResultPage](s, "delete ended")(s.DeleteEnded(s.ctx(), history.Filter{}, history.Page{}))
	s.equal("nothing was deleted", page, history.DeleteResultPage{Skipped: 2})
	s.remove(history.Deletion{}, "a")
	s.gone("a", "b")
}
