package coro

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// errDropped is what a dropped task gives to whoever still waits for it.
var errDropped = &events.Error{Kind: events.CancelledError, Message: "nobody waits for it any more"}

// Scope is a set of tasks that end together. Scopes form a tree: cancelling one cancels those below
// it, except shielded ones, which get a last bounded time.
type Scope struct {
	program       *Program
	parent        *Scope
	open          list[*Task] // in the order in which they were started
	waits         list[*wait] // branches that wait in it
	below         list[*Scope]
	place[*Scope]               // in the parent's list
	err           *events.Error // why it was cancelled
	shield        time.Duration // > 0: how long it may go on after the scope above was cancelled
	limit         *Task         // the timer of a time limit or shield
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

// Err says why the scope was cancelled; nil while it was not.
func (s *Scope) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

// Child opens a scope below this one. Close ends it and drops what is still open in it.
func (s *Scope) Child() *Scope {
	s.program.enter()
	return s.child()
}

// Limited is Child with a time limit.
func (s *Scope) Limited(d time.Duration) *Scope {
	c := s.Child()
	if c.err == nil {
		c.expire(d, &events.Error{Kind: events.Timeout, Type: events.TimeoutOverall,
			Message: "the time limit of " + d.String() + " was reached"})
	}
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
func (s *Scope) lastOrders(cause *events.Error) {
	if s.limit == nil && s.err == nil {
		s.expire(s.shield, cause)
	}
}

// expire cancels the scope after a time.
func (s *Scope) expire(d time.Duration, cause *events.Error) {
	p := s.program
	event, ok := p.note(&events.TimerCreated{FireAt: events.Instant(p.host.Now().Add(d))})
	if !ok {
		return
	}
	if f, ok := event.Fact.(*events.CallRefused); ok {
		s.cancel(f.Error) // its calls say why
		return
	}
	s.limit = &Task{id: event.ID}
	s.limit.waiters = []waiter{&expiry{scope: s, cause: cause}}
	s.add(s.limit)
	p.open(s.limit)
}

type expiry struct {
	scope *Scope
	cause *events.Error
}

func (e *expiry) stale() bool { return false }

func (e *expiry) wake(t *Task) {
	if t.err == nil {
		e.scope.cancel(e.cause)
	}
}

// Cancel drops everything in the scope; calls made in it from now on give the cause.
func (s *Scope) Cancel(cause *events.Error) {
	s.program.enter()
	s.cancel(cause)
	s.program.check()
}

// Close ends a scope whose work is done.
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

func (s *Scope) cancel(cause *events.Error) { s.stop(cause, false) }

// end is cancel for a scope whose own branch has ended: a shield below it holds only while another
// branch runs in it.
func (s *Scope) end(cause *events.Error) { s.stop(cause, true) }

func (s *Scope) stop(cause *events.Error, ended bool) {
	var c casualties
	c.scope(s, cause, ended)
	s.program.abandon(cause, c)
}

// casualties are what a cancellation hits.
type casualties struct {
	tasks   []*Task
	waits   []*wait  // these branches must not wait any longer
	shields []*Scope // these get their last bounded time
}

// scope marks a scope and those below it as cancelled and lists their tasks.
func (c *casualties) scope(s *Scope, cause *events.Error, ended bool) {
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

// dropped lists what stands behind tasks that nobody waits for any more.
func (c *casualties) dropped(tasks []*Task, cause *events.Error) {
	for _, t := range tasks {
		switch {
		case t.kind == branchTask && !t.done:
			c.scope(t.inner, cause, false)
		case t.kind == groupTask && !t.done:
			c.tasks = append(c.tasks, t)
			c.dropped(t.group.members, cause)
		case t.kind == groupTask && !t.observed:
			c.dropped(t.group.result(), cause) // messages that nobody has looked at go back
		case !t.done, t.kind == queueTask && !t.observed:
			c.tasks = append(c.tasks, t)
		}
	}
}

// Drop says that nobody waits for some tasks any more.
func (p *Program) Drop(tasks ...*Task) {
	p.enter()
	p.drop(errDropped, tasks)
	p.check()
}

func (p *Program) drop(cause *events.Error, tasks []*Task) {
	var c casualties
	c.dropped(tasks, cause)
	p.abandon(cause, c)
}

// abandon settles tasks without a result and tells the host what is now waited for in vain.
// Branches are left to end by themselves.
func (p *Program) abandon(cause *events.Error, c casualties) {
	if p.dead {
		return
	}
	var fact events.Dropped
	var left []*Task
	for _, t := range c.tasks {
		switch {
		case t.kind == queueTask && t.done && !t.observed: // its message goes back
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
			p.settle(t)
		}
	}
	for _, w := range c.waits {
		w.wake(nil)
	}
	for _, s := range c.shields {
		s.lastOrders(cause)
	}
}

// forget tells the host what is no longer waited for.
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

// check unwinds the code if what it just did was refused.
func (p *Program) check() {
	if p.dead {
		exit()
	}
}
