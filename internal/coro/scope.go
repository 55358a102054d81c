package coro

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// errDropped is the error of a dropped task, for code that still waits for it.
var errDropped = &failure.Error{Kind: failure.Cancelled, Message: "nobody waits for it any more"}

// Scope is a set of tasks that end together. Scopes form a tree: cancelling one cancels those below
// it, except shielded ones, which get a last bounded time.
type Scope struct {
	program       *Program
	parent        *Scope
	open          list[*Task] // in the order in which they were started
	waits         list[*wait] // branches that wait in it
	below         list[*Scope]
	place[*Scope]                // in the parent's list
	err           *failure.Error // why it was cancelled
	shield        time.Duration  // > 0: how long it may go on after the scope above was cancelled
	limit         *Task          // the timer of a time limit or shield
	closed        bool
}

func (s *Scope) add(t *Task) {
	t.scope = s
	s.open.push(t)
}

func (s *Scope) remove(t *Task) {
	s.open.remove(t)
	t.scope = nil
}

func (s *Scope) child() *Scope {
	c := &Scope{program: s.program, parent: s, err: s.err}
	s.below.push(c)
	return c
}

// Err returns the cause of the cancellation; nil if the scope is not cancelled.
func (s *Scope) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

// Child opens a scope below this one. Close ends it and drops the tasks that are still open in it.
func (s *Scope) Child() *Scope {
	s.program.enter()
	return s.child()
}

// Until is Child with a deadline. What names it in the error of the waits that it ends.
func (s *Scope) Until(deadline time.Time, what string) *Scope {
	c := s.Child()
	if c.err != nil {
		return c
	}
	how := " was reached"
	if deadline.Before(s.program.host.Now()) {
		how = " had passed already"
	}
	c.expire(deadline, &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutScheduleToClose,
		Message: what + how})
	return c
}

// Shielded opens a scope that outlives a cancellation by at most d.
func (s *Scope) Shielded(d time.Duration) *Scope {
	c := s.Child()
	c.shield = d
	if s.err != nil {
		c.err = nil
		c.lastOrders(s.err)
	}
	return c
}

// lastOrders starts the bounded time of a shielded scope.
func (s *Scope) lastOrders(cause *failure.Error) {
	if s.limit == nil && s.err == nil {
		s.expire(s.program.host.Now().Add(s.shield), cause)
	}
}

// expire cancels the scope at a moment.
func (s *Scope) expire(at time.Time, cause *failure.Error) {
	p := s.program
	event, ok := p.note(&events.TimerCreated{FireAt: events.Instant(at)})
	if !ok {
		return
	}
	if f, ok := event.Fact.(*events.CallRefused); ok {
		s.cancel(f.Error) // its calls say why
		return
	}
	s.limit = &Task{program: p, id: event.ID}
	s.limit.waiters = []waiter{&expiry{scope: s, cause: cause}}
	s.add(s.limit)
	p.open(s.limit)
}

type expiry struct {
	scope *Scope
	cause *failure.Error
}

func (e *expiry) stale() bool { return false }

func (e *expiry) wake(t *Task) {
	if t.err == nil {
		e.scope.cancel(e.cause)
	}
}

// Cancel drops everything in the scope; later calls in it return the cause.
func (s *Scope) Cancel(cause *failure.Error) {
	s.program.enter()
	s.cancel(cause)
	s.program.check()
}

// Close ends a scope whose code has returned.
func (s *Scope) Close() {
	s.program.enter()
	s.close()
	s.program.check()
}

func (s *Scope) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.end(errDropped)
	if s.parent != nil {
		s.parent.below.remove(s)
	}
}

func (s *Scope) cancel(cause *failure.Error) { s.stop(cause, false) }

// end is cancel for a scope whose own branch has ended: a shield below it holds only while another
// branch runs in it.
func (s *Scope) end(cause *failure.Error) { s.stop(cause, true) }

func (s *Scope) stop(cause *failure.Error, ended bool) {
	var c casualties
	c.scope(s, cause, ended)
	s.program.abandon(cause, c)
}

// casualties are the tasks, waits and shields that a cancellation hits.
type casualties struct {
	tasks   []*Task
	waits   []*wait  // these branches must not wait any longer
	shields []*Scope // these get their last bounded time
}

// scope marks a scope and those below it as cancelled and lists their tasks.
func (c *casualties) scope(s *Scope, cause *failure.Error, ended bool) {
	if s.err == nil {
		s.err = cause
	}
	for t := range s.open.all {
		c.tasks = append(c.tasks, t)
	}
	for w := range s.waits.all {
		c.waits = append(c.waits, w)
	}
	for below := range s.below.all {
		if below.shield > 0 && below.err == nil && (!ended || below.busy()) {
			c.shields = append(c.shields, below)
		} else {
			c.scope(below, cause, ended)
		}
	}
}

// busy reports whether a branch is running in the scope.
func (s *Scope) busy() bool {
	for t := range s.open.all {
		if t.kind == branchTask && !t.done {
			return true
		}
	}
	for below := range s.below.all {
		if below.busy() {
			return true
		}
	}
	return false
}

// dropped lists the open work behind tasks that the code does not wait for any more.
func (c *casualties) dropped(tasks []*Task, cause *failure.Error) {
	for _, t := range tasks {
		switch {
		case t.kind == branchTask && !t.done:
			c.scope(t.inner, cause, false)
		case t.kind == groupTask && !t.done:
			c.tasks = append(c.tasks, t)
			c.dropped(t.group.members, cause)
		case t.kind == groupTask && !t.observed:
			c.dropped(t.group.result(), cause) // unobserved messages go back
		case !t.done, t.held && !t.observed:
			c.tasks = append(c.tasks, t)
		}
	}
}

// Drop gives up some tasks: the code does not wait for them any more.
func (p *Program) Drop(tasks ...*Task) {
	p.enter()
	p.drop(errDropped, tasks)
	p.check()
}

func (p *Program) drop(cause *failure.Error, tasks []*Task) {
	var c casualties
	c.dropped(tasks, cause)
	p.abandon(cause, c)
}

// abandon settles tasks without a result, and tells the host which answers are no longer needed.
// Branches end by themselves.
func (p *Program) abandon(cause *failure.Error, c casualties) {
	if p.dead {
		return
	}
	var fact events.Dropped
	var left []*Task
	for _, t := range c.tasks {
		switch {
		case t.held && t.done && !t.observed: // its message goes back
			t.observed = true
			t.leave()
			t.payload, t.err, t.abandoned = nil, cause, true
			fact.Schedules = append(fact.Schedules, t.id)
		case t.done || t.kind == branchTask:
		case t.kind == groupTask:
			left = append(left, t)
		case t.kind == stepTask && p.steps[t.id] == t:
			delete(p.steps, t.id)
			fact.Steps = append(fact.Steps, t.id)
			left = append(left, t)
		case p.tasks.Get(t.id) == t:
			p.tasks.Delete(t.id)
			fact.Schedules = append(fact.Schedules, t.id)
			left = append(left, t)
		}
	}
	if !p.forget(&fact) {
		return
	}
	for _, t := range left {
		if !t.done {
			t.err, t.abandoned = cause, true
			t.settle()
		}
	}
	for _, w := range c.waits {
		w.wake(nil)
	}
	for _, s := range c.shields {
		s.lastOrders(cause)
	}
}

// forget tells the host which answers are no longer needed.
func (p *Program) forget(fact *events.Dropped) bool {
	for _, n := range fact.Steps {
		p.host.DropStep(n)
	}
	switch {
	case len(fact.Schedules)+len(fact.Steps) == 0:
		return true
	case p.returned && len(p.branches) == 0:
		return true // the fact that ends the execution ends all of this with it
	}
	_, ok := p.note(fact)
	return ok
}
