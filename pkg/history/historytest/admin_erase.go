package historytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

var deletingTests = []test{
	{"removal/large_history", testDeleteLarge},
	{"removal/many_executions", testDeleteManyExecutions},
	{"removal/interrupted_anywhere", testDeleteInterrupted},
	{"removal/id_while_it_is_erased", testStartWhileErased},
}

// impatient is a context that ends after a number of calls of its methods. With it, a test can
// interrupt an operation at every point, without a clock.
type impatient struct {
	context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	looks  int
}

func newImpatient(looks int) *impatient {
	ctx, cancel := context.WithCancel(context.Background())
	return &impatient{Context: ctx, cancel: cancel, looks: looks}
}

func (c *impatient) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks--; c.looks < 0 {
		c.cancel()
	}
}

// Done implements [context.Context].
func (c *impatient) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err implements [context.Context].
func (c *impatient) Err() error {
	c.look()
	return c.Context.Err()
}

// Deadline implements [context.Context].
func (c *impatient) Deadline() (time.Time, bool) {
	c.look()
	return c.Context.Deadline()
}

// interrupt calls f with contexts that end later and later, until f completes. After each
// interruption, interrupt calls check with the error of f.
func (s *opened) interrupt(step int, f func(context.Context) error, check func(err error)) {
	s.Helper()
	for looks := 1; looks < 10_000; looks += step {
		ctx := newImpatient(looks)
		err := f(ctx)
		ctx.cancel()
		if err == nil {
			s.Logf("through after %d looks at the context", looks)
			return
		}
		if history.ClassOf(err) == history.Ambiguous {
			// The server may still execute the statement. This one waits for its locks.
			s.db.exec(s.TB, "UPDATE rondo_instances SET unread = unread")
		}
		check(err)
	}
	s.Fatal("it is never through")
}

// testDeleteLarge: a large history is erased in several transactions. An interruption leaves part
// of it, which no reader sees, and which tidying removes.
func testDeleteLarge(t *testing.T, db *Database) {
	if db.AtOnce {
		t.Skip("the store erases an instance at once")
	}
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Notes(20_000))
	s.commit(a.ContinueAsNew())
	s.commit(a.Set("k", `1`))
	buried, partly := false, history.DeleteResult{}
	s.interrupt(racetest.Short(2, 5), func(ctx context.Context) error {
		if buried {
			return nil
		}
		d, err := s.Delete(ctx, []string{"a"}, history.Deletion{Force: true})
		if err == nil {
			t.Fatalf("it went in one piece: %+v", d)
		}
		partly = d
		return err
	}, func(err error) {
		if c := history.ClassOf(err); c == history.Permanent || c == history.Corrupt {
			t.Fatalf("the interruption is %v: %v", c, err)
		}
		// Only now it is certain that the server no longer executes the interrupted statement.
		if buried = s.load("a").Row.Execution == 0; !buried {
			s.equal("what is there", s.executions("a"), []int64{1, 2})
		}
	})
	if partly.Instances != 0 || partly.Events >= 20_000 {
		t.Fatalf("%+v were deleted before the interruption", partly)
	}
	s.gone("a")
	s.equal("metrics", s.metrics(), history.Metrics{Instances: map[round.Status]int64{}, OutboxEntries: 1,
		Tombstones: 1})
	s.keeps(history.Deletion{Force: true}, history.ErrNoInstance, []string{"a"})
	s.refused(history.Deleting, NewActor("a").StartAndCall(WithMessage("another start")))
	s.refused(history.Deleting, NewActor("a").StartAndCall())
	s.refused(history.Conflict, a.Note())
	s.tidy()
	s.refused(history.Deleted, NewActor("a").StartAndCall())
	b := NewActor("a")
	s.commit(b.StartAndCall(WithMessage("another start")))
	s.same(b)
	s.valuesAre("a", nil)
	s.commit(b.ContinueAsNew())
	s.same(b)

	s.commit(b.Notes(12_000))
	s.equal("deleted", s.remove(history.Deletion{Force: true}, "a"), counts(b)) // not interrupted
	s.gone("a")
}

// testDeleteManyExecutions: an instance with more than a thousand former executions goes as a
// whole, too.
func testDeleteManyExecutions(t *testing.T, db *Database) {
	s := open(t, db)
	a := NewActor("a")
	turn := a.Start()
	for range 1100 {
		a.before = nil
		turn = Together(turn, a.ContinueAsNew())
	}
	s.commit(turn)
	s.equal("executions", s.metrics().Executions, 1101)
	s.equal("deleted", s.remove(history.Deletion{Force: true}, "a"), counts(a))
	s.gone("a")
	s.equal("executions", s.metrics().Executions, 0)
}

// testDeleteInterrupted: wherever a deletion is interrupted, all of the instances are there or
// none, and tidying removes the rest of their rows.
func testDeleteInterrupted(t *testing.T, db *Database) {
	s := open(t, db)
	var family []*Actor
	ids := []string{"p"}
	begin := func(message string) {
		p := NewActor("p")
		s.commit(p.StartAndCall(WithMessage("p"+message), WithAttributes(map[string]string{"region": "eu"})))
		c := NewActor("c")
		s.commit(c.StartAndCall(WithMessage("c"+message), WithParent(p)))
		s.commit(p.Set("k", `1`), c.ContinueAsNew())
		family = []*Actor{p, c}
	}
	begin("")
	incarnations := 1
	s.interrupt(racetest.Short(racetest.Size(1, 4), 9), func(ctx context.Context) error {
		_, err := s.Delete(ctx, ids, history.Deletion{Force: true})
		return err
	}, func(error) {
		if s.load("p").Row.Execution > 0 {
			s.same(family[0])
			s.same(family[1])
			s.lists(history.Filter{Attributes: map[string]string{"region": "eu"}}, "p")
			return
		}
		s.gone("p", "c")
		s.tidy()
		s.lists(history.Filter{Attributes: map[string]string{"region": "eu"}})
		begin(fmt.Sprint(incarnations))
		incarnations++
		s.same(family[0])
		s.same(family[1])
	})
	s.gone("p", "c")
	if incarnations == 1 {
		t.Log("no interruption came between the deletion and the erasing")
	}
}

// testStartWhileErased: while an instance is erased, the store answers starts of that id with
// Deleting, and takes one of them in the end.
func testStartWhileErased(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.begin("a")[0]
	s.commit(a.Notes(11_000))
	var eraser sync.WaitGroup
	eraser.Go(func() {
		if _, err := s.Delete(t.Context(), []string{"a"}, history.Deletion{Force: true}); err != nil {
			t.Error(err)
		}
	})
	verdicts := make(map[history.CommitStatus]int)
	b := NewActor("a")
	for {
		o := s.try(b.Clone().StartAndCall(WithMessage("another start"))).Outcomes[0]
		verdicts[o.Status]++
		if o.Status == history.Committed {
			break
		}
		if o.Status != history.Deleting && o.Status != history.Conflict {
			// a conflict with the one that is not deleted yet
			t.Fatal(o)
		}
	}
	eraser.Wait()
	t.Log(verdicts)
	b.StartAndCall(WithMessage("another start"))
	s.same(b)
}
