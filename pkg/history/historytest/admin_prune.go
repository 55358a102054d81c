package historytest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var pruneTests = []test{
	{"prune/prune_options_combinations", testPruneOptions},
	{"prune/prune_safety", testPruneSafety},
	{"prune/prune_bulk", testPruneAll},
	{"prune/prune_bulk_includes_running_instances", testPruneRunning},
	{"prune/prune_in_pages", testPrunePages},
	{"prune/prune_of_former_incarnations", testPruneIncarnations},
	{"prune/prune_large", testPruneLarge},
	{"prune/prune_interrupted_anywhere", testPruneInterrupted},
}

// eternal makes an instance that runs and has so many executions, each an hour long.
func (s *rounds) eternal(id string, executions int) *Actor {
	s.Helper()
	a := NewActor(id)
	s.commit(a.StartAndCall())
	for range executions - 1 {
		s.commit(a.At(a.now.Add(time.Hour)).ContinueAsNew())
	}
	return a
}

// prune prunes an instance and checks which executions stay, and that all the others are counted.
func (s *remover) prune(a *Actor, keep history.Keep, stay ...int64) {
	s.Helper()
	var want history.DeleteResult
	for x, list := range a.Events {
		if !slices.Contains(stay, x) {
			want.Executions++
			want.Events += int64(len(list))
			delete(a.Events, x)
		}
	}
	s.equal(fmt.Sprintf("pruned with %+v", keep),
		must[history.DeleteResult](s, "prune")(s.Prune(s.ctx(), a.ID, keep)), want)
	s.equal("executions that are kept", s.executions(a.ID), stay)
	s.same(a)
}

// testPruneOptions: so many stay, what ended later stays, both, or neither: then only the current
// one.
func testPruneOptions(t *testing.T, db *Database) {
	s := open(t, db)
	ended := func(x int) time.Time { return Began.Add(time.Duration(x) * time.Hour) } // when execution x ended
	for name, c := range map[string]struct {
		keep history.Keep
		stay []int64
	}{
		"neither":               {history.Keep{}, []int64{6}},
		"one":                   {history.Keep{Last: 1}, []int64{6}},
		"less than none":        {history.Keep{Last: -3}, []int64{6}},
		"two":                   {history.Keep{Last: 2}, []int64{5, 6}},
		"all but one":           {history.Keep{Last: 5}, []int64{2, 3, 4, 5, 6}},
		"all":                   {history.Keep{Last: 6}, []int64{1, 2, 3, 4, 5, 6}},
		"more than there are":   {history.Keep{Last: 100}, []int64{1, 2, 3, 4, 5, 6}},
		"what ended before":     {history.Keep{EndedBefore: ended(3)}, []int64{3, 4, 5, 6}},
		"just after":            {history.Keep{EndedBefore: ended(3).Add(time.Microsecond)}, []int64{4, 5, 6}},
		"before everything":     {history.Keep{EndedBefore: Began}, []int64{1, 2, 3, 4, 5, 6}},
		"after everything":      {history.Keep{EndedBefore: ended(100)}, []int64{6}},
		"both, the number wins": {history.Keep{Last: 4, EndedBefore: ended(100)}, []int64{3, 4, 5, 6}},
		"both, the time wins":   {history.Keep{Last: 2, EndedBefore: ended(2)}, []int64{2, 3, 4, 5, 6}},
	} {
		a := s.eternal(name, 6)
		s.prune(a, c.keep, c.stay...)
		s.prune(a, c.keep, c.stay...) // once more changes nothing
		s.commit(a.At(a.now.Add(time.Hour)).ContinueAsNew())
		s.prune(a, history.Keep{Last: 100}, append(c.stay, 7)...)
	}
}

// testPruneSafety: the current execution stays, running or ended, and so does everything of other
// instances; pruning an instance that does not exist is an error.
func testPruneSafety(t *testing.T, db *Database) {
	s := open(t, db)
	a, other := s.eternal("a", 1), s.eternal("other", 3)
	s.prune(a, history.Keep{}, 1)
	s.commit(a.At(Began.Add(time.Hour)).Complete(`1`))
	s.prune(a, history.Keep{EndedBefore: Began.Add(100 * time.Hour)}, 1)
	s.same(other)
	s.equal("executions of the other", s.executions("other"), []int64{1, 2, 3})
	_, err := s.Prune(s.ctx(), "nobody", history.Keep{})
	s.fails("prune nobody", err, history.ErrNoInstance)
	s.remove(history.Deletion{}, "a")
	_, err = s.Prune(s.ctx(), "a", history.Keep{})
	s.fails("prune a deleted one", err, history.ErrNoInstance)
}

func (s *remover) pruneAll(f history.Filter, keep history.Keep, p history.Page) history.DeleteResultPage {
	s.Helper()
	return must[history.DeleteResultPage](s, fmt.Sprintf("prune all %+v", f))(s.PruneAll(s.ctx(), f, keep, p))
}

// forget takes executions out of the model, and counts them.
func (a *Actor) forget(executions ...int64) (d history.DeleteResult) {
	for _, x := range executions {
		d.Executions++
		d.Events += int64(len(a.Events[x]))
		delete(a.Events, x)
	}
	return d
}

// prunedAll checks what pruning many has removed of them.
func (s *remover) prunedAll(f history.Filter, keep history.Keep, removed ...history.DeleteResult) {
	s.Helper()
	var want history.DeleteResultPage
	for _, d := range removed {
		want.Instances++
		want.Add(d)
	}
	s.equal(fmt.Sprintf("pruned with %+v, %+v", f, keep), s.pruneAll(f, keep, history.Page{}), want)
}

// testPruneAll: those that fit the filter are pruned, and summed up: instances are those of which
// something was removed.
func testPruneAll(t *testing.T, db *Database) {
	s := open(t, db)
	a, b, c, d := s.eternal("a", 3), s.eternal("b", 4), s.eternal("c", 5), s.eternal("d", 1)
	s.commit(b.Complete(`1`))
	s.prunedAll(history.Filter{IDs: []string{"a", "b", "d", "nobody"}}, history.Keep{Last: 2}, a.forget(1),
		b.forget(1, 2))
	for id, want := range map[string][]int64{"a": {2, 3}, "b": {3, 4}, "c": {1, 2, 3, 4, 5}, "d": {1}} {
		s.equal("executions of "+id, s.executions(id), want)
	}
	s.prunedAll(history.Filter{Statuses: []round.Status{round.Completed}}, history.Keep{}, b.forget(3))
	s.prunedAll(history.Filter{}, history.Keep{EndedBefore: Began.Add(time.Hour)})
	s.prunedAll(history.Filter{}, history.Keep{Last: 2, EndedBefore: Began.Add(2 * time.Hour)}, c.forget(1))
	for _, x := range []*Actor{a, b, c, d} {
		s.same(x)
	}
}

// testPruneRunning: former executions of instances that run for ever are pruned, and these go on.
func testPruneRunning(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.eternal("a", 4)
	s.commit(a.Set("k", `1`))
	s.prunedAll(history.Filter{Statuses: []round.Status{round.Running}}, history.Keep{}, a.forget(1, 2, 3))
	s.same(a)
	s.commit(a.ContinueAsNew())
	s.commit(a.Note())
	s.same(a)
	s.equal("executions", s.executions("a"), []int64{4, 5})
	s.valuesAre("a", map[string]string{"k": `1`})
}

// testPrunePages: pruning goes page by page through all instances, with a cursor, and can be done
// again from the start.
func testPrunePages(t *testing.T, db *Database) {
	s := open(t, db)
	ids := numbered("a", 25)
	actors := s.begin(ids...)
	for range 2 {
		var turns []*round.Turn
		for _, a := range actors {
			turns = append(turns, a.ContinueAsNew())
		}
		s.commit(turns...)
	}
	var pages []int64
	for p := (history.Page{Limit: 10}); ; {
		got := s.pruneAll(history.Filter{IDPrefix: "a"}, history.Keep{Last: 2}, p)
		pages = append(pages, got.Instances)
		if got.Next == "" {
			break
		}
		p.Cursor = got.Next
	}
	s.equal("pages", pages, []int64{10, 10, 5})
	s.equal("executions", s.metrics().Executions, 50)
	s.equal("once more", s.pruneAll(history.Filter{}, history.Keep{Last: 2}, history.Page{}),
		history.DeleteResultPage{})
}

// testPruneIncarnations: executions of former incarnations are former executions like others.
func testPruneIncarnations(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.eternal("a", 2)
	s.commit(a.Complete(`1`))
	s.commit(a.At(a.now.Add(time.Hour)).Start(WithMessage("again")))
	s.commit(a.At(a.now.Add(time.Hour)).ContinueAsNew())
	s.prune(a, history.Keep{Last: 3}, 2, 3, 4)
	s.prune(a, history.Keep{EndedBefore: Began.Add(2 * time.Hour)}, 3, 4)
	s.prune(a, history.Keep{}, 4)
}

// testPruneLarge: former executions with large histories, and very many small ones, are pruned in
// several transactions, and counted as a whole.
func testPruneLarge(t *testing.T, db *Database) {
	s := open(t, db)
	a := NewActor("a")
	turn := Together(a.Start(), a.Notes(racetest.Size(11_000, 5_500)), a.ContinueAsNew(),
		a.Notes(racetest.Size(6_000, 2_000)))
	for range 1100 {
		a.before = nil // a chain of so many would keep all of them
		turn = Together(turn, a.ContinueAsNew())
	}
	s.commit(turn)
	s.prune(a, history.Keep{Last: 2}, 1101, 1102)
}

// testPruneInterrupted: wherever pruning is interrupted, an execution is there as a whole or not at
// all, the current one stays, and pruning once more does the rest, also if that keeps more.
func testPruneInterrupted(t *testing.T, db *Database) {
	s := open(t, db)
	a := NewActor("a")
	s.commit(Together(a.Start(), a.ContinueAsNew(), a.Notes(12_000), a.ContinueAsNew(), a.ContinueAsNew()))
	gone := false
	s.interrupt(racetest.Short(racetest.Size(1, 4), 9), func(ctx context.Context) error {
		if gone {
			return nil
		}
		_, err := s.Prune(ctx, "a", history.Keep{})
		return err
	}, func(error) {
		// The database may commit after the client has given up, so also between two reads.
		kept, left := s.executions("a"), s.metrics().Events
		for now := s.executions("a"); !slices.Equal(kept, now); now = s.executions("a") {
			kept, left = now, s.metrics().Events
		}
		gone = !slices.Contains(kept, 1)
		if len(kept) != 4 && len(kept) != 1 {
			t.Fatalf("the executions %v are left", kept)
		}
		if gone {
			a.forget(1, 2, 3)
			_, err := s.Events(s.ctx(), "a", 2, 0, 0)
			s.fails("an execution that is half gone", err, history.ErrNoExecution)
		}
		s.equal("events", left, counts(a).Events)
	})
	must[history.DeleteResult](s, "prune")(s.Prune(s.ctx(), "a", history.Keep{Last: 100}))
	s.equal("executions", s.executions("a"), []int64{4})
	s.commit(a.ContinueAsNew())
	delete(a.Events, 1)
	delete(a.Events, 2)
	delete(a.Events, 3)
	s.same(a)
	s.prune(a, history.Keep{}, 5)
}
