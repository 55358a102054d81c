package historytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// basisIsGoodOnce shows that each commit moves the basis, so that none is good for two turns: not after events, a continuation, an end or a restart.
func basisIsGoodOnce(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	seen := map[round.Basis]bool{{}: true}
	steps := []func() *round.Turn{
		func() *round.Turn { return a.Start() },
		func() *round.Turn { return a.Note() },
		func() *round.Turn { return a.ContinueAsNew() },
		func() *round.Turn { return a.Complete("1") },
		func() *round.Turn { return a.Start(WithMessage("again")) },
		func() *round.Turn { return a.Terminate("enough") },
	}
	for _, step := range steps {
		turn := step()
		s.commit(turn)
		s.refused(history.Conflict, turn)
		basis := s.load("a").Row.Basis()
		if seen[basis] {
			t.Fatalf("the basis %+v was there before", basis)
		}
		seen[basis] = true
	}
	s.same(a)
}

// everyPartOfTheBasis shows that a turn is refused if any part of what it was decided on differs, and that the right one is still taken.
func everyPartOfTheBasis(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.ContinueAsNew(), a.Note(), a.Note()))
	right := a.Clone().Note()
	wrong := []func(x *Actor){
		func(x *Actor) { x.Row.Life = "another" },
		func(x *Actor) { x.Row.Life = "" },
		func(x *Actor) { x.Row.Execution-- },
		func(x *Actor) { x.Row.Execution++ },
		func(x *Actor) { x.Row.LastEvent-- },
		func(x *Actor) { x.Row.LastEvent++ },
	}
	for _, change := range wrong {
		x := a.Clone()
		change(x)
		for _, turn := range []*round.Turn{x.Clone().Note(), x.Clone().Remove("k")} {
			if o := s.refused(history.Conflict, turn); o.Stored != a.Row.Basis() {
				t.Fatalf("told %+v, it stands at %+v", o.Stored, a.Row.Basis())
			}
		}
	}
	s.same(a)
	s.commit(right)
}

// conflictsAreAlone shows that one instance's conflict holds back no other of the batch, wherever it stands.
func conflictsAreAlone(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	var actors []*Actor
	var want []history.Verdict
	for i := range 12 {
		a := NewActor(fmt.Sprint("a", i))
		s.commit(a.Start())
		stale := a.Clone()
		if i%3 == 0 {
			s.commit(a.Note())
			turns, want = append(turns, stale.everything()), append(want, history.Conflict)
		} else {
			turns, want = append(turns, a.everything()), append(want, history.Committed)
		}
		actors = append(actors, a)
	}
	s.verdicts(s.try(turns...), want...)
	for _, a := range actors {
		s.same(a)
	}
	if got := s.messages(s.take(100, time.Hour)); len(got) != 8 {
		t.Fatalf("8 turns have promised %v", got)
	}
}

// publishedOnly shows that a commit removes the promises it is told of, and no others, even if all its turns are refused, or there are none.
func publishedOnly(t *testing.T, db *Database) {
	s := open(t, db)
	var keys []history.PromiseKey
	for i := range 4 {
		keys = append(keys, s.commit(NewActor(fmt.Sprint("a", i)).StartAndCall()).Promises...)
	}
	if len(keys) != 4 {
		t.Fatal(keys)
	}
	stale := NewActor("stale")
	stale.Start()
	batches := []history.Batch{Batch(t, NewActor("b").Start()), Batch(t, stale.Note()), Batch(t)}
	for i, batch := range batches {
		batch.Published = keys[i : i+1]
		if _, err := s.Commit(s.ctx(), batch); err != nil {
			t.Fatal(err)
		}
		s.promises(3 - i)
	}
	if left := s.take(10, time.Hour); len(left) != 1 || left[0].Key != keys[3] {
		t.Fatalf("left is %+v, want %+v", left, keys[3])
	}
	if r, err := s.Commit(s.ctx(), history.Batch{Published: keys}); err != nil || len(r.Outcomes) > 0 || len(r.Promises) > 0 {
		t.Fatal(r, err)
	}
	if r, err := s.Commit(s.ctx(), history.Batch{}); err != nil || len(r.Outcomes) > 0 {
		t.Fatal(r, err)
	}
	s.promises(0)
}

// manyOnOne shows that many writers of one instance make one history: each event has one writer, and every turn is taken once in the end.
func manyOnOne(t *testing.T, db *Database) {
	s := open(t, db)
	s.commit(NewActor("a").Start())
	const writers, each = 8, 6
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := 0; n < each; {
				known, err := s.Load(context.Background(), []string{"a"}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				turn := Resume(known[0], Began).Say(&events.EventReceived{Wait: 1, Name: "note", Data: events.Payload(fmt.Sprint(w*each + n))})
				r, err := s.Commit(context.Background(), Batch(t, turn))
				if err != nil {
					t.Error(err)
					return
				}
				if r.Outcomes[0].Verdict == history.Committed {
					n++
				}
			}
		})
	}
	all.Wait()
	seen := make(map[string]bool)
	for _, e := range s.load("a").History[1:] {
		seen[string(e.Fact.(*events.EventReceived).Data)] = true
	}
	if k := s.load("a"); len(seen) != writers*each || len(k.History) != writers*each+1 {
		t.Fatalf("%d turns were taken; history has %d events, %d different", writers*each, len(k.History), len(seen))
	}
}

// takenOver shows that after an owner has died another one loads the instance and goes on, and that what the first one still had under way is refused.
func takenOver(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	late := a.Clone().everything()
	if !db.Shared {
		s.Close()
	}
	second := open(t, db)
	second.same(a)
	next := Resume(second.load("a"), Began)
	second.commit(next.Note())
	if db.Shared {
		s.refused(history.Conflict, late)
	}
	second.refused(history.Conflict, late)
	second.same(next)
}
