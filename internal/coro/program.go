// Package coro runs the code of one execution of an orchestration.
//
// The code runs on coroutines, one per branch, and only ever one at a time: the package switches
// between them itself, in an order that depends on nothing but the order of what happened. What the
// code says (schedule this, wait for that) goes to the [Host] as a fact; what happened comes back
// through [Program.Resolve]. So the package knows nothing of history, messages or replay: the host
// decides whether a fact is new or was recorded long ago, and the code cannot tell the difference.
//
//	      facts: ActivityScheduled, TimerCreated, …
//	code ───────────────────────────────────────────► Host
//	 ▲                                                  │
//	 └── Resolve(id, result), then Run ◄────────────────┘
//
// The words here: a [Task] is anything that can be waited for. A [Scope] is a set of tasks that end
// together. A branch is one coroutine.
package coro

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/x/smallmap"
	"github.com/rondo-run/rondo/pkg/events"
)

// Func is an orchestration's code with its types erased.
type Func func(p *Program, s *Scope, input events.Payload) (events.Payload, error)

// Host is what the code runs in. It is called only while Run or Resolve is running, from the same
// goroutine or one of the program's coroutines, never concurrently.
type Host interface {
	// Record takes what the code says and gives the event it became, which in a replay is the
	// recorded one. Answers are what it settles at once. When it returns false, the code must not
	// go on: the program unwinds it.
	Record(f events.Fact) (e events.Event, answers []Answer, ok bool)
	// StartStep hands out an attempt of an inline step, DropStep takes it back.
	StartStep(s Step)
	DropStep(number int64)
	// Consumed notes that the code has seen the message that a queue read took.
	Consumed(read int64)
	// Patched reports whether the code may take the new path of a change here.
	Patched(id string) bool
	// WaitedAgain reports, in a replay, whether the code went on waiting there after what had come
	// for a wait, because that was not of its type.
	WaitedAgain(wait int64) bool
	// Warn takes something that the operator should know.
	Warn(text string)
	// Log takes a record that the code logged.
	Log(r slog.Record)
	// Tell takes what the code measures: spans that are over, and numbers. Describe adds to what is
	// told of the whole execution.
	Tell(t Told)
	Describe(about []slog.Attr)

	Info() Info
	Now() time.Time
	Replaying() bool
	HistorySize() (events int64, bytes int64)
	Inherited() (events int64, bytes int64)
	Codec() events.Codec

	Unread(queue string) int
	Status() events.Payload
	Value(key string) (events.Payload, bool)
	Values() map[string]time.Time
}

// Info says which execution the code is running in.
type Info struct {
	Instance, Name, Version, Incarnation string
	Execution                            int64
	Parent                               *events.Parent
	Attributes                           map[string]string
}

// Told is something that the code tells about itself, for people: history does not have it.
type Told struct {
	Kind  ToldKind
	Name  string
	About []slog.Attr
	// Of a span: its number in the execution, and from when to when it was.
	Number       int64
	Begun, Ended time.Time
	Error        *events.Error
	// Value is how much is counted or measured.
	Value float64
}

// ToldKind is what sort of thing is told.
type ToldKind uint8

// The kinds.
const (
	ToldSpan ToldKind = iota
	ToldCount
	ToldValue
)

// Answer settles the task that an event opened.
type Answer struct {
	ID      int64
	Payload events.Payload
	Err     *events.Error
	// Heartbeat is the last progress of a failed activity.
	Heartbeat events.Payload
}

// Step is one attempt of an inline step, to be run outside the round.
type Step struct {
	Number    int64
	Name      string
	Attempt   int
	NotBefore time.Time
	Deadline  time.Time
	Timeout   time.Duration
	// IdempotencyKey is the same for all attempts.
	IdempotencyKey string
	Run            func(context.Context) (events.Payload, error)
}

// ContinueAsNew is the error by which code ends its execution and begins the next.
type ContinueAsNew struct {
	Name, Version string
	Input         events.Payload
}

func (*ContinueAsNew) Error() string {
	return "continue as new (return this error from the orchestration)"
}

// Outcome is how the code ended.
type Outcome struct {
	Output events.Payload
	Err    error // *ContinueAsNew, or why it failed

	// What Err says, asked while the code was still guarded: the methods of its errors are the
	// author's, and may panic.
	Next      *ContinueAsNew
	Cancelled bool // it says that it was cancelled, and nothing else
	Error     *events.Error
}

// examined asks an error of the code's all that must be known of it.
func examined(out events.Payload, err error) Outcome {
	o := Outcome{Output: out, Err: err}
	if err != nil && !errors.As(err, &o.Next) {
		o.Cancelled = onlyCancelled(err)
		o.Error = events.AsError(err)
	}
	return o
}

// onlyCancelled reports whether an error says that something was cancelled, and nothing else:
// cleaning up may have failed besides.
func onlyCancelled(err error) bool {
	if e, ok := err.(*events.Error); ok {
		return e.Kind == events.CancelledError
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return x.Unwrap() != nil && onlyCancelled(x.Unwrap())
	case interface{ Unwrap() []error }:
		all := x.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(e error) bool { return !onlyCancelled(e) })
	}
	return errors.Is(err, &events.Error{Kind: events.CancelledError})
}

// Program is one running execution. It is not safe for concurrent use.
type Program struct {
	host       Host
	interrupt  *atomic.Bool
	coroutines *Coroutines

	root     *Scope
	current  *branch
	ready    []*branch // [next:] are to run, in order
	next     int
	branches []*branch // all that have not ended

	tasks    smallmap.Map[*Task] // open, by the event that opened them
	steps    map[int64]*Task     // open inline steps, by number
	lastStep int64
	lastSpan int64
	settled  int64 // counts settlements: which of two came first
	ids      uint64
	random   *randomSource
	ops      int
	patches  map[string]bool

	returned bool // the main branch has returned
	outcome  Outcome
	failure  *events.Error // the code must be stopped because of this
	dead     bool          // unwinding: no call of the code's comes back
}

// branch is one coroutine.
type branch struct {
	task  *Task // what others wait for; nil for the main branch
	index int   // in Program.branches
	on    *coroutine
}

// unwound is what carries the end of a coroutine over its edge when it did not return.
type unwound struct{}

// exit ends the current coroutine. Its deferred calls run, but nothing in it can hold the end up:
// recover does not see it.
func exit() { runtime.Goexit() }

// New prepares an execution; Run starts it. The interrupt may be set from any goroutine to stop
// code that does not come back.
func New(host Host, code Func, input events.Payload, interrupt *atomic.Bool, coroutines *Coroutines) *Program {
	p := &Program{host: host, interrupt: interrupt, coroutines: coroutines}
	p.root = &Scope{program: p}
	p.spawn(nil, func() {
		in := input
		input = nil // it must not be kept for as long as the code runs
		out, err := code(p, p.root, in)
		p.outcome = examined(out, err)
		p.returned = true
	})
	return p
}

// Run lets the code go on until every branch waits or has ended.
func (p *Program) Run() {
	p.ops = 0
	for p.next < len(p.ready) && !p.dead {
		b := p.ready[p.next]
		p.ready[p.next] = nil
		p.next++
		p.step(b)
	}
	if p.next == len(p.ready) {
		p.ready, p.next = p.ready[:0], 0
	}
	if !p.dead && len(p.branches) > 0 && p.tasks.Len()+len(p.steps) == 0 {
		p.fail(&events.Error{Kind: events.Deadlock, Final: true,
			Message: "every branch waits for another one, so none can ever go on; check which future is awaited by " +
				"the branch that should complete it"})
	}
}

// step runs one branch until it parks or ends.
func (p *Program) step(b *branch) {
	p.current = b
	more := p.resume(b)
	p.current = nil
	if !more {
		p.ended(b)
	}
}

// resume switches to a coroutine and comes back when it parks (true) or has ended (false).
func (p *Program) resume(b *branch) (more bool) {
	defer func() {
		if r := recover(); r != nil && r != (unwound{}) {
			panic(r)
		}
	}()
	return b.on.resume()
}

// ended takes a branch out. When it was the main branch, whatever else is going on is told to end.
func (p *Program) ended(b *branch) {
	last := len(p.branches) - 1
	p.branches[b.index] = p.branches[last]
	p.branches[b.index].index = b.index
	p.branches[last] = nil
	p.branches = p.branches[:last]
	switch {
	case p.dead:
	case b.task != nil:
		b.task.inner.close()
		p.settle(b.task)
	default:
		p.root.end(&events.Error{Kind: events.CancelledError, Message: "the orchestration has ended"})
	}
}

// spawn makes a branch and queues it.
func (p *Program) spawn(t *Task, run func()) {
	b := &branch{task: t, index: len(p.branches)}
	p.branches = append(p.branches, b)
	b.on = p.coroutines.begin(func() (clean bool) {
		defer func() {
			switch r := recover(); {
			case r != nil:
				p.fail(panicError(r, debug.Stack()))
			case clean:
			default:
				// Somebody called runtime.Goexit: the program itself (see exit), or the code, as
				// t.FailNow does. It would go on to end the goroutine that runs the round, unless a
				// panic takes its place at the coroutine's edge.
				if !p.dead {
					p.fail(&events.Error{Kind: events.Panicked, Final: true, Stack: string(debug.Stack()),
						Message: "the code called runtime.Goexit (t.FailNow does); return an error instead"})
				}
				panic(unwound{})
			}
		}()
		run()
		return true
	})
	p.ready = append(p.ready, b)
}

func panicError(r any, stack []byte) *events.Error {
	e := &events.Error{Kind: events.Panicked, Final: true, Stack: string(stack)}
	switch r := r.(type) {
	case string:
		e.Message = "panic: " + r
	default:
		e.Message = "panic: " + sprint(r) // which bears with an Error or String that panics
	}
	return e.Bounded()
}

// park hands control back until the branch is made ready again.
func (p *Program) park() {
	b := p.current
	if !b.on.yield(true) || p.dead {
		p.dead = true
		exit()
	}
	p.ops = 0
}

// enter guards every call of the code's.
func (p *Program) enter() {
	switch {
	case p.dead:
		exit()
	case p.current == nil:
		panic("an orchestration.Context was used outside of its orchestration (from a goroutine of yours, or after " +
			"it ended); use orchestration.Go for concurrency")
	}
	p.ops++
	switch {
	case p.interrupt != nil && p.interrupt.Load():
		p.stopCode(&events.Error{Kind: events.Runaway, Final: true,
			Message: "the code ran for too long without waiting for anything; move long computations into an activity"})
	case p.ops > events.MaxTurnOperations:
		p.stopCode(&events.Error{Kind: events.Runaway, Final: true,
			Message: sprintf("the code made %d calls without waiting for anything; is there a loop that never waits?",
				p.ops-1)})
	}
}

// fail stops the execution from now on.
func (p *Program) fail(e *events.Error) {
	if p.failure == nil {
		p.failure = e
	}
	p.dead = true
}

// stopCode is fail from within the code: it does not return.
func (p *Program) stopCode(e *events.Error) {
	p.fail(e)
	exit()
}

// record gives a fact to the host. It reports false when the code must stop.
func (p *Program) record(f events.Fact) (events.Event, []Answer, bool) {
	e, answers, ok := p.host.Record(f)
	if !ok {
		p.dead = true
	}
	return e, answers, ok
}

// note is record for facts that open nothing; what they answer is settled at once.
func (p *Program) note(f events.Fact) (events.Event, bool) {
	e, answers, ok := p.record(f)
	for _, a := range answers {
		p.Resolve(a)
	}
	return e, ok
}

// Resolve brings what happened to the task that waits for it, and reports whether there was one.
func (p *Program) Resolve(a Answer) bool {
	t := p.tasks.Get(a.ID)
	if t == nil || p.dead {
		return p.dead
	}
	p.tasks.Delete(a.ID)
	if a.Err != nil && t.call != nil && p.retry(t, a) {
		return true
	}
	if a.Err == nil && t.accepts != nil && p.waitAgain(t, a) {
		return true
	}
	p.answer(t, a)
	return true
}

// Refuses tells why the code that waits at an event cannot read data; nil if it can, or if nobody
// knows.
func (p *Program) Refuses(wait int64, data events.Payload) error {
	if t := p.tasks.Get(wait); t != nil && !p.dead && t.accepts != nil {
		return t.accepts(data)
	}
	return nil
}

// waitAgain goes on waiting when what came is not of the type that is waited for, so that nobody
// who sends something wrong ends the instance. Most of that is refused before it gets here; this is
// for what was taken while the type was not known. That the code waited again is in history, so a
// replay does not ask the type, which may have changed.
func (p *Program) waitAgain(t *Task, a Answer) bool {
	if p.host.Replaying() {
		if !p.host.WaitedAgain(a.ID) {
			return false
		}
	} else if err := t.accepts(a.Payload); err == nil {
		return false
	} else {
		p.host.Warn(sprintf(
			"%s: what answered event %d is not of the type that the code waits for, and was skipped: %v",
			t.source(), a.ID, err))
	}
	var fact events.Fact = &events.EventAwaited{Name: t.name, Again: a.ID}
	if t.kind == queueTask {
		p.host.Consumed(a.ID)
		fact = &events.QueueRead{Queue: t.name, Again: a.ID}
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

func (p *Program) answer(t *Task, a Answer) {
	t.payload = a.Payload
	if a.Err != nil {
		t.err = t.attributed(a.Err)
	}
	p.settle(t)
}

// ResolveStep brings the result of an inline step.
func (p *Program) ResolveStep(number int64, name string, attempt int, result events.Payload, err *events.Error) bool {
	t := p.steps[number]
	if t == nil || p.dead {
		return p.dead || number <= p.lastStep // dropped meanwhile: its result had to wait until the code was resumed
	}
	if t.call.name != name || t.call.attempt != attempt && err != nil {
		return false
	}
	if err != nil && p.retryStep(t, err) {
		return true
	}
	delete(p.steps, number)
	p.answer(t, Answer{Payload: result, Err: err})
	return true
}

// Waits reports whether an inline step is open.
func (p *Program) Waits(step int64, attempt int) bool {
	t := p.steps[step]
	return t != nil && t.call.attempt == attempt
}

// OpenSteps lists the inline steps that have no result yet, as they must be handed out again after
// a replay.
func (p *Program) OpenSteps() []Step {
	steps := make([]Step, 0, len(p.steps))
	for _, n := range slices.Sorted(maps.Keys(p.steps)) {
		steps = append(steps, p.steps[n].call.step(n))
	}
	return steps
}

// Stepping reports whether an inline step has no result yet.
func (p *Program) Stepping() bool { return len(p.steps) > 0 }

// Cancel ends all waits of the code that are not shielded.
func (p *Program) Cancel(cause *events.Error) {
	if !p.dead {
		p.root.cancel(cause)
	}
}

// Outcome reports how the code ended, once it has: when the main branch has returned and all others
// have ended.
func (p *Program) Outcome() (Outcome, bool) {
	if p.failure != nil {
		return Outcome{Err: p.failure, Error: p.failure}, true
	}
	if p.dead || !p.returned || len(p.branches) > 0 {
		return Outcome{}, false
	}
	return p.outcome, true
}

// Close ends all coroutines. The program cannot be used afterwards.
func (p *Program) Close() {
	p.dead = true
	for len(p.branches) > 0 {
		p.unwind(p.branches[len(p.branches)-1])
	}
}

func (p *Program) unwind(b *branch) {
	defer func() {
		p.current = nil
		if r := recover(); r != nil && r != (unwound{}) {
			panic(r)
		}
		p.ended(b)
	}()
	p.current = b
	b.on.stop()
}
