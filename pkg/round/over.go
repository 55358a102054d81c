package round

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Over is a call or an execution that a turn has ended, for spans and metrics. It follows from
// history alone, so it is the same whether the instance was kept in memory or was read back.
type Over struct {
	Kind OverKind
	// Ref is the event that opened it; of an execution, its first one.
	Ref events.Ref
	// Trace is where it belongs: its trace, and the span in which it lies.
	Trace events.Trace
	// Link is another trace that it follows: that of the execution which continued as new.
	Link events.Trace

	// Name is that of the activity, orchestration, event or mailbox; Version the orchestration's.
	Name, Version string
	// Tag is the activity's, Instance the child's.
	Tag, Instance string
	// Attempt is the number of the activity's attempt. Worker is the worker that executed it.
	Attempt int
	Worker  string

	Begun, Ended time.Time
	// Due is when a timer was due, or a time limit.
	Due time.Time
	// Error is the failure. GivenUp says that the code does not wait for it any more.
	Error   *failure.Error
	GivenUp bool
	// Status is how an execution ended, Since when the first one of this incarnation was started.
	// About is what its code has said about it.
	Status Status
	Since  time.Time
	About  []slog.Attr
	// Rounds have written the Events of an execution, which take so many Bytes.
	Rounds        int
	Events, Bytes int64
}

// OverKind is what sort of thing is over. It begins the ids of its spans.
type OverKind string

// The kinds.
const (
	OverExecution OverKind = "execution"
	OverActivity  OverKind = "activity"
	OverTimer     OverKind = "timer"
	OverEvent     OverKind = "event"
	OverMailbox   OverKind = "mailbox"
	OverChild     OverKind = "child"
)

// overKinds maps the kinds of open calls.
var overKinds = map[openKind]OverKind{
	openActivity: OverActivity, openTimer: OverTimer, openWait: OverEvent, openRead: OverMailbox, openChild: OverChild,
}

// Span is the id of its own span.
func (o Over) Span(instance string) [8]byte { return events.SpanOf(string(o.Kind), instance, o.Ref) }

// ExecutionSpan is the id of the span of a whole execution.
func ExecutionSpan(instance, incarnation string, execution int64) [8]byte {
	return events.SpanOf(string(OverExecution), instance,
		events.Ref{Incarnation: incarnation, Execution: execution, Event: 1})
}

// ExecutionTrace is the place in a trace that an execution's span has, given what its row says.
func ExecutionTrace(instance string, r Row) events.Trace {
	t, ok := events.ParseTrace(r.Trace)
	if !ok {
		return events.Trace{}
	}
	return t.At(ExecutionSpan(instance, r.Incarnation, r.Execution))
}

// ---- Where an execution's trace begins.

// beginTrace is what a new execution notes as the place from where it was started. One that brings
// no trace gets one of its own, in which its own span is the first.
func (r *recorder) beginTrace(from, name, incarnation string, execution int64, message string) string {
	if t, ok := events.ParseTrace(from); ok {
		return t.String()
	}
	return r.newTrace(name, incarnation, execution, message)
}

// newTrace makes a trace that begins with an execution; "" if it is not sampled.
func (r *recorder) newTrace(name, incarnation string, execution int64, message string) string {
	if r.config.NewTrace == nil {
		return ""
	}
	t := events.Trace{ID: events.TraceOf(r.id, message), Span: ExecutionSpan(r.id, incarnation, execution)}
	t.Sampled = r.config.NewTrace(t.ID, name)
	return t.String()
}

// nextTrace is the same for an execution that continues another one: it begins a trace of its own,
// and says which one it follows.
func (r *recorder) nextTrace(name string, old *ledger) (trace, follows string) {
	if r.config.NewTrace == nil || old.trace.from.IsZero() {
		return old.trace.parent, ""
	}
	next := old.info.Execution + 1
	trace = r.newTrace(name, old.info.Incarnation, next, fmt.Sprintf("%s/%d", old.info.Incarnation, next))
	return trace, old.trace.from.At(ExecutionSpan(r.id, old.info.Incarnation, old.info.Execution)).String()
}

// traceOf is the trace of a message: the position of its cause, so that the receiver can continue
// there. If the trace is not sampled, that flag is enough.
func (r *recorder) traceOf(kind OverKind, ref events.Ref) string {
	l := &r.ledger
	if !l.trace.from.Sampled {
		return l.trace.parent
	}
	if kind == OverExecution {
		return l.trace.within.String()
	}
	return l.trace.from.At(events.SpanOf(string(kind), r.id, ref)).String()
}

// ---- What a turn has ended.

// noteOver adds to the turn what an event has brought to its end.
func (r *recorder) noteOver(e events.Event, eff effects) {
	l := &r.ledger
	if !l.trace.from.Sampled && !r.config.ReportOver {
		return
	}
	if len(l.calls.answered)+len(eff.closed) == 0 && !events.Ends(e.Fact) {
		return
	}
	add := func(c closedOpen, givenUp bool) {
		o := Over{
			Kind: overKinds[c.kind], Ref: l.ref(c.id), Trace: l.trace.within, Name: c.name, Tag: c.tag,
			Instance: c.instance, Attempt: c.attempt, Begun: c.since, Ended: e.At, Due: c.deadline, GivenUp: givenUp,
		}
		if !givenUp {
			o.Worker, o.Error = answered(e.Fact)
		}
		r.turn.Over = append(r.turn.Over, o)
	}
	for _, c := range l.calls.answered {
		add(c, false)
	}
	for _, c := range eff.closed {
		add(c, true)
	}
	if !events.Ends(e.Fact) {
		return
	}
	x := Over{Kind: OverExecution, Ref: l.ref(1), Name: l.info.Name, Version: l.info.Version, Begun: l.origin.started,
		Ended: e.At, Status: l.standing(), Error: l.outcome.err, About: l.about,
		Since: l.origin.begun, Rounds: l.tail.rounds, Events: l.tail.lastID, Bytes: l.tail.bytes}
	if x.Trace = l.trace.from; l.trace.from.Span == l.trace.within.Span {
		x.Trace.Span = [8]byte{} // there is no starter: its span is the first one
	}
	x.Link, _ = events.ParseTrace(l.trace.besides().former)
	r.turn.Over = append(r.turn.Over, x)
}

// answered names the worker and the error of an answer.
func answered(f events.Fact) (worker string, err *failure.Error) {
	switch f := f.(type) {
	case *events.ActivityCompleted:
		return f.Worker, nil
	case *events.ActivityFailed:
		return f.Worker, f.Error
	case *events.ChildFailed:
		return "", f.Error
	default:
	}
	return "", nil
}

// String makes it readable.
func (o Over) String() string {
	s := fmt.Sprintf("over %s %d-%d", o.Kind, o.Ref.Execution, o.Ref.Event)
	if o.Name != "" {
		s += " " + quote(o.Name)
	}
	if o.Instance != "" {
		s += " as " + quote(o.Instance)
	}
	if o.Attempt > 1 {
		s += fmt.Sprintf(" attempt %d", o.Attempt)
	}
	s += fmt.Sprintf(" after %v in %s", o.Ended.Sub(o.Begun), o.Trace)
	switch {
	case o.GivenUp:
		s += ", given up"
	case o.Status != "":
		s += ", " + string(o.Status)
	}
	for _, a := range o.About {
		s += " " + a.String()
	}
	if o.Error != nil {
		s += ": " + firstLine(o.Error.Error())
	}
	if !o.Link.IsZero() {
		s += ", follows " + o.Link.String()
	}
	return s
}
