package historytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// ---- Instances are born.

// bornAtFirstCommit shows that an instance is there from its first commit on, with all that its
// start said.
func bornAtFirstCommit(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.absent("a")
	turn := a.StartAndCall(WithName("fulfil", "2.1.0"), WithAttributes(map[string]string{"region": "eu", "": "empty"}),
		func(x *events.Started) {
			x.Trace, x.Engine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 7
		})
	turn.Row.Fresh, turn.Row.Unread = true, 3
	a.Row = turn.Row
	s.absent("a")
	s.commit(turn)
	s.same(a)
	if info := s.info("a"); !info.CreatedAt.Equal(Began) || info.Problem != nil {
		t.Fatalf("%+v", info)
	}
}

// storedStart shows that storing the start of an instance in the outbox does not make it.
func storedStart(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turn := a.Start()
	turn.Messages = append(turn.Messages, events.Message{ID: "start-b", Instance: "b",
		Content: &events.Start{Orchestration: "orders", Input: codec.Payload("1")}})
	s.commit(turn)
	s.entries(1)
	s.absent("b")
}

// versionLater shows that a version may be unknown at first, and become known with a later turn.
func versionLater(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	turn := a.Start()
	a.Row.Version, turn.Row.Version = "", ""
	s.commit(turn)
	s.same(a)
	a.Row.Version = "1.2.3"
	s.commit(a.Note())
	s.same(a)
}

// childIsBorn shows that a child is born at its own first commit, and remembers its parent for the
// whole of its incarnation.
func childIsBorn(t *testing.T, db *Database) {
	s, p, c := open(t, db), NewActor("parent"), NewActor("child")
	turn := p.Start()
	turn.Messages = append(turn.Messages,
		events.Message{ID: "start-child", Instance: "child", Content: &events.Start{Orchestration: "orders"}})
	s.commit(turn)
	s.absent("child")
	s.commit(c.Start(WithParent(p)))
	s.same(c)
	s.commit(c.Note())
	s.commit(c.ContinueAsNew())
	s.commit(c.Complete("1"))
	s.same(c)
}

// childBesideParent shows that a child may be started in the batch in which its parent goes on,
// ends, or continues as new, whichever comes first in it, and a grandchild beside it if the child
// is there.
func childBesideParent(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 8 {
		p, c := NewActor(fmt.Sprint("parent-", i)), NewActor(fmt.Sprint("child-", 7*i))
		s.commit(p.Start())
		birth := c.Start(WithParent(p))
		next := p.Note()
		switch i % 4 {
		case 1:
			next = Together(next, p.Remove("k"))
		case 2:
			next = Together(next, p.ContinueAsNew())
		case 3:
			next = Together(next, p.Complete("1"))
		}
		s.commit(next, birth)
		s.same(p)
		s.same(c)
		g := NewActor(fmt.Sprint("grandchild-", i))
		birth = g.Start(WithParent(c))
		s.commit(birth, c.Note())
		s.same(c)
		s.same(g)
	}
}

// ---- Executions.

// executionsApart shows that each execution has a history of its own that begins at event 1.
func executionsApart(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(Together(a.Start(), a.Note(), a.Note()))
	s.commit(Together(a.ContinueAsNew(), a.Note()))
	s.same(a)
	if n := len(s.load("a").History); n != 2 || len(a.Events[1]) != 4 {
		t.Fatal(n, len(a.Events[1]))
	}
	s.commit(a.Note())
	s.same(a)
}

// latestExecution shows that a load, and a read that names no execution, return the newest one.
func latestExecution(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	for x := int64(2); x < 5; x++ {
		s.commit(a.ContinueAsNew())
		got, err := history.Export(s.ctx(), s.Store, "a", 0)
		if err != nil || got.Execution != x || s.load("a").Row.Execution != x {
			t.Fatal(got.Execution, err, x)
		}
		s.sameEvents("a", x, got.Events, a.Events[x])
	}
}

// executionsInSequence shows that executions are numbered one after the other, when one turn goes
// through several, too.
func executionsInSequence(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start())
	s.commit(a.ContinueAsNew())
	s.commit(Together(a.Note(), a.ContinueAsNew(), a.ContinueAsNew(), a.Note(), a.ContinueAsNew()))
	s.commit(a.Complete("1"))
	s.commit(a.Start(WithMessage("again")))
	s.same(a)
	if got := s.executions("a"); fmt.Sprint(got) != "[1 2 3 4 5 6]" {
		t.Fatal(got)
	}
}

// continuedAsNew shows what continuing as new leaves and begins: the former execution with its end,
// the next one with the same incarnation and the same birth.
func continuedAsNew(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.StartAndCall(WithAttributes(map[string]string{"x": "y"})))
	former := a.Row
	later := Began.Add(time.Hour)
	s.commit(a.At(later).ContinueAsNew())
	s.same(a)
	list, err := s.Executions(s.ctx(), "a", 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	f, c := list[0], list[1]
	if f.Status != round.ContinuedAsNew || !f.EndedAt.Equal(later) || f.Events != former.LastEvent+1 ||
		f.Incarnation != former.Incarnation || f.Name != former.Name {
		t.Fatalf("%+v", f)
	}
	if c.Status != round.Running || !c.EndedAt.IsZero() || !c.StartedAt.Equal(later) || c.Events != 1 ||
		c.Incarnation != former.Incarnation {
		t.Fatalf("%+v", c)
	}
	if info := s.info("a"); !info.CreatedAt.Equal(Began) || info.Attributes["x"] != "y" {
		t.Fatalf("%+v", info)
	}
}

// formerExecutionsStay shows that the histories and the ends of former executions stay as they
// were, of former incarnations too.
func formerExecutionsStay(t *testing.T, db *Database) {
	s, a := open(t, db), NewActor("a")
	s.commit(a.Start(WithName("first", "1.0.0")))
	s.commit(a.ContinueAsNew())
	s.commit(a.Fail("broken"))
	first := a.Row
	s.commit(a.At(Began.Add(time.Hour)).Start(WithMessage("again"), WithName("second", "2.0.0")))
	s.commit(a.Complete("2"))
	s.same(a)
	list, err := s.Executions(s.ctx(), "a", 0, 10)
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	if x := list[1]; x.Status != round.Failed || x.Error == nil || x.Error.Message != "broken" ||
		x.Incarnation != first.Incarnation || x.Name != "first" || x.Version != "1.0.0" {
		t.Fatalf("%+v", x)
	}
	if x := list[2]; x.Status != round.Completed || string(x.Output) != "2" || x.Incarnation == first.Incarnation ||
		x.Name != "second" {
		t.Fatalf("%+v", x)
	}
	if info := s.info("a"); !info.CreatedAt.Equal(Began.Add(time.Hour)) {
		t.Fatalf("the new incarnation began at %v", info.CreatedAt)
	}
}
