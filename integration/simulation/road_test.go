package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/sim"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// A road is the way of one process to everything outside of it. It implements sim.Path for the broker, and the store goes along it, too.
type road struct {
	w      *world
	name   string // of the process, and which of its lives this is
	onDead func() // called once, when the process dies

	mu      sync.Mutex
	counts  map[string]int
	dead    bool
	over    chan struct{} // closed when it is dead
	cutTill time.Time
	noStore bool // the store is out of reach, too, while it is cut
	frozen  time.Time
}

func (w *world) road(name string) *road {
	return &road{w: w, name: name, counts: make(map[string]int), over: make(chan struct{}), onDead: func() {}}
}

var (
	errDead = errors.New("the process is dead")
	errLost = errors.New("it was lost on the way")
	errCut  = errors.New("there is no connection")
)

func (r *road) fate(what string) fate {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
	return r.w.weather.fateOf(r.w.seed, r.name, what, r.counts[what], r.w.calm())
}

// die is kill -9: nothing that the process does from now on has any effect.
func (r *road) die(why string) {
	r.mu.Lock()
	if r.dead {
		r.mu.Unlock()
		return
	}
	r.dead = true
	close(r.over)
	r.mu.Unlock()
	r.w.note(r.name, "dies "+why)
	r.w.count("crashes")
	r.onDead()
}

// cut takes the connection to the broker away for some time, perhaps that to the store, too.
func (r *road) cut(till time.Time, noStore bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cutTill, r.noStore = till, noStore
}

// freeze lets nothing out for some time. What was on its way goes on after it, as if no time had passed.
func (r *road) freeze(till time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = till
}

// thaw waits until the process is not frozen.
func (r *road) thaw() {
	r.mu.Lock()
	wait := time.Until(r.frozen)
	r.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.over:
		case <-r.w.context.Done():
		}
	}
}

func (r *road) isFrozen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.frozen)
}

func (r *road) isCut(toStore bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.cutTill) && (r.noStore || !toStore)
}

func (r *road) isDead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead
}

// Go implements sim.Path.
func (r *road) Go(ctx context.Context, what string) (answered bool, err error) {
	f, err := r.pass(ctx, what, false)
	return !f.unanswered, err
}

// pass waits until it is time for something to happen. After an error, it does not.
func (r *road) pass(ctx context.Context, what string, toStore bool) (f fate, err error) {
	f = r.fate(what)
	select {
	case <-time.After(f.after):
	case <-ctx.Done():
		return f, context.Cause(ctx)
	case <-r.over:
	}
	r.thaw()
	switch {
	case r.isDead():
		select { // so that those who try again and again come to an end
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return f, errDead
	case f.crashBefore:
		r.die("before: " + what)
		return f, errDead
	case f.lost, r.isCut(toStore):
		if err = errLost; r.isCut(toStore) {
			err = errCut
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
		r.w.note(r.name, "loses: "+what)
		r.w.count("lost")
		return f, err
	}
	r.w.note(r.name, what)
	if f.unanswered {
		r.w.note(r.name, "gets no answer to: "+what)
		r.w.count("unanswered")
	}
	if f.crashAfter {
		go func() { // it happens, and then there is just time for what needs no waiting
			<-time.After(time.Nanosecond)
			r.die("after: " + what)
		}()
	}
	return f, nil
}

// Say implements sim.Path.
func (r *road) Say(what string) bool {
	f := r.fate(what)
	switch {
	case r.isDead(), r.isCut(false), r.isFrozen():
		return false
	case f.unheard:
		r.w.note(r.name, "is not heard: "+what)
		r.w.count("unheard")
		return false
	}
	r.w.note(r.name, what)
	return true
}

// storeOf is the store as one process has it.
type storeOf struct {
	history.Store
	r *road
}

// fail is an error after which nothing has changed.
func fail(what string, err error) error {
	return &history.Error{Class: history.Retry, Op: what, Err: err}
}

// reach does something with the store that may be done twice.
func (s storeOf) reach(ctx context.Context, what string, do func() error) error {
	f, err := s.r.pass(ctx, what, true)
	if err != nil {
		return fail(what, err)
	}
	if err := do(); err != nil {
		return err
	}
	if f.unanswered {
		return fail(what, errLost)
	}
	return nil
}

func (s storeOf) Load(ctx context.Context, ids []string, admit func(string, round.Row) bool) (known []round.Known, err error) {
	err = s.reach(ctx, "load "+slices.Min(ids), func() error { known, err = s.Store.Load(ctx, ids, admit); return err })
	return known, err
}

// Commit may conflict, or happen without anybody knowing.
func (s storeOf) Commit(ctx context.Context, b history.Batch) (history.Result, error) {
	what := "commit"
	if len(b.Turns) > 0 {
		t := slices.MinFunc(b.Turns, func(a, b history.Decided) int { return len(a.Turn.Instance) - len(b.Turn.Instance) }).Turn
		what = fmt.Sprint("commit ", t.Instance, " ", t.Row.LastEvent)
	}
	f, err := s.r.pass(ctx, what, true)
	if err != nil {
		return history.Result{}, fail(what, err)
	}
	if f.contended {
		s.r.w.count("contended")
		return history.Result{}, &history.Error{Class: history.Contended, Op: what, Err: errors.New("somebody else was in the way")}
	}
	if f.ambiguous && f.chance < 0.5 { // it did not happen
		s.r.w.count("ambiguous")
		return history.Result{}, &history.Error{Class: history.Ambiguous, Op: what, Err: errLost}
	}
	result, err := s.Store.Commit(ctx, b)
	if err == nil {
		s.r.w.committed(b, result)
	}
	if err == nil && (f.unanswered || f.ambiguous) {
		s.r.w.count("ambiguous")
		return history.Result{}, &history.Error{Class: history.Ambiguous, Op: what, Err: errLost}
	}
	return result, err
}

func (s storeOf) TakePromises(ctx context.Context, t history.Take) (list []history.Promise, err error) {
	err = s.reach(ctx, "take promises", func() error { list, err = s.Store.TakePromises(ctx, t); return err })
	return list, err
}

func (s storeOf) RemovePromises(ctx context.Context, keys []history.PromiseKey) error {
	return s.reach(ctx, "remove promises", func() error { return s.Store.RemovePromises(ctx, keys) })
}

func (s storeOf) TakeOverdue(ctx context.Context, t history.Take) (list []history.Overdue, err error) {
	err = s.reach(ctx, "take overdue", func() error { list, err = s.Store.TakeOverdue(ctx, t); return err })
	return list, err
}

func (s storeOf) List(ctx context.Context, f history.Filter, p history.Page) (list history.InstanceList, err error) {
	err = s.reach(ctx, "list", func() error { list, err = s.Store.List(ctx, f, p); return err })
	return list, err
}

func (s storeOf) Count(ctx context.Context, f history.Filter, limit int64) (n int64, err error) {
	err = s.reach(ctx, "count", func() error { n, err = s.Store.Count(ctx, f, limit); return err })
	return n, err
}

var _ sim.Path = (*road)(nil)
