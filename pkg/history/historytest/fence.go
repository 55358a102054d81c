package historytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// versionIsGoodOnce shows that each commit moves the version, so that none is good for two turns:
// not after events, a continuation, an end or a restart.
func versionIsGoodOnce(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	seen := map[round.RowVersion]bool{{}: true}
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
		version := s.load("a").Row.RowVersion()
		if seen[version] {
			t.Fatalf("the version %+v was there before", version)
		}
		seen[version] = true
	}
	s.same(a)
}

// everyPartOfTheVersion shows that a turn is refused if any part of what it was decided on differs,
// and that the right one is still taken.
func everyPartOfTheVersion(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.ContinueAsNew(), a.Note(), a.Note()))
	right := a.Clone().Note()
	wrong := []func(x *Actor){
		func(x *Actor) { x.Row.Incarnation = "another" },
		func(x *Actor) { x.Row.Incarnation = "" },
		func(x *Actor) { x.Row.Execution-- },
		func(x *Actor) { x.Row.Execution++ },
		func(x *Actor) { x.Row.LastEvent-- },
		func(x *Actor) { x.Row.LastEvent++ },
	}
	for _, change := range wrong {
		x := a.Clone()
		change(x)
		for _, turn := range []*round.Turn{x.Clone().Note(), x.Clone().Remove("k")} {
			if o := s.refused(history.Conflict, turn); o.Actual != a.Row.RowVersion() {
				t.Fatalf("told %+v, it stands at %+v", o.Actual, a.Row.RowVersion())
			}
		}
	}
	s.same(a)
	s.commit(right)
}

// conflictsAreAlone shows that one instance's conflict holds back no other of the batch, wherever
// it stands.
func conflictsAreAlone(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	var actors []*Actor
	var want []history.CommitStatus
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
	if got := s.messages(s.lease(100, time.Hour)); len(got) != 8 {
		t.Fatalf("8 turns have stored %v", got)
	}
}

// publishedOnly shows that a commit removes the outbox entries that it names, and no others, even
// if all its turns are refused, or there are none.
func publishedOnly(t *testing.T, db *Database) {
	s := open(t, db)
	var keys []history.OutboxKey
	for i := range 4 {
		keys = append(keys, s.commit(NewActor(fmt.Sprint("a", i)).StartAndCall()).Entries...)
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
		s.entries(3 - i)
	}
	if left := s.lease(10, time.Hour); len(left) != 1 || left[0].Key != keys[3] {
		t.Fatalf("left is %+v, want %+v", left, keys[3])
	}
	if r, err := s.Commit(s.ctx(), history.Batch{Published: keys}); err != nil || len(r.Outcomes) > 0 ||
		len(r.Entries) > 0 {
		t.Fatal(r, err)
	}
	if r, err := s.Commit(s.ctx(), history.Batch{}); err != nil || len(r.Outcomes) > 0 {
		t.Fatal(r, err)
	}
	s.entries(0)
}

// manyOnOne shows that many writers of one instance make one history: each event has one writer,
// and every turn is taken once in the end.
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
				turn := Resume(known[0], Began).Say(&events.EventReceived{Wait: 1, Name: "note",
					Data: codec.Payload(fmt.Sprint(w*each + n))})
				r, err := s.Commit(context.Background(), Batch(t, turn))
				if err != nil {
					t.Error(err)
					return
				}
				if r.Outcomes[0].Status == history.Committed {
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

// eachItsOwn shows that owners of different instances are not in each other's way: all begin at the
// same moment, and each finds its instance and has its turn taken, without any conflict.
func eachItsOwn(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	stores := []*store{s, other}
	actors := s.begin(numbered("a", 10)...)
	for range 10 {
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i, a := range actors {
			all.Go(func() {
				<-begin
				store := stores[i%len(stores)]
				known, err := store.Load(context.Background(), []string{a.ID}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if asJSON(known[0].Row.RowVersion()) != asJSON(a.Row.RowVersion()) {
					t.Errorf("%q stands at %+v, want %+v", a.ID, known[0].Row.RowVersion(), a.Row.RowVersion())
					return
				}
				turn := a.Note()
				if v := store.fate(turn, Batch(t, turn)); v != history.Committed {
					t.Errorf("%q has an owner of its own, and its turn is %v", a.ID, v)
				}
			})
		}
		close(begin)
		all.Wait()
	}
	for _, a := range actors {
		s.same(a)
	}
}

// manyOnMany shows that each instance ends once if many writers want to end the same instances, in
// batches and at the same moments: one turn is taken, and its messages are stored once.
func manyOnMany(t *testing.T, db *Database) {
	s, other := rivals(t, db)
	stores := []*store{s, other}
	ids := numbered("a", 40)
	var starts []*round.Turn
	for _, id := range ids {
		starts = append(starts, NewActor(id).Start())
	}
	s.commit(starts...)
	var mu sync.Mutex
	taken := make(map[string]int)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			<-begin
			mine := slices.Clone(ids)
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			store := stores[w%len(stores)]
			for part := range slices.Chunk(mine, 8) {
				known, err := store.Load(context.Background(), part, nil)
				if err != nil {
					t.Error(err)
					return
				}
				var turns []*round.Turn
				for _, k := range known {
					if !k.Row.Status.Ended() {
						turns = append(turns, Sends(Resume(k, Began).Complete(fmt.Sprint(w)), k.Instance, "other"))
					}
				}
				r, err := store.Commit(context.Background(), Batch(t, turns...))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, o := range r.Outcomes {
					switch o.Status {
					case history.Committed:
						taken[turns[i].Instance]++
					case history.Conflict:
					default:
						t.Errorf("the turn of %q: %+v", turns[i].Instance, o)
					}
				}
				mu.Unlock()
			}
		})
	}
	close(begin)
	all.Wait()
	for _, id := range ids {
		if k := s.load(id); taken[id] != 1 || k.Row.Status != round.Completed || len(k.History) != 2 {
			t.Fatalf("%q was taken to its end %d times, and is %+v", id, taken[id], k)
		}
	}
	stored := s.messages(s.lease(1000, time.Hour))
	slices.Sort(stored)
	if !slices.Equal(stored, ids) {
		t.Fatalf("stored are %q", stored)
	}
}

// takenOver shows that after an owner has died, another one loads the instance and continues it,
// and that the store refuses turns of the first one that were still in flight.
func takenOver(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	late := a.Clone().everything()
	if !db.Shared {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
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
