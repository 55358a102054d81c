package coro

import (
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

var (
	sprint  = fmt.Sprint
	sprintf = fmt.Sprintf
)

// taskKind says which event settles a task.
type taskKind uint8

const (
	external    taskKind = iota // an answer from outside
	mailboxTask                 // the same, for a message of a mailbox
	stepTask                    // the result of an inline step
	branchTask                  // the end of a branch
	groupTask                   // other tasks
)

// Task is anything that can be waited for.
type Task struct {
	program  *Program
	kind     taskKind
	what     what
	done     bool
	observed bool
	held     bool // its result goes back if the code gives the task up unobserved: see Answer
	// abandoned means that nothing but the end of its scope, or being dropped, has settled it.
	abandoned bool
	id        int64 // the event that opened it, or the number of the step
	order     int64 // among all settled tasks

	payload codec.Payload
	value   any
	err     error

	scope *Scope // where it is listed; a branch's own scope is another one below it
	place[*Task]
	waiters []waiter

	accepts Accepts // for events and mailboxes: why data is of a wrong type; nil: all is right

	call  *call  // for activities and steps: how to try again
	name  string // with what, whose error it would be
	group *group // for groups: the members
	inner *Scope // for branches
}

// what names the kind of a task that has results of its own.
type what uint8

const (
	nothing what = iota
	anActivity
	aStep
	aTimer
	anEvent
	aMailbox
	anOrchestration
)

var whats = [...]string{anActivity: "activity", aStep: "step", aTimer: "timer", anEvent: "event", aMailbox: "mailbox",
	anOrchestration: "orchestration"}

// waiter is woken when a task settles.
type waiter interface {
	wake(t *Task)
	stale() bool // no longer interested
}

// Done reports whether the task is settled. It counts as a call, so that a loop around it can be
// stopped.
func (t *Task) Done() bool {
	if p := t.program; p != nil && p.current != nil {
		p.enter()
	}
	return t.done
}

// Payload, Value and Err are the result of a settled task.
func (t *Task) Payload() codec.Payload { return t.payload }
func (t *Task) Value() any             { return t.value }
func (t *Task) Err() error             { return t.err }

// source names the task, for its errors.
func (t *Task) source() string {
	if t.name == "" {
		return whats[t.what]
	}
	return whats[t.what] + " " + quote(t.name)
}

// attributed returns an error with its source and the number of attempts.
func (t *Task) attributed(e *failure.Error) *failure.Error {
	out, source := *e, t.source()
	if out.Source == "" {
		out.Source = source
	} else if out.Source != source {
		out = failure.Error{Kind: e.Kind, Type: e.Type, Message: e.Error(), NonRetryable: e.NonRetryable,
			Source:  source,
			Details: e.Details, Cause: e}
	}
	if t.call != nil {
		out.Attempts = t.call.attempt
	}
	return &out
}

// settle makes a task's result known.
func (t *Task) settle() {
	if t.done {
		return
	}
	p := t.program
	t.done = true
	p.settled++
	t.order = p.settled
	t.call = nil
	if !t.held {
		t.leave()
	}
	waiters := t.waiters
	t.waiters = nil
	for _, w := range waiters {
		w.wake(t)
	}
}

// observe notes that the code has seen the result. A mailbox message, or a kept event, is then
// consumed, and so are those that a group's result is made of.
func (t *Task) observe() {
	if !t.done || t.observed {
		return
	}
	t.observed = true
	t.leave()
	switch {
	case t.held:
		t.program.host.Consumed(t.id)
	case t.kind == groupTask:
		for _, m := range t.group.result() {
			m.observe()
		}
	}
}

// answer settles the task with an answer from outside.
func (t *Task) answer(a Answer) {
	t.payload, t.held = a.Payload, a.Held
	if a.Err != nil {
		t.err = t.attributed(a.Err)
	}
	t.settle()
}

// waitAgain continues the wait after data of a wrong type, so that a client which sends such data
// does not end the instance. Most of it is refused before it gets here; this is for data that was
// taken while the type was not known. That the code waited again is in history, so a replay does
// not ask the type, which may have changed.
func (t *Task) waitAgain(a Answer) bool {
	p := t.program
	if p.host.Replaying() {
		if !p.host.WaitedAgain(a.ID) {
			return false
		}
	} else if err := t.accepts(a.Payload, false); err == nil {
		return false
	} else {
		p.host.Warn(sprintf(
			"%s: what answered event %d is not of the type that the code waits for, and was skipped: %v",
			t.source(), a.ID, err))
	}
	if a.Held {
		p.host.Consumed(a.ID)
	}
	var fact events.Fact = &events.EventAwaited{Name: t.name, Again: a.ID}
	if t.kind == mailboxTask {
		fact = &events.MailboxRead{Mailbox: t.name, Again: a.ID}
	}
	event, answers, ok := p.record(fact)
	if !ok {
		return true
	}
	t.id = event.ID
	p.open(t)
	for _, next := range answers {
		p.Resolve(next)
	}
	return true
}

// leave takes the task out of its scope.
func (t *Task) leave() {
	if s := t.scope; s != nil {
		s.remove(t)
	}
}

func (t *Task) addWaiter(w waiter) {
	if len(t.waiters) >= 8 {
		kept := t.waiters[:0]
		for _, w := range t.waiters {
			if !w.stale() {
				kept = append(kept, w)
			}
		}
		clear(t.waiters[len(kept):])
		t.waiters = kept
	}
	t.waiters = append(t.waiters, w)
}

// wait is a branch that waits for one of several tasks.
type wait struct {
	program *Program
	branch  *branch
	fired   bool
	place[*wait]
}

func (w *wait) stale() bool { return w.fired }

func (w *wait) wake(*Task) {
	if !w.fired {
		w.fired = true
		w.program.ready = append(w.program.ready, w.branch)
	}
}

// pause parks the branch until a task wakes it, or its scope is cancelled.
func (w *wait) pause(s *Scope) {
	s.waits.push(w)
	w.program.park()
	s.waits.remove(w)
}

// Await waits for a task. It reports false when the scope was cancelled first.
func (s *Scope) Await(t *Task) bool {
	p := s.program
	p.enter()
	if !t.done && s.err == nil {
		w := &wait{program: p, branch: p.current}
		t.addWaiter(w)
		w.pause(s)
	}
	t.observe()
	return t.done
}

// AwaitAll waits for every one of several tasks, without looking at their results. It reports false
// when the scope was cancelled first.
func (s *Scope) AwaitAll(tasks []*Task) bool {
	p := s.program
	for _, t := range tasks {
		p.enter()
		if !t.done && s.err == nil {
			w := &wait{program: p, branch: p.current}
			t.addWaiter(w)
			w.pause(s)
		}
		if !t.done {
			return false
		}
	}
	return true
}

// AwaitAny waits for the first of several tasks to settle, and returns its index. Of several
// settled tasks it is the one that settled first. Without tasks, or when the scope was cancelled
// first, it returns -1.
func (s *Scope) AwaitAny(tasks []*Task) int {
	p := s.program
	p.enter()
	if i := s.first(tasks); i >= 0 || len(tasks) == 0 || s.err != nil {
		return i
	}
	w := &wait{program: p, branch: p.current}
	for _, t := range tasks {
		t.addWaiter(w)
	}
	w.pause(s)
	return s.first(tasks)
}

// first returns the index of the task that settled first. A task that only the end of the scope has
// settled does not count.
func (s *Scope) first(tasks []*Task) int {
	best := -1
	for i, t := range tasks {
		if !t.done || t.abandoned && s.err != nil {
			continue
		}
		if best < 0 || t.order < tasks[best].order {
			best = i
		}
	}
	return best
}

// group is a task made of others.
type group struct {
	program *Program
	task    *Task
	members []*Task
	open    int
	mode    GroupMode
	winner  int
}

// GroupMode says when a group is settled.
type GroupMode uint8

// The modes.
const (
	AllSettled   GroupMode = iota // every member is settled
	FirstFailure                  // every member has succeeded, or one has failed: then the others are dropped
	FirstSettled                  // one member is settled: the others are dropped
)

// Group makes one task of several.
func (s *Scope) Group(mode GroupMode, members []*Task) *Task {
	p := s.program
	p.enter()
	g := &group{program: p, members: members, open: len(members), mode: mode, winner: -1}
	t := &Task{program: p, kind: groupTask, group: g}
	g.task = t
	s.add(t)
	if i := s.first(members); mode == FirstSettled && i >= 0 {
		g.wake(members[i])
	}
	for _, m := range members {
		if t.done {
			break
		}
		if m.done {
			g.wake(m)
		} else {
			m.addWaiter(g)
		}
	}
	if len(members) == 0 {
		t.settle()
	}
	p.check()
	return t
}

// Winner is the member that has decided a group, -1 if none has.
func (t *Task) Winner() int { return t.group.winner }

// result lists the members whose results are the result of a settled group.
func (g *group) result() []*Task {
	switch {
	case g.winner >= 0 && g.mode == FirstSettled:
		return g.members[g.winner : g.winner+1]
	case g.winner >= 0 || g.task.err != nil:
		return nil
	}
	return g.members
}

func (g *group) stale() bool { return g.task.done }

func (g *group) wake(m *Task) {
	if g.task.done {
		return
	}
	g.open--
	g.task.abandoned = g.task.abandoned || m.abandoned
	decided := g.mode == FirstSettled || g.mode == FirstFailure && m.err != nil
	if decided {
		g.winner = slices.Index(g.members, m)
		g.task.settle()
		losers := slices.Clone(g.members)
		if g.mode == FirstSettled {
			losers = slices.DeleteFunc(losers, func(x *Task) bool { return x == m })
		}
		g.program.drop(errDropped, losers)
	} else if g.open == 0 {
		g.task.settle()
	}
}

// Stream yields settled tasks one by one, in the order in which they settle.
type Stream struct {
	program *Program
	done    []*Task
	taken   int
	left    int
	waiting *wait
}

// NewStream begins to watch tasks.
func (p *Program) NewStream(tasks []*Task) *Stream {
	p.enter()
	s := &Stream{program: p, left: len(tasks)}
	ordered := make([]*Task, 0)
	for _, t := range tasks {
		if t.done {
			ordered = append(ordered, t)
		} else {
			t.addWaiter(s)
		}
	}
	sortByOrder(ordered)
	s.done = ordered
	return s
}

func (s *Stream) stale() bool { return false }

func (s *Stream) wake(t *Task) {
	s.done = append(s.done, t)
	if s.waiting != nil {
		s.waiting.wake(t)
	}
}

// Next waits for the next task to settle; nil means that there are no more, or that the scope was
// cancelled first.
func (s *Stream) Next(scope *Scope) *Task {
	s.program.enter()
	if s.taken == len(s.done) && s.left > 0 && scope.err == nil {
		s.waiting = &wait{program: s.program, branch: s.program.current}
		s.waiting.pause(scope)
		s.waiting = nil
	}
	if s.taken == len(s.done) {
		return nil
	}
	s.left--
	t := s.done[s.taken]
	s.done[s.taken] = nil
	s.taken++
	return t
}

// Go runs code on a branch of its own. The task settles when the branch ends; tasks that the branch
// has started and that are still open are dropped.
func (s *Scope) Go(run func(inner *Scope) (any, error)) *Task {
	p := s.program
	p.enter()
	t := &Task{program: p, kind: branchTask}
	if s.err != nil {
		t.err, t.abandoned = s.err, true
		t.settle()
		return t
	}
	t.inner = s.child()
	s.add(t)
	p.spawn(t, func() { t.value, t.err = run(t.inner) })
	return t
}
