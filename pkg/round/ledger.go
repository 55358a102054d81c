package round

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// ledger is the state that the history of one execution describes, without running any code: open
// calls, unread messages, kept values. It decides about the meaning of a message; the code gets
// only facts that passed the ledger.
type ledger struct {
	info   coro.Info
	origin origin
	trace  tracing
	tail   tail
	seen   seen

	calls  calls
	steps  steps
	mail   mailboxes
	values values

	userSuspended bool
	halt          *failure.Error // why the engine halted the code, if it did
	cancel        *events.CancelRequested
	outcome       outcome

	about []slog.Attr // what the code says about the whole execution; not from history, but from replaying the code
}

// newLedger makes the ledger of an execution without events.
func newLedger(instance string, execution int64) ledger {
	return ledger{info: coro.Info{Instance: instance, Execution: execution}}
}

// ledgerOf makes the ledger of an execution whose history cannot be read, as far as its row tells.
func ledgerOf(instance string, r Row) ledger {
	l := ledger{
		info: coro.Info{Instance: instance, Execution: r.Execution, Name: r.Name, Version: r.Version,
			Incarnation: r.Incarnation, Parent: r.Parent, Attributes: r.Attributes},
		origin: origin{engine: r.Engine, message: r.StartMessage, started: r.StartedAt, begun: r.StartedAt},
		tail:   tail{lastID: r.LastEvent, lastAt: r.UpdatedAt, bytes: r.HistoryBytes},
		values: values{status: r.CustomStatus, statusVersion: r.CustomStatusVersion},
	}
	l.trace.follow(r.Trace, &l.info)
	return l
}

// origin is how an execution began.
type origin struct {
	engine  int
	input   codec.Payload // until the code has taken it
	started time.Time
	begun   time.Time // when the first execution of this incarnation was started
	message string    // the id of the message that started this incarnation
	sent    time.Time // when that was sent
}

// outcome is how an execution ended. The zero value stands for one that runs.
type outcome struct {
	kind     events.Kind
	output   codec.Payload
	err      *failure.Error
	at       time.Time
	deletion bool // the instance was terminated because it is about to be deleted
}

// outcomeOf reads the outcome from the event that ends the execution.
func outcomeOf(e events.Event) outcome {
	o := outcome{kind: e.Fact.Kind(), at: e.At}
	switch f := e.Fact.(type) {
	case *events.Completed:
		o.output = f.Output
	case *events.Failed:
		o.err = f.Error
	case *events.Cancelled:
		o.output = f.Output
		o.err = &failure.Error{Kind: failure.Cancelled, Message: because("cancelled", f.Reason),
			Cause: f.Error, NonRetryable: true}
	case *events.Terminated:
		o.err = &failure.Error{Kind: failure.Terminated, Message: because("terminated", f.Reason),
			NonRetryable: true}
		o.deletion = f.Deletion
	default:
	}
	return o
}

// tail is the end of a history: its last event, and what all events sum up to.
type tail struct {
	lastID    int64
	lastAt    time.Time
	bytes     int64
	rounds    int // that have written to history
	inherited int // events still to come that the execution begins with
	// Of the events and bytes, those that the execution began with.
	baseID, baseBytes int64
}

// eventOverhead is what an event counts for besides its user data.
const eventOverhead = 64

// add moves the tail behind an event.
func (t *tail) add(e events.Event) {
	if t.lastID == 0 || !e.At.Equal(t.lastAt) {
		t.rounds++ // what a round appends has one time
	}
	t.lastID, t.lastAt = e.ID, e.At
	t.bytes += int64(e.Fact.Size()) + eventOverhead
	if t.inherited > 0 && e.ID > 1 {
		t.inherited--
		t.baseID, t.baseBytes = t.lastID, t.bytes
	}
}

// isNearOver reports whether the history is near its limits.
func (t *tail) isNearOver() bool {
	return t.lastID >= nearOf(events.MaxHistoryEvents) || t.bytes >= nearOf(events.MaxHistoryBytes)
}

// over is the error of an execution that has grown too large.
func (t *tail) over() *failure.Error {
	const cure = "continue as new from time to time (ctx.ShouldContinueAsNew tells when)"
	switch {
	case t.lastID >= events.MaxHistoryEvents:
		return events.Limit("events in the history of one execution", t.lastID, events.MaxHistoryEvents, cure)
	case t.bytes >= events.MaxHistoryBytes:
		return events.Limit("bytes in the history of one execution", t.bytes, events.MaxHistoryBytes, cure)
	}
	return nil
}

// tracing is the place of an execution in a trace.
type tracing struct {
	parent string       // where it was started
	from   events.Trace // the same, read
	within events.Trace // the span of the execution in it, if it is sampled
	beside *beside      // the other headers of the trace, nil if there are none
}

// beside is the rarely used company of a trace.
type beside struct {
	state   string
	baggage string
	former  string // the trace of the execution before
}

// besides is that, for reading.
func (t *tracing) besides() beside {
	if t.beside == nil {
		return beside{}
	}
	return *t.beside
}

// follow notes where an execution was started.
func (t *tracing) follow(parent string, execution *coro.Info) {
	t.parent = parent
	t.from, _ = events.ParseTrace(parent)
	if t.from.Sampled {
		t.within = t.from.At(ExecutionSpan(execution.Instance, execution.Incarnation, execution.Execution))
	}
}

// values are the custom status and the values of an instance.
type values struct {
	status        codec.Payload
	statusVersion int64
	all           map[string]value
}

type value struct {
	data codec.Payload
	set  time.Time
}

func (v *values) set(f *events.ValueSet) {
	if v.all == nil {
		v.all = make(map[string]value, 1)
	}
	v.all[f.Key] = value{f.Value, f.Set}
}

func (v *values) clear(keys []string) {
	for _, k := range keys {
		delete(v.all, k)
	}
}

// effects are what an event changes for others.
type effects struct {
	answers []coro.Answer
	closed  []closedOpen // the discarded calls
	retimed bool         // what it answers is due at another time than before
}

type closedOpen struct {
	id int64
	*open
}

func (l *ledger) ref(event int64) events.Ref {
	return events.Ref{Incarnation: l.info.Incarnation, Execution: l.info.Execution, Event: event}
}

func (l *ledger) running() bool { return l.tail.lastID > 0 && l.outcome.kind == "" }

// halted reports whether the code must not advance.
func (l *ledger) halted() bool { return l.userSuspended || l.halt != nil }

// load takes a whole history.
func (l *ledger) load(history []events.Event) error {
	for _, e := range history {
		if err := l.follows(e); err != nil {
			return err
		}
		if _, err := l.apply(e); err != nil {
			return err
		}
	}
	return nil
}

// follows checks that an event is the next one.
func (l *ledger) follows(e events.Event) error {
	switch {
	case e.ID != l.tail.lastID+1:
		return fmt.Errorf("history has event %d after event %d", e.ID, l.tail.lastID)
	case (e.ID == 1) != (e.Fact.Kind() == events.KindStarted):
		return fmt.Errorf("history has %s at event %d", e.Fact.Kind(), e.ID)
	case l.outcome.kind != "":
		return fmt.Errorf("history has %s at event %d, after %s had ended the execution", e.Fact.Kind(), e.ID,
			l.outcome.kind)
	}
	return nil
}

// apply takes one event. An error means that the history contradicts itself.
func (l *ledger) apply(e events.Event) (effects, error) {
	l.tail.add(e)
	l.calls.answered = l.calls.answered[:0]
	if r, ok := events.ReceiptOf(e); ok && e.ID > 1 {
		l.seen.take(r)
	}
	switch f := e.Fact.(type) {
	case *events.Started:
		l.start(e.At, f)
		if r, ok := events.ReceiptOf(e); ok {
			l.origin.sent = r.Sent
			l.seen.take(r) // behind those of earlier executions
		}
	case *events.ActivityScheduled:
		l.calls.openUp(e.ID, askedOpen(open{kind: openActivity, name: f.Name, deadline: f.Deadline},
			asked{tag: f.Tag, attempt: f.Attempt, startBy: f.StartBy, notBefore: f.NotBefore}), e.At)
	case *events.TimerCreated:
		l.calls.openUp(e.ID, &open{kind: openTimer, deadline: f.FireAt}, e.At)
	case *events.EventAwaited:
		return l.await(e.ID, f)
	case *events.ChildStarted:
		abandon := f.ParentClose == events.AbandonChild
		l.calls.openUp(e.ID, askedOpen(open{kind: openChild, name: f.Name, abandon: abandon},
			asked{instance: f.Instance}), e.At)
	case *events.MailboxRead:
		return l.read(e.ID, f)
	case *events.MessageReceived:
		return l.deliver(e, f), nil
	case *events.ActivityBegun:
		return l.begin(f)
	case *events.ActivityCompleted:
		return l.answer(f.Schedule, openActivity, coro.Answer{Payload: f.Result})
	case *events.ActivityFailed:
		return l.answer(f.Schedule, openActivity, coro.Answer{Err: f.Error, Heartbeat: f.Heartbeat})
	case *events.TimerFired:
		return l.answer(f.Timer, openTimer, coro.Answer{})
	case *events.ChildCompleted:
		return l.answer(f.Schedule, openChild, coro.Answer{Payload: f.Output})
	case *events.ChildFailed:
		return l.answer(f.Schedule, openChild, coro.Answer{Err: f.Error})
	case *events.EventReceived:
		if f.Keep {
			return l.keep(e, f)
		}
		l.calls.waits.remove(f.Name, f.Wait)
		return l.answer(f.Wait, openWait, coro.Answer{Payload: f.Data})
	case *events.StepCompleted:
		l.steps.close(f.Step)
	case *events.StepFailed:
		l.steps.fail(f.Step, f.Attempt)
	case *events.Dropped:
		return l.drop(f), nil
	case *events.StatusSet:
		l.values.status, l.values.statusVersion = f.Status, f.Version
	case *events.ValueSet:
		l.values.set(f)
	case *events.ValuesCleared:
		l.values.clear(f.Keys)
	case *events.CancelRequested:
		l.cancel = f
	case *events.Suspended:
		if f.Error != nil {
			l.halt = f.Error
		} else {
			l.userSuspended = true
		}
	case *events.Resumed:
		if f.Healed {
			l.halt = nil
		} else {
			l.userSuspended = false
		}
	case *events.Completed, *events.Failed, *events.Cancelled, *events.Terminated, *events.ContinuedAsNew:
		return l.end(e), nil
	case *events.Launched, *events.Sent, *events.Patched, *events.CallRefused: // these leave nothing open
	}
	return effects{}, nil
}

func (l *ledger) start(at time.Time, f *events.Started) {
	l.info.Name, l.info.Version, l.info.Incarnation = f.Name, f.Version, f.Incarnation
	l.info.Parent, l.info.Attributes = f.Parent, f.Attributes
	l.origin.input = f.Input
	l.origin.engine, l.origin.started, l.origin.message, l.tail.inherited = f.Engine, at, f.Message, f.Carried
	if l.origin.begun = f.Begun; l.origin.begun.IsZero() {
		l.origin.begun = at
	}
	l.trace.follow(f.Trace, &l.info)
	l.trace.beside = nil
	if b := (beside{f.TraceState, f.Baggage, f.Follows}); b != (beside{}) {
		l.trace.beside = &b
	}
	l.seen.load(f, at)
}

// begin notes that a worker has begun an activity, or leaves its completion to another program.
func (l *ledger) begin(f *events.ActivityBegun) (effects, error) {
	if _, err := l.calls.find(f.Schedule, openActivity); err != nil {
		return effects{}, err
	}
	return effects{retimed: l.calls.begin(f.Schedule, f.Pending)}, nil
}

// answer settles an open call.
func (l *ledger) answer(id int64, kind openKind, a coro.Answer) (effects, error) {
	if _, err := l.calls.find(id, kind); err != nil {
		return effects{}, err
	}
	l.calls.settle(id)
	a.ID = id
	return effects{answers: []coro.Answer{a}}, nil
}

// deliver puts a message into its mailbox, or gives it to the code that waits there.
func (l *ledger) deliver(e events.Event, f *events.MessageReceived) effects {
	r, _ := events.ReceiptOf(e)
	box := l.mail.box(mailboxOf(f.Mailbox))
	l.mail.add(box,
		message{id: e.ID, mailbox: box.name, data: f.Data, message: f.Message, sent: r.Sent, restart: f.Restart})
	return effects{answers: l.handOut(box)}
}

// handOut gives unread messages to open reads, and kept events to open waits, oldest to oldest.
func (l *ledger) handOut(box *mailbox) (answers []coro.Answer) {
	for len(box.messages) > 0 {
		open := box.reads
		if box.name.event {
			open = l.calls.waits.of(box.name.name)
		}
		if len(open) == 0 {
			break
		}
		read := open[0]
		if box.name.event {
			l.calls.waits.remove(box.name.name, read)
		} else {
			box.unread(read)
		}
		l.calls.settle(read)
		answers = append(answers, l.mail.take(box, read))
	}
	return answers
}

// await opens a wait for an event, and answers it if there is a kept one.
func (l *ledger) await(id int64, f *events.EventAwaited) (effects, error) {
	if oldest := l.mail.oldest(keptOf(f.Name)); oldest != f.Kept {
		return effects{}, fmt.Errorf("history takes event %d for the wait for event %q at event %d, and the oldest "+
			"that is kept is event %d", f.Kept, f.Name, id, oldest)
	}
	l.calls.openUp(id, &open{kind: openWait, name: f.Name}, l.tail.lastAt)
	if f.Kept == 0 {
		l.calls.waits.add(f.Name, id)
		return effects{}, nil
	}
	l.calls.settle(id)
	return effects{answers: []coro.Answer{l.mail.take(l.mail.box(keptOf(f.Name)), id)}}, nil
}

// keep keeps an event until the code has looked at it, and gives it to the code that waits for it.
func (l *ledger) keep(e events.Event, f *events.EventReceived) (effects, error) {
	r, _ := events.ReceiptOf(e)
	box := l.mail.box(keptOf(f.Name))
	if f.Instead != 0 {
		if len(box.messages) == 0 || box.messages[0].id != f.Instead {
			return effects{}, fmt.Errorf("history drops event %d at event %d, which is not the oldest kept %q",
				f.Instead, e.ID, f.Name)
		}
		l.mail.remove(box)
	}
	l.mail.add(box, message{id: e.ID, mailbox: box.name, data: f.Data, message: f.Message, sent: r.Sent})
	eff := effects{answers: l.handOut(box)}
	if len(eff.answers) == 0 && f.Wait != 0 || len(eff.answers) > 0 && eff.answers[0].ID != f.Wait {
		return effects{}, fmt.Errorf("history answers event %d, which is not the oldest wait for event %q", f.Wait,
			f.Name)
	}
	return eff, nil
}

// read opens a read of a mailbox, and answers it if there is a message.
func (l *ledger) read(id int64, f *events.MailboxRead) (effects, error) {
	box := l.mail.box(mailboxOf(f.Mailbox))
	l.calls.openUp(id, &open{kind: openRead, name: f.Mailbox}, l.tail.lastAt)
	if f.Message == 0 {
		if len(box.messages) > 0 {
			return effects{}, fmt.Errorf("history waits for mailbox %q at event %d, which has unread messages",
				f.Mailbox,
				id)
		}
		box.reads = append(box.reads, id)
		return effects{}, nil
	}
	if len(box.messages) == 0 || box.messages[0].id != f.Message {
		return effects{}, fmt.Errorf(
			"history takes event %d from mailbox %q at event %d, which is not its oldest message", f.Message,
			f.Mailbox, id)
	}
	a := l.mail.take(box, id)
	l.calls.settle(id)
	return effects{answers: []coro.Answer{a}}, nil
}

// drop gives up what the code no longer waits for. Messages that were taken and not looked at go
// back to the front of their mailbox.
func (l *ledger) drop(f *events.Dropped) effects {
	var eff effects
	var touched []*mailbox
	for _, id := range f.Schedules {
		o := l.calls.open.Get(id)
		switch {
		case o == nil:
			if box := l.mail.putBack(id); box != nil {
				touched = append(touched, box)
			}
			continue // otherwise it was answered while the code was suspended
		case o.kind == openWait:
			l.calls.waits.remove(o.name, id)
		case o.kind == openRead:
			l.mail.box(mailboxOf(o.name)).unread(id)
		}
		l.calls.shut(id)
		eff.closed = append(eff.closed, closedOpen{id, o})
	}
	for _, n := range f.Steps {
		l.steps.close(n)
	}
	for _, box := range touched {
		eff.answers = append(eff.answers, l.handOut(box)...)
	}
	return eff
}

// end closes everything.
func (l *ledger) end(e events.Event) effects {
	l.outcome = outcomeOf(e)
	return effects{closed: l.calls.shutAll()}
}

// because describes an event with its reason, if it has one.
func because(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// current is the row as far as other instances need it.
func (l *ledger) current() Row {
	return Row{
		Execution: l.info.Execution, Incarnation: l.info.Incarnation, Parent: l.info.Parent,
		StartMessage: l.origin.message,
		Status:       l.standing(), Output: l.outcome.output, Error: l.outcome.err,
	}
}

// standing is the status that history tells.
func (l *ledger) standing() Status {
	switch l.outcome.kind {
	case events.KindCompleted:
		return Completed
	case events.KindFailed:
		return Failed
	case events.KindCancelled:
		return Cancelled
	case events.KindTerminated:
		return Terminated
	case events.KindContinuedAsNew:
		return ContinuedAsNew
	default:
	}
	switch {
	case l.halt != nil:
		return Halted
	case l.userSuspended:
		return Suspended
	}
	return Running
}
