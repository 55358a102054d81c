package query_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// ender publishes terminations, and ends the instances as an orchestrator does.
type ender struct {
	broker.Publisher
	t     *testing.T
	s     *system
	takes func(id string) bool // nil: all
	first func()               // when the first message is published
	fail  error

	mu     sync.Mutex
	actors map[string]*historytest.Actor
	asked  []string
}

func (e *ender) Publish(ctx context.Context, wires ...events.Wire) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return e.fail
	}
	if f := e.first; f != nil {
		e.first = nil
		f()
	}
	for _, w := range wires {
		m, err := events.Decode("shop", w.Subject, w.Header, w.Body, "")
		must(e.t, err)
		a, c := e.actors[m.Instance], m.Content.(*events.Control)
		if c.How != events.Terminate || c.Incarnation != a.Row.Incarnation || c.Reason != "it was deleted" ||
			!m.Internal || m.ID == "" {
			e.t.Errorf("published %+v of %+v", c, m)
		}
		e.asked = append(e.asked, m.Instance)
		if e.takes != nil && !e.takes(m.Instance) {
			continue
		}
		e.s.commit(e.t, terminated(a))
	}
	return nil
}

// terminated is the turn that terminates an instance because it is about to be deleted.
func terminated(a *historytest.Actor) *round.Turn {
	turn := a.At(a.Now().Add(time.Second)).Terminate("it was deleted")
	last := turn.Executions[0].Events
	last[len(last)-1].Fact.(*events.Terminated).Deletion = true
	return turn
}

// family begins a parent that has sent an activity task and a timer, its child with a task, and
// another instance.
func family(t *testing.T, s *system) *ender {
	t.Helper()
	e := &ender{t: t, s: s, actors: make(map[string]*historytest.Actor)}
	for _, id := range []string{"a-child", "parent", "other"} {
		e.actors[id] = historytest.NewActor(id)
	}
	parent := e.actors["parent"]
	s.commit(t, parent.StartAndCall(), e.actors["other"].StartAndCall())
	s.commit(t, parent.Say(&events.TimerCreated{FireAt: parent.Now().Add(time.Hour)},
		&events.ChildStarted{Name: "orders", Version: "1.0.0", Instance: "a-child"}))
	s.commit(t, e.actors["a-child"].StartAndCall(historytest.WithParent(parent)))
	return e
}

// newForced makes a system that terminates before it deletes.
func newForced(t *testing.T, within time.Duration) (*system, *ender) {
	t.Helper()
	var e *ender
	s := newSystem(t, query.Options{Prefix: "shop", WithdrawWithin: within, Logger: slog.New(slog.DiscardHandler),
		Publisher: late{get: func() broker.Publisher { return e }}})
	e = family(t, s)
	return s, e
}

// late is a publisher that is made later.
type late struct {
	broker.Publisher
	get func() broker.Publisher
}

func (l late) Publish(ctx context.Context, wires ...events.Wire) error {
	return l.get().Publish(ctx, wires...)
}

const forced = `{"instances":["parent"],"deletion":{"force":true}}`

func (s *system) gone(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.store.Instance(t.Context(), id); !errors.Is(err, history.ErrNoInstance) {
			t.Errorf("instance %s: %v", id, err)
		}
	}
	if i, err := s.store.Instance(t.Context(), "other"); err != nil || i.Status != round.Running {
		t.Errorf("another instance is %s, %v", i.Status, err)
	}
}

// TestForcedDeletionTerminatesFirst: a deletion by force terminates a whole family, parents first,
// waits until that is committed, and counts the withdrawn messages.
func TestForcedDeletionTerminatesFirst(t *testing.T) {
	s, e := newForced(t, time.Hour)
	got, err := s.ask(t, query.MethodDelete, forced)
	must(t, err)
	want := `{"instances":2,"executions":2,"events":8,"values":0,"withdrawn":{"instances":2,"tasks":2,"timers":1}}`
	if got != want || !slices.Equal(e.asked, []string{"parent", "a-child"}) {
		t.Errorf("got %s, want %s; terminated %q", got, want, e.asked)
	}
	s.gone(t, "parent", "a-child")
	if !slices.Equal(s.announced[len(s.announced)-1], []string{"deleted", "-", "parent"}) {
		t.Errorf("announced %v", s.announced)
	}
	if _, err := s.ask(t, query.MethodDelete, forced); err == nil || len(e.asked) != 2 {
		t.Errorf("a deletion of nothing: %v, terminated %q", err, e.asked)
	}
}

// TestForcedDeletionDoesNotWaitForever: instances that do not end in time are deleted as they are,
// and the answer says how many. A request that has less time waits for half of that.
func TestForcedDeletionDoesNotWaitForever(t *testing.T) {
	const s = time.Second
	for limit, wait := range map[time.Duration]time.Duration{60 * s: 3 * s, 2 * s: s} {
		synctest.Test(t, func(t *testing.T) {
			s, e := newForced(t, 0)
			e.takes = func(id string) bool { return id == "parent" }
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			got, err := s.Request(ctx, query.MethodDelete, []byte(forced))
			must(t, err)
			const want = `"withdrawn":{"instances":1,"tasks":1,"timers":1,"not_ended":1}}`
			if !strings.HasPrefix(string(got), `{"instances":2,`) || !strings.HasSuffix(string(got), want) {
				t.Errorf("got %s, want %s", got, want)
			}
			if took := time.Since(began); took != wait {
				t.Errorf("a request with %v waits for %v, want %v", limit, took, wait)
			}
			s.gone(t, "parent", "a-child")
		})
	}
}

// TestForcedDeletionWithoutTheBroker: an error of the broker does not keep a deletion back.
func TestForcedDeletionWithoutTheBroker(t *testing.T) {
	s, e := newForced(t, time.Hour)
	e.fail = broker.ErrPermission
	got, err := s.ask(t, query.MethodDelete, forced)
	must(t, err)
	if !strings.HasSuffix(got, `"withdrawn":{"instances":0,"tasks":0,"timers":0,"not_ended":2}}`) {
		t.Errorf("got %s", got)
	}
	s.gone(t, "parent", "a-child")
}

// TestRefusedDeletionTerminatesNothing: a deletion looks for reasons against it first.
func TestRefusedDeletionTerminatesNothing(t *testing.T) {
	s, e := newForced(t, time.Hour)
	for question, want := range map[string]string{
		`{"instance":"parent"}`:                                        "it has not ended",
		`{"instance":"a-child","deletion":{"force":true}}`:             "it is the child of another instance",
		`{"instance":"parent","deletion":{"force":true,"alone":true}}`: "it has children",
		`{"instances":["parent","x"],"deletion":{"force":true}}`:       "there is no such instance",
	} {
		if _, err := s.ask(t, query.MethodDelete, question); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", question, err, want)
		}
	}
	for id, a := range e.actors {
		if i, err := s.store.Instance(t.Context(), id); err != nil || i.LastEvent != a.Row.LastEvent {
			t.Errorf("instance %s: %+v, %v", id, i, err)
		}
	}
	if len(e.asked) > 0 {
		t.Errorf("terminated %q", e.asked)
	}
}

// TestForcedDeletionTerminatesLateChildren: a child that is born before its parent has ended is
// terminated, too.
func TestForcedDeletionTerminatesLateChildren(t *testing.T) {
	s, e := newForced(t, time.Hour)
	parent := e.actors["parent"]
	e.first = func() {
		s.commit(t, parent.Say(&events.ChildStarted{Name: "orders", Version: "1.0.0", Instance: "late"}))
		e.actors["late"] = historytest.NewActor("late")
		s.commit(t, e.actors["late"].StartAndCall(historytest.WithParent(parent)))
	}
	got, err := s.ask(t, query.MethodDelete, forced)
	must(t, err)
	if !strings.HasSuffix(got, `"withdrawn":{"instances":3,"tasks":3,"timers":1}}`) ||
		!slices.Equal(e.asked, []string{"parent", "a-child", "late"}) {
		t.Errorf("got %s; terminated %q", got, e.asked)
	}
	s.gone(t, "parent", "a-child", "late")
}

// failing is a store that fails.
type failing struct {
	query.Store
	deletes, reads error
}

func (f *failing) Delete(ctx context.Context, ids []string, how history.Deletion) (history.DeleteResult, error) {
	if f.deletes != nil {
		return history.DeleteResult{}, f.deletes
	}
	return f.Store.Delete(ctx, ids, how)
}

func (f *failing) Events(ctx context.Context, id string, execution, after int64, limit int) ([]events.Event, error) {
	if after == 0 && f.reads != nil {
		return nil, f.reads
	}
	return f.Store.Events(ctx, id, execution, after, limit)
}

// TestForcedDeletionIsRepeated: a deletion that is interrupted after the instances have ended can
// be repeated. It terminates nothing again, and counts the messages withdrawn for it.
func TestForcedDeletionIsRepeated(t *testing.T) {
	s, e := newForced(t, time.Hour)
	store := &failing{Store: s.store, deletes: errors.New("interrupted")}
	d := query.Deletions{Store: store, Publisher: e, Prefix: "shop", Within: time.Hour}
	how := history.Deletion{Force: true}
	if got, err := d.Delete(t.Context(), []string{"parent"}, how); !errors.Is(err, store.deletes) {
		t.Errorf("got %+v, %v", got, err)
	}
	if i, err := s.store.Instance(t.Context(), "parent"); err != nil || i.Status != round.Terminated {
		t.Errorf("after an interruption: %+v, %v", i, err)
	}
	store.deletes = nil
	got, err := d.Delete(t.Context(), []string{"parent"}, how)
	if w := (query.Withdrawn{Instances: 2, Tasks: 2, Timers: 1}); err != nil || got.Withdrawn == nil ||
		*got.Withdrawn != w || len(e.asked) != 2 {
		t.Errorf("got %+v, %+v, %v; terminated %q", got, got.Withdrawn, err, e.asked)
	}
	s.gone(t, "parent", "a-child")
}

// TestForcedDeletionCountsWhatItCan: an unreadable history does not keep a deletion back, and
// instances that have ended otherwise have withdrawn nothing for it.
func TestForcedDeletionCountsWhatItCan(t *testing.T) {
	s, e := newForced(t, time.Hour)
	d := query.Deletions{Store: &failing{Store: s.store, reads: errors.New("unreadable")}, Publisher: e,
		Prefix: "shop", Within: time.Hour}
	got, err := d.Delete(t.Context(), []string{"parent"}, history.Deletion{Force: true})
	if w := (query.Withdrawn{Instances: 2, Uncounted: 2}); err != nil || got.Withdrawn == nil || *got.Withdrawn != w {
		t.Errorf("got %+v, %+v, %v", got, got.Withdrawn, err)
	}
	a, b := historytest.NewActor("completed"), historytest.NewActor("terminated")
	s.commit(t, a.StartAndCall(), b.StartAndCall())
	s.commit(t, a.At(a.Now().Add(time.Second)).Complete(`1`), b.At(b.Now().Add(time.Second)).Terminate("by hand"))
	got, err = d.Delete(t.Context(), []string{"completed", "terminated"}, history.Deletion{Force: true})
	if err != nil || got.Instances != 2 || got.Withdrawn != nil {
		t.Errorf("got %+v, %+v, %v", got, got.Withdrawn, err)
	}
}
