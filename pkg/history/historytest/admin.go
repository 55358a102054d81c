package historytest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// adminTests are about reading, listing and removing.
var adminTests = slices.Concat(
	managementTests, readingTests, treeTests, listTests, pagingTests, deletionTests, bulkTests, pruneTests,
	removalTests, deletingTests, retentionTests, valueTests,
)

// ---- Calls and checks of the tests about administration.

// begin starts instances with a first round each, in one batch.
func (s *rounds) begin(ids ...string) []*Actor {
	s.Helper()
	var actors []*Actor
	var turns []*round.Turn
	for _, id := range ids {
		a := NewActor(id).At(s.clock.Now())
		actors, turns = append(actors, a), append(turns, a.StartAndCall())
	}
	s.commit(turns...)
	return actors
}

// ended starts instances that end at once.
func (s *rounds) ended(ids ...string) []*Actor {
	s.Helper()
	actors := s.begin(ids...)
	s.complete(actors...)
	return actors
}

// complete ends instances.
func (s *rounds) complete(actors ...*Actor) {
	s.Helper()
	var turns []*round.Turn
	for _, a := range actors {
		turns = append(turns, a.At(s.clock.Now()).Complete(`"done"`))
	}
	s.commit(turns...)
}

// child starts a child.
func (s *rounds) child(parent *Actor, id string, options ...Option) *Actor {
	s.Helper()
	a := NewActor(id).At(s.clock.Now())
	s.commit(a.StartAndCall(append(options, WithParent(parent))...))
	return a
}

// must fails the test if there is an error.
func must[T any](s testing.TB, what string) func(T, error) T {
	return func(v T, err error) T {
		s.Helper()
		if err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// fails checks that an error is the wanted one, and of class Permanent: the caller must not retry.
func (s *opened) fails(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: %v, want %v", what, err, want)
	}
	if c := history.ClassOf(err); c != history.Permanent {
		s.Fatalf("%s: %v is %v, want permanent", what, err, c)
	}
}

// equal checks a result.
func (s *opened) equal(what string, got, want any) {
	s.Helper()
	if g, w := asJSON(got), asJSON(want); g != w {
		s.Fatalf("%s:\n%s\nwant\n%s", what, g, w)
	}
}

// page is one page of a list.
func (s *reader) page(f history.Filter, p history.Page) history.InstanceList {
	s.Helper()
	return must[history.InstanceList](s, fmt.Sprintf("list %+v", f))(s.List(s.ctx(), f, p))
}

// lists checks which instances a filter finds, in whatever order, and that they are counted, too.
func (s *reader) lists(f history.Filter, want ...string) {
	s.Helper()
	list := s.page(f, history.Page{Limit: 1000})
	got := idsOf(list.Instances)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || list.Next != "" {
		s.Fatalf("the filter %+v finds %q, next %q; want %q", f, got, list.Next, want)
	}
	if n := s.count(f, 0); n != int64(len(want)) {
		s.Fatalf("the filter %+v counts %d, finds %d", f, n, len(want))
	}
}

func (s *reader) count(f history.Filter, limit int64) int64 {
	s.Helper()
	return must[int64](s, fmt.Sprintf("count %+v", f))(s.Count(s.ctx(), f, limit))
}

// walk reads all pages of a list, each as large as size says, and checks that no page is larger,
// and none but the last smaller.
func (s *reader) walk(f history.Filter, size func() int, between func()) []history.Info {
	s.Helper()
	var all []history.Info
	for p := (history.Page{}); ; {
		p.Limit = size()
		list := s.page(f, p)
		all = append(all, list.Instances...)
		switch n := len(list.Instances); {
		case n > p.Size(), n < p.Size() && list.Next != "":
			s.Fatalf("a page of %d with %d instances, next %q", p.Size(), n, list.Next)
		case list.Next == "":
			return all
		}
		p.Cursor = list.Next
		between()
	}
}

func idsOf(list []history.Info) []string {
	ids := make([]string, len(list))
	for i, info := range list {
		ids[i] = info.Instance
	}
	return ids
}

// info reads an instance.
func (s *reader) info(id string) history.Info {
	s.Helper()
	return must[history.Info](s, "instance "+id)(s.Instance(s.ctx(), id))
}

// executions lists the executions of an instance that are kept.
func (s *reader) executions(id string) []int64 {
	s.Helper()
	var ids []int64
	for _, x := range must[[]history.ExecutionInfo](s, "executions of "+id)(s.Executions(s.ctx(), id, 0, 0)) {
		ids = append(ids, x.Execution)
	}
	return ids
}

// metrics reads the metrics of the store.
func (s *reader) metrics() history.Metrics {
	s.Helper()
	return must[history.Metrics](s, "metrics")(s.Metrics(s.ctx()))
}

// remove deletes instances, which must be possible.
func (s *remover) remove(how history.Deletion, ids ...string) history.DeleteResult {
	s.Helper()
	return must[history.DeleteResult](s, fmt.Sprintf("delete %q", ids))(s.Delete(s.ctx(), ids, how))
}

// keeps checks that instances must not be deleted for a reason, and that they are all there
// afterwards.
func (s *remover) keeps(how history.Deletion, why error, ids []string, all ...*Actor) {
	s.Helper()
	_, err := s.Family(s.ctx(), ids, how)
	s.fails(fmt.Sprintf("family of %q", ids), err, why)
	d, err := s.Delete(s.ctx(), ids, how)
	s.fails(fmt.Sprintf("delete %q", ids), err, why)
	s.equal("what was deleted", d, history.DeleteResult{})
	for _, a := range all {
		s.same(a)
	}
}

// tidy tidies until there is nothing left to do.
func (s *remover) tidy() {
	s.Helper()
	for range 1000 {
		if !must[bool](s, "tidy")(s.Tidy(s.ctx())) {
			return
		}
	}
	s.Fatal("there is always more to tidy")
}

// gone checks that no reader sees anything of instances.
func (s *remover) gone(ids ...string) {
	s.Helper()
	for _, id := range ids {
		s.absent(id)
		_, err := s.Instance(s.ctx(), id)
		s.fails("instance "+id, err, history.ErrNoInstance)
		_, err = s.Executions(s.ctx(), id, 0, 0)
		s.fails("executions of "+id, err, history.ErrNoInstance)
		for _, x := range []int64{0, 1, 2} {
			_, err = s.Events(s.ctx(), id, x, 0, 0)
			s.fails("events of "+id, err, history.ErrNoInstance)
		}
		_, err = s.Stats(s.ctx(), id)
		s.fails("stats of "+id, err, history.ErrNoInstance)
		_, err = s.Tree(s.ctx(), id)
		s.fails("tree of "+id, err, history.ErrNoInstance)
		s.valuesAre(id, nil)
		if _, ok, err := s.Value(s.ctx(), id, "k"); ok || err != nil {
			s.Fatalf("a value of %q: %v, %v", id, ok, err)
		}
		s.equal("custom status of "+id, must[history.CustomStatus](s, "custom status")(s.CustomStatus(s.ctx(), id, 0)),
			history.CustomStatus{})
	}
	if len(ids) > 0 {
		s.lists(history.Filter{IDs: ids})
	}
}

// valuesAre checks the values of an instance, each by itself, too.
func (s *reader) valuesAre(id string, want map[string]string) {
	s.Helper()
	values := must[map[string]history.Value](s, "values of "+id)(s.Values(s.ctx(), id))
	if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		s.Fatalf("%q has the values %q, want %q", id, got, want)
	}
	for k, w := range want {
		one, ok, err := s.Value(s.ctx(), id, k)
		if err != nil || !ok || string(one.Data) != w || asJSON(one) != asJSON(values[k]) {
			s.Fatalf("value %q of %q: %s, %v, %v; among all: %s; want %s", k, id, one.Data, ok, err, values[k].Data, w)
		}
	}
}

// counts is the result of deleting instances, without their values.
func counts(actors ...*Actor) (d history.DeleteResult) {
	for _, a := range actors {
		d.Instances++
		d.Executions += int64(len(a.Events))
		for _, list := range a.Events {
			d.Events += int64(len(list))
		}
	}
	return d
}

func actorIDs(actors ...*Actor) []string {
	ids := make([]string, len(actors))
	for i, a := range actors {
		ids[i] = a.ID
	}
	return ids
}

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return ids
}

// ---- More turns.

// Stand gives the instance another status, without ending it.
func (a *Actor) Stand(status round.Status) *round.Turn {
	t := a.Note()
	a.Row.Status = status
	t.Row = a.Row
	return t
}

// Cancel ends it as cancelled.
func (a *Actor) Cancel() *round.Turn {
	err := &failure.Error{Kind: failure.Cancelled, Message: "no longer wanted"}
	return a.end(round.Cancelled, nil, err, &events.Cancelled{Error: err})
}

// Notes appends so many events at once.
func (a *Actor) Notes(n int) *round.Turn {
	facts := make([]events.Fact, n)
	for i := range facts {
		facts[i] = &events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(fmt.Sprint(i))}
	}
	return a.Say(facts...)
}

// ---- A world of many instances, and a model of it.

// world is a store with many instances, and a model of it.
type world struct {
	*store
	r      *rand.Rand
	actors map[string]*Actor
	born   map[string]time.Time // when the incarnation began
}

func newWorld(s *store, seed uint64) *world {
	return &world{store: s, r: rand.New(rand.NewPCG(seed, 1)), actors: make(map[string]*Actor),
		born: make(map[string]time.Time)}
}

// all are the instances that there are, in the order of their ids.
func (w *world) all() []*Actor {
	var out []*Actor
	for _, id := range slices.Sorted(maps.Keys(w.actors)) {
		out = append(out, w.actors[id])
	}
	return out
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// grow starts instances with all kinds of names, versions, attributes and parents. Many begin at
// the same moment.
func (w *world) grow(n int) {
	w.Helper()
	old := w.all()
	var turns []*round.Turn
	for range n {
		a := NewActor(fmt.Sprintf("%s%d", pick(w.r, "a-", "a_", "b%", "ä-", "Z"), w.r.IntN(1_000_000)))
		if w.actors[a.ID] != nil {
			continue
		}
		a.At(w.clock.Now().Add(time.Duration(w.r.IntN(20)) * time.Second))
		options := []Option{WithName(pick(w.r, "orders", "refunds"), pick(w.r, "1.0.0", "1.1.0"))}
		if w.r.IntN(2) == 0 {
			options = append(options,
				WithAttributes(map[string]string{"region": pick(w.r, "eu", "us"), "tier": pick(w.r, "1", "2", "3")}))
		}
		if len(old) > 0 && w.r.IntN(3) == 0 {
			options = append(options, WithParent(pick(w.r, old...)))
		}
		turns = append(turns, a.Start(options...))
		w.actors[a.ID], w.born[a.ID] = a, a.now
	}
	w.commit(turns...)
}

// live takes random instances further, each in a random way.
func (w *world) live(n int) {
	w.Helper()
	all := w.all()
	w.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var turns []*round.Turn
	for _, a := range all[:min(n, len(all))] {
		a.At(a.now.Add(time.Duration(w.r.IntN(60)) * time.Second))
		turns = append(turns, w.turn(a))
	}
	w.commit(turns...)
}

func (w *world) turn(a *Actor) *round.Turn {
	if a.Row.Status.Ended() {
		w.born[a.ID] = a.now
		var options []Option
		if p := a.Row.Parent; p != nil { // the parent never changes, so that there are no cycles
			options = append(options, func(s *events.Started) { s.Parent = p })
		}
		return a.Start(append(options, WithName(a.Row.Name, "2.0.0"), WithAttributes(a.Row.Attributes))...)
	}
	switch w.r.IntN(9) {
	case 0:
		return a.Complete(`"done"`)
	case 1:
		return a.Fail("it broke")
	case 2:
		return a.Cancel()
	case 3:
		return a.Terminate("enough")
	case 4:
		return a.Stand(round.Suspended)
	case 5:
		return a.Stand(round.Halted)
	case 6:
		return a.ContinueAsNew()
	case 7:
		return a.SetStatus(`"busy"`)
	}
	return a.Note()
}

// fit are the ids of the instances that fit a filter, sorted.
func (w *world) fit(f history.Filter) []string {
	var ids []string
	for id, a := range w.actors {
		if fits(f, a.ID, a.Row, w.born[id]) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// fits reports whether an instance fits a filter, as a model of it.
func fits(f history.Filter, id string, row round.Row, created time.Time) bool {
	for name, value := range f.Attributes {
		if got, ok := row.Attributes[name]; !ok || got != value {
			return false
		}
	}
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, id)) && strings.HasPrefix(id, f.IDPrefix) &&
		(len(f.Statuses) == 0 || slices.Contains(f.Statuses, row.Status)) &&
		(f.Name == "" || f.Name == row.Name) && (f.Version == "" || f.Version == row.Version) &&
		(f.Parent == "" || row.Parent != nil && f.Parent == row.Parent.Instance) &&
		(!f.RootsOnly || row.Parent == nil) &&
		!created.Before(f.CreatedAfter) && (f.CreatedBefore.IsZero() || created.Before(f.CreatedBefore)) &&
		(f.EndedAfter.IsZero() || !row.EndedAt.IsZero() && !row.EndedAt.Before(f.EndedAfter)) &&
		(f.EndedBefore.IsZero() || !row.EndedAt.IsZero() && row.EndedAt.Before(f.EndedBefore))
}

// filter makes up a filter.
func (w *world) filter() (f history.Filter) {
	all := w.all()
	some := func(n int) bool { return w.r.IntN(n) == 0 }
	if some(3) {
		for range 1 + w.r.IntN(3) {
			f.Statuses = append(f.Statuses, pick(w.r, round.Statuses()...))
		}
	}
	switch w.r.IntN(6) {
	case 0:
		for range 1 + w.r.IntN(30) {
			f.IDs = append(f.IDs, pick(w.r, all...).ID)
		}
	case 1:
		f.IDPrefix = pick(w.r, "a", "a-", "a_", "b%", "b%1", "ä", "Z", "%", "_")
	case 2:
		f.Parent = pick(w.r, all...).ID
		for _, a := range all { // one that has children
			if a.Row.Parent != nil && some(10) {
				f.Parent = a.Row.Parent.Instance
			}
		}
	}
	if some(4) {
		f.Name = pick(w.r, "orders", "refunds", "nothing")
	}
	if some(4) {
		f.Version = pick(w.r, "1.0.0", "1.1.0", "2.0.0")
	}
	if some(4) {
		f.Attributes = map[string]string{"region": pick(w.r, "eu", "us")}
		if some(2) {
			f.Attributes["tier"] = pick(w.r, "1", "2", "3")
		}
	}
	if some(4) {
		f.CreatedAfter = w.clock.Now().Add(time.Duration(w.r.IntN(15)) * time.Second)
	}
	if some(4) {
		f.CreatedBefore = w.clock.Now().Add(time.Duration(16+w.r.IntN(100)) * time.Second)
	}
	if some(5) {
		f.EndedBefore = w.clock.Now().Add(time.Duration(w.r.IntN(100)) * time.Second)
	}
	if f.EndedBefore.IsZero() && some(5) {
		f.EndedAfter = w.clock.Now().Add(time.Duration(w.r.IntN(100)) * time.Second)
	}
	f.RootsOnly = some(6)
	return f
}

// sizes gives random sizes of pages.
func (w *world) sizes(most int) func() int { return func() int { return 1 + w.r.IntN(most) } }

// quiet is for walks during which nothing happens.
func quiet() {}
