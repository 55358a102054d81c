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
	"slices"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/x/smallmap"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Func is an orchestration's code with its types erased.
type Func func(p *Program, s *Scope, input codec.Payload) (codec.Payload, error)

// Host is the environment of the code. It is called only while Run or Resolve is running, from the
// same goroutine or one of the program's coroutines, never concurrently.
type Host interface {
	// Record takes a fact from the code and returns its event, which in a replay is the recorded
	// one. Answers are those that settle it at once. When it returns false, the code must not
	// continue: the program unwinds it.
	Record(f events.Fact) (e events.Event, answers []Answer, ok bool)
	// StartStep starts an attempt of an inline step, DropStep cancels it.
	StartStep(s Step)
	DropStep(number int64)
	// Consumed notes that the code has seen the message that a read of a mailbox took.
	Consumed(read int64)
	// Patched reports whether the code may take the new path of a change here.
	Patched(id string) bool
	// WaitedAgain reports, in a replay, whether the code continued a wait after data of a wrong
	// type.
	WaitedAgain(wait int64) bool
	// Warn takes a warning for the operator.
	Warn(text string)
	// Log takes a record that the code logged.
	Log(r slog.Record)
	// Tell takes telemetry of the code: ended spans, and numbers. Describe adds attributes to the
	// telemetry of the whole execution.
	Emit(t Emitted)
	Describe(about []slog.Attr)

	Info() Info
	Now() time.Time
	Replaying() bool
	HistorySize() (events int64, bytes int64)
	Inherited() (events int64, bytes int64)
	Codec() codec.Codec

	Unread(mailbox string) int
	Status() codec.Payload
	Value(key string) (codec.Payload, bool)
	Values() map[string]time.Time
}

// Info says which execution the code is running in.
type Info struct {
	Instance, Name, Version, Incarnation string
	Execution                            int64
	Parent                               *events.Parent
	Attributes                           map[string]string
}

// Told is telemetry that the code emits about itself: history does not have it.
type Emitted struct {
	Kind  EmittedKind
	Name  string
	About []slog.Attr
	// For a span: its number in the execution, and its start and end.
	Number       int64
	Begun, Ended time.Time
	Error        *failure.Error
	// Value is the number that is counted or measured.
	Value float64
}

// EmittedKind is the kind of the telemetry.
type EmittedKind uint8

// The kinds.
const (
	EmittedSpan EmittedKind = iota
	EmittedCount
	EmittedValue
)

// Answer settles the task that an event opened.
type Answer struct {
	ID      int64
	Payload codec.Payload
	Err     *failure.Error
	// Heartbeat is the last progress of a failed activity.
	Heartbeat codec.Payload
	// Held says that the data goes back if the code gives up the task before it has looked at it.
	Held bool
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
	Run            func(context.Context) (codec.Payload, error)
}

// ContinueAsNew is the error by which code ends its execution and begins the next.
type ContinueAsNew struct {
	Name, Version string
	Input         codec.Payload
}

func (*ContinueAsNew) Error() string {
	return "continue as new (return this error from the orchestration)"
}

// Outcome is how the code ended.
type Outcome struct {
	Output codec.Payload
	Err    error // *ContinueAsNew, or why it failed

	// The facts of Err, read while the code was still guarded: the methods of its errors are the
	// author's, and may panic.
	Next      *ContinueAsNew
	Cancelled bool // it says that it was cancelled, and nothing else
	Error     *failure.Error
}

// examined reads from an error of the code all that must be known of it.
func examined(out codec.Payload, err error) Outcome {
	o := Outcome{Output: out, Err: err}
	if err != nil && !errors.As(err, &o.Next) {
		o.Cancelled = onlyCancelled(err)
		o.Error = failure.From(err)
	}
	return o
}

// onlyCancelled reports whether an error says that something was cancelled, and nothing else:
// cleaning up may have failed besides.
func onlyCancelled(err error) bool {
	if e, ok := err.(*failure.Error); ok {
		return e.Kind == failure.Cancelled
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return x.Unwrap() != nil && onlyCancelled(x.Unwrap())
	case interface{ Unwrap() []error }:
		all := x.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(e error) bool { return !onlyCancelled(e) })
	}
	return errors.Is(err, &failure.Error{Kind: failure.Cancelled})
}

// Program is one running execution. It is not safe for concurrent use.
type Program struct {
	scheduler
	host Host
	root *Scope

	tasks    smallmap.Map[*Task] // open, by the event that opened them
	steps    map[int64]*Task     // open inline steps, by number
	lastStep int64
	lastSpan int64
	settled  int64 // counts settlements: which of two came first
	ids      uint64
	random   *randomSource
	patches  map[string]bool

	returned bool // the main branch has returned
	outcome  Outcome
}

// New prepares an execution; Run starts it. The interrupt may be set from any goroutine to stop
// code that does not come back. If calls are checked, one from a goroutine of the code's panics
// there: that takes microseconds for each call.
func New(host Host, code Func, input codec.Payload, interrupt *atomic.Bool, coroutines *Coroutines,
	checked bool) *Program {
	p := &Program{host: host, scheduler: scheduler{interrupt: interrupt, coroutines: coroutines, checked: checked}}
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

// Run resumes the code until every branch waits or has ended.
func (p *Program) Run() {
	p.ops = 0
	for b := p.take(); b != nil; b = p.take() {
		if !p.step(b) {
			p.ended(b)
		}
	}
	if !p.dead && len(p.branches) > 0 && p.tasks.Len()+len(p.steps) == 0 {
		p.fail(&failure.Error{Kind: failure.Deadlock, NonRetryable: true,
			Message: "every branch waits for another one, so none can ever go on; check which future is awaited by " +
				"the branch that should complete it"})
	}
}

// ended removes a branch. When it was the main branch, it ends the root scope.
func (p *Program) ended(b *branch) {
	p.remove(b)
	switch {
	case p.dead:
	case b.task != nil:
		b.task.inner.close()
		b.task.settle()
	default:
		p.root.end(&failure.Error{Kind: failure.Cancelled, Message: "the orchestration has ended"})
	}
}

// record gives a fact to the host. It reports false when the code must stop.
func (p *Program) record(f events.Fact) (events.Event, []Answer, bool) {
	e, answers, ok := p.host.Record(f)
	if !ok {
		p.dead = true
	}
	return e, answers, ok
}

// note is record for facts that open nothing; the tasks that they answer are settled at once.
func (p *Program) note(f events.Fact) (events.Event, bool) {
	e, answers, ok := p.record(f)
	for _, a := range answers {
		p.Resolve(a)
	}
	return e, ok
}

// Resolve gives an answer to the task that waits for it, and reports whether there was one.
func (p *Program) Resolve(a Answer) bool {
	t := p.tasks.Get(a.ID)
	if t == nil || p.dead {
		return p.dead
	}
	p.tasks.Delete(a.ID)
	if a.Err != nil && t.call != nil && t.retry(a) {
		return true
	}
	if a.Err == nil && t.accepts != nil && t.waitAgain(a) {
		return true
	}
	t.answer(a)
	return true
}

// Refuses returns the reason why the code that waits at an event cannot read data. It returns nil
// if the code can, or if that is not known. Strict refuses unknown fields and missing data, too.
func (p *Program) Refuses(wait int64, data codec.Payload, strict bool) error {
	if t := p.tasks.Get(wait); t != nil && !p.dead && t.accepts != nil {
		return t.accepts(data, strict)
	}
	return nil
}

// ResolveStep gives an inline step its result.
func (p *Program) ResolveStep(number int64, name string, attempt int, result codec.Payload, err *failure.Error) bool {
	t := p.steps[number]
	if t == nil || p.dead {
		return p.dead || number <= p.lastStep // dropped meanwhile: its result had to wait until the code was resumed
	}
	if t.call.name != name || t.call.attempt != attempt && err != nil {
		return false
	}
	if err != nil && t.retryStep(err) {
		return true
	}
	delete(p.steps, number)
	t.answer(Answer{Payload: result, Err: err})
	return true
}

// Waits reports whether an inline step is open.
func (p *Program) Waits(step int64, attempt int) bool {
	t := p.steps[step]
	return t != nil && t.call.attempt == attempt
}

// OpenSteps lists the inline steps that have no result yet: the orchestrator runs them again after
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
func (p *Program) Cancel(cause *failure.Error) {
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
		b := p.branches[len(p.branches)-1]
		p.unwind(b)
		p.ended(b)
	}
}
