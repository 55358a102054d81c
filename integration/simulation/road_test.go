package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// A road is the way of one process to everything outside of it. It implements brokersim.Path for
// the broker, and the store goes along it, too. All that comes along it takes a turn (see turns).
type road struct {
	w      *world
	name   string // of the process, with the number of its incarnation
	onDead func() // called once, when the process dies

	mu      sync.Mutex
	counts  map[string]int
	dead    bool
	over    chan struct{} // closed when it is dead
	cutTill time.Time
	noStore bool           // the store is out of reach, too, while it is cut
	stands  time.Time      // until when it is frozen
	inCode  time.Duration  // for how long it stops when it next runs code
	waiting []waiting      // actions that wait until then, in their order
	commits int            // how many are in flight
	ended   time.Time      // when the last commit did
	turns   int            // how many it had
	flying  map[string]int // messages that it publishes at the moment, by subject
}

// waiting is something that happens when a process goes on.
type waiting struct {
	what    string
	happens func()
}

// Name implements brokersim.Path.
func (r *road) Name() string { return r.name }

// rest waits for some time, or until the context ends or the process dies, and then for its turn.
func (r *road) rest(ctx context.Context, d time.Duration, what string) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-r.over:
	}
	r.w.turns.wait(r.name, what)
}

// Pause implements brokersim.Path.
func (r *road) Pause(what string) { r.rest(context.Background(), r.moment(what), what) }

// moment is the duration of something that is quick, and neither fails nor is lost.
func (r *road) moment(what string) time.Duration {
	return time.Duration(1 + r.fate(what).after%(10*time.Microsecond))
}

func (w *world) road(name string) *road {
	return &road{w: w, name: name, counts: make(map[string]int), flying: make(map[string]int),
		over: make(chan struct{}), onDead: func() {}}
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
	r.w.upheaval(0)
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

// stop is SIGSTOP: until a moment no message leaves or arrives. All actions wait, and follow in
// their order, while the world goes on. Timers of the process expire meanwhile, and their actions
// wait, too: the first action of the process finds all of its timers due.
func (r *road) stop(till time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !till.After(r.stands) {
		return
	}
	r.stands = till
	go func() {
		select {
		case <-time.After(time.Until(till)):
			r.follow()
		case <-r.over:
		case <-r.w.context.Done():
		}
	}()
}

// stopInCode stops the process for so long when it next runs code of an orchestration.
func (r *road) stopInCode(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inCode = by
}

// isBack reports whether the process is dead, or has run for 10 seconds since its last freeze:
// until then, messages that it received before may still have an effect.
func (r *road) isBack() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead || time.Since(r.stands) > 10*time.Second
}

// code is called while code of an orchestration runs.
func (r *road) code(instance string) {
	r.mu.Lock()
	by := r.inCode
	r.inCode = 0
	r.mu.Unlock()
	if by > 0 && !r.w.calm() {
		r.stop(time.Now().Add(by))
	}
	if r.Stand(context.Background(), "code of "+instance) {
		r.w.count("code stands still")
	}
}

// follow runs the postponed actions, in their order.
func (r *road) follow() {
	for {
		r.rest(context.Background(), time.Microsecond, "goes on")
		r.mu.Lock()
		if r.dead || len(r.waiting) == 0 || time.Now().Before(r.stands) {
			r.mu.Unlock()
			return
		}
		x := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		r.w.note(r.name, "late: "+x.what)
		r.w.count("late: " + kindOf(x.what))
		x.happens()
	}
}

// kindOf is the first word of an action.
func kindOf(what string) string {
	kind, _, _ := strings.Cut(what, " ")
	return kind
}

// postpone keeps something until the process goes on, and all that was kept before has happened. It
// is false if nothing keeps it.
func (r *road) postpone(what string, happens func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !time.Now().Before(r.stands) && len(r.waiting) == 0 || r.dead {
		return false
	}
	r.waiting = append(r.waiting, waiting{what, happens})
	return true
}

// Stand implements brokersim.Path. What goes on afterwards does so one after the other, always in
// the same order: after a pause that is drawn when it begins to stand, because all go on at one
// moment.
func (r *road) Stand(ctx context.Context, what string) (stood bool) {
	var pause time.Duration
	for {
		r.mu.Lock()
		wait := time.Until(r.stands)
		r.mu.Unlock()
		if wait <= 0 || ctx.Err() != nil || r.isDead() {
			if stood {
				r.rest(ctx, pause, "go on: "+what)
			}
			return stood
		}
		if !stood {
			stood, pause = true, r.moment("go on: "+what)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-r.over:
		case <-r.w.context.Done():
			return stood
		}
	}
}

// Quiet implements brokersim.Path.
func (r *road) Quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dead && r.w.context.Err() == nil && time.Now().Before(r.stands)
}

// Note implements brokersim.Path.
func (r *road) Note(kind, what string) {
	r.w.note(r.name, kind+": "+what)
	r.w.count(kind)
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

// Go implements brokersim.Path.
func (r *road) Go(ctx context.Context, what string) (answered bool, err error) {
	f, err := r.pass(ctx, what, false)
	return !f.unanswered, err
}

// pass waits until it is time for something to happen. After an error, it does not.
func (r *road) pass(ctx context.Context, what string, toStore bool) (f fate, err error) {
	r.w.turns.wait(r.name, "begins "+what) // the context may be about to end
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	f = r.fate(what)
	r.rest(ctx, f.after, what)
	for r.Stand(ctx, what) {
		r.rest(ctx, f.after, what)
	}
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	switch {
	case r.isDead():
		select { // so that retry loops come to an end
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
		r.rest(ctx, 2*time.Second, what)
		r.w.note(r.name, "loses: "+what)
		r.w.trouble("lost", what)
		if toStore { // it is about many instances, and names one
			r.w.upheaval(0)
		}
		return f, err
	}
	r.w.note(r.name, what)
	if f.unanswered {
		r.w.note(r.name, "gets no answer to: "+what)
		r.w.trouble("unanswered", what)
	}
	if f.after > time.Second {
		r.w.count("late")
		r.w.upheaval(0)
	}
	if f.crashAfter {
		r.dieSoon(what)
	}
	return f, nil
}

// dieSoon lets the process die after something: it happens, and then there is just time for what
// needs no waiting. The name of its turn has what it was, because a process may die of two things
// of one moment.
func (r *road) dieSoon(what string) {
	time.AfterFunc(time.Nanosecond, func() {
		r.w.turns.list(r.name, "dies after: "+what, func() { r.die("after: " + what) })
	})
}

// Say implements brokersim.Path.
func (r *road) Say(what string, happens func()) {
	r.w.turns.list(r.name, what, func() {
		if f := r.fate(what); r.goes(f, what) && !r.postpone(what, happens) {
			r.w.note(r.name, what)
			happens()
		}
	})
}

// goes reports whether an unconfirmed message gets through.
func (r *road) goes(f fate, what string) bool {
	switch {
	case r.isDead():
		return false
	case f.unheard, r.isCut(false):
		r.w.note(r.name, "is not heard: "+what)
		r.w.trouble("unheard", what)
		return false
	}
	return true
}

// Send implements brokersim.Path. A message that has left the process arrives, even if the process
// dies.
func (r *road) Send(what string, leaves func() (arrives func())) {
	r.w.turns.list(r.name, what, func() { r.send(what, leaves) })
}

func (r *road) send(what string, leaves func() (arrives func())) {
	f := r.fate(what)
	if f.crashBefore && !r.isDead() {
		r.die("before: " + what)
	}
	if !r.goes(f, what) {
		return
	}
	if f.after > time.Second {
		r.w.trouble("late", what)
	}
	leave := func() {
		r.w.note(r.name, what)
		arrives := leaves()
		time.AfterFunc(f.after, func() { r.w.turns.list(r.name, "arrives: "+what, arrives) })
	}
	if !r.postpone(what, leave) {
		leave()
	}
	if f.crashAfter {
		r.dieSoon(what)
	}
}

// Hear implements brokersim.Path.
func (r *road) Hear(what string, happens func()) {
	r.w.turns.list(r.name, "hears "+what, func() {
		switch {
		case r.isDead(), r.isCut(false):
			r.w.trouble("unheard", what)
		case !r.postpone(what, happens):
			r.w.note(r.name, "hears "+what)
			happens()
		}
	})
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

func (s storeOf) Load(ctx context.Context, ids []string,
	admit func(string, round.Row) bool) (known []round.Known, err error) {
	err = s.reach(ctx, "load "+slices.Min(ids), func() error { known, err = s.Store.Load(ctx, ids, admit); return err })
	return known, err
}

// Commit may conflict, or happen without an answer.
func (s storeOf) Commit(ctx context.Context, b history.Batch) (_ history.Result, err error) {
	what := "commit"
	if len(b.Turns) > 0 {
		t := slices.MinFunc(b.Turns, func(a, b history.Decided) int {
			return cmp.Or(len(a.Turn.Instance)-len(b.Turn.Instance), cmp.Compare(a.Turn.Instance, b.Turn.Instance))
		}).Turn
		what = fmt.Sprint("commit ", t.Instance, " ", t.Row.LastEvent)
	}
	second := s.r.beginCommit(len(b.Turns))
	defer func() { s.r.endCommit(len(b.Turns), err) }()
	if d := s.r.w.weather.slowCommit; d > 0 {
		<-time.After(d)
	}
	f, err := s.r.pass(ctx, what, true)
	if err != nil {
		return history.Result{}, fail(what, err)
	}
	if f.contended || second && f.chance < 0.3 { // second ones are rare
		s.r.w.count("contended")
		return history.Result{},
			&history.Error{Class: history.Contended, Op: what, Err: errors.New("somebody else was in the way")}
	}
	if f.ambiguous && f.chance < 0.5 { // it did not happen
		s.r.w.count("ambiguous")
		return history.Result{}, &history.Error{Class: history.Ambiguous, Op: what, Err: errLost}
	}
	result, err := s.Store.Commit(ctx, b)
	if err == nil {
		s.r.w.committed(s.r, b, result)
	}
	s.r.Stand(ctx, what)
	if f.unanswered || f.ambiguous {
		s.r.w.upheaval(0)
	}
	if err == nil && (f.unanswered || f.ambiguous) {
		s.r.w.count("ambiguous")
		return history.Result{}, &history.Error{Class: history.Ambiguous, Op: what, Err: errLost}
	}
	return result, err
}

// Events takes a turn, or the scheduler of Go would choose whose former executions are read first.
func (s storeOf) Events(ctx context.Context, instance string, execution, after int64,
	limit int) (page []events.Event, err error) {
	err = s.reach(ctx, fmt.Sprint("read ", instance, " ", execution, " ", after), func() error {
		page, err = s.Store.Events(ctx, instance, execution, after, limit)
		return err
	})
	return page, err
}

func (s storeOf) LeaseOutbox(ctx context.Context, t history.Lease) (list []history.OutboxEntry, err error) {
	err = s.reach(ctx, "lease outbox", func() error { list, err = s.Store.LeaseOutbox(ctx, t); return err })
	s.r.w.sweeps(list)
	return list, err
}

func (s storeOf) RemoveOutbox(ctx context.Context, keys []history.OutboxKey) error {
	return s.reach(ctx, "remove outbox", func() error { return s.Store.RemoveOutbox(ctx, keys) })
}

func (s storeOf) LastUpdate(ctx context.Context, before time.Time) (at time.Time, err error) {
	err = s.reach(ctx, "last update", func() error { at, err = s.Store.LastUpdate(ctx, before); return err })
	return at, err
}

func (s storeOf) Identity(ctx context.Context) (now history.System, err error) {
	err = s.reach(ctx, "system", func() error { now, err = s.Store.Identity(ctx); return err })
	now.Exclusive = false // other simulated processes use the same file
	return now, err
}

func (s storeOf) SetIdentity(ctx context.Context, from history.System, id string,
	beats int64) (now history.System, ok bool, err error) {
	err = s.reach(ctx, "set system", func() error {
		now, ok, err = s.Store.SetIdentity(ctx, from, id, beats)
		return err
	})
	now.Exclusive = false
	return now, ok, err
}

func (s storeOf) LeaseOverdue(ctx context.Context, t history.Lease) (list []history.Overdue, err error) {
	err = s.reach(ctx, "lease overdue", func() error { list, err = s.Store.LeaseOverdue(ctx, t); return err })
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

var _ brokersim.Path = (*road)(nil)
