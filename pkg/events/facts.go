package events

import (
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Kind names a fact on the wire.
type Kind string

// The facts that come from outside.
const (
	KindStarted           Kind = "started"
	KindActivityBegun     Kind = "activity_begun"
	KindActivityCompleted Kind = "activity_completed"
	KindActivityFailed    Kind = "activity_failed"
	KindStepCompleted     Kind = "step_completed"
	KindStepFailed        Kind = "step_failed"
	KindTimerFired        Kind = "timer_fired"
	KindEventReceived     Kind = "event_received"
	KindMessageReceived   Kind = "message_received"
	KindChildCompleted    Kind = "child_completed"
	KindChildFailed       Kind = "child_failed"
	KindCancelRequested   Kind = "cancel_requested"
	KindSuspended         Kind = "suspended"
	KindResumed           Kind = "resumed"
	KindTerminated        Kind = "terminated"
)

// The facts that the orchestration's code says.
const (
	KindActivityScheduled Kind = "activity_scheduled"
	KindTimerCreated      Kind = "timer_created"
	KindEventAwaited      Kind = "event_awaited"
	KindMailboxRead       Kind = "mailbox_read"
	KindChildStarted      Kind = "child_started"
	KindLaunched          Kind = "launched"
	KindSent              Kind = "sent"
	KindDropped           Kind = "dropped"
	KindStatusSet         Kind = "status_set"
	KindValueSet          Kind = "value_set"
	KindValuesCleared     Kind = "values_cleared"
	KindPatched           Kind = "patched"
	KindCallRefused       Kind = "call_refused"
	KindCompleted         Kind = "completed"
	KindFailed            Kind = "failed"
	KindCancelled         Kind = "cancelled"
	KindContinuedAsNew    Kind = "continued_as_new"
)

// factKinds lists every kind once; [newFact] and the golden tests walk it.
var factKinds = []func() Fact{
	func() Fact { return new(Started) },
	func() Fact { return new(ActivityBegun) },
	func() Fact { return new(ActivityCompleted) },
	func() Fact { return new(ActivityFailed) },
	func() Fact { return new(StepCompleted) },
	func() Fact { return new(StepFailed) },
	func() Fact { return new(TimerFired) },
	func() Fact { return new(EventReceived) },
	func() Fact { return new(MessageReceived) },
	func() Fact { return new(ChildCompleted) },
	func() Fact { return new(ChildFailed) },
	func() Fact { return new(CancelRequested) },
	func() Fact { return new(Suspended) },
	func() Fact { return new(Resumed) },
	func() Fact { return new(Terminated) },
	func() Fact { return new(ActivityScheduled) },
	func() Fact { return new(TimerCreated) },
	func() Fact { return new(EventAwaited) },
	func() Fact { return new(MailboxRead) },
	func() Fact { return new(ChildStarted) },
	func() Fact { return new(Launched) },
	func() Fact { return new(Sent) },
	func() Fact { return new(Dropped) },
	func() Fact { return new(StatusSet) },
	func() Fact { return new(ValueSet) },
	func() Fact { return new(ValuesCleared) },
	func() Fact { return new(Patched) },
	func() Fact { return new(CallRefused) },
	func() Fact { return new(Completed) },
	func() Fact { return new(Failed) },
	func() Fact { return new(Cancelled) },
	func() Fact { return new(ContinuedAsNew) },
}

var factByKind = func() map[Kind]func() Fact {
	m := make(map[Kind]func() Fact, len(factKinds))
	for _, f := range factKinds {
		m[f().Kind()] = f
	}
	return m
}()

// Kinds lists every kind of fact.
func Kinds() []Kind {
	kinds := make([]Kind, len(factKinds))
	for i, f := range factKinds {
		kinds[i] = f().Kind()
	}
	return kinds
}

func newFact(k Kind) (Fact, bool) {
	f, ok := factByKind[k]
	if !ok {
		return nil, false
	}
	return f(), true
}

// FromOutside reports whether a message or the time brought a fact, not the orchestration's code.
func FromOutside(f Fact) bool {
	switch f.(type) {
	case *Started, *ActivityBegun, *ActivityCompleted, *ActivityFailed, *StepCompleted, *StepFailed, *TimerFired,
		*EventReceived, *MessageReceived, *ChildCompleted, *ChildFailed, *CancelRequested, *Suspended, *Resumed,
		*Terminated:
		return true
	case *ActivityScheduled, *TimerCreated, *EventAwaited, *MailboxRead, *ChildStarted, *Launched, *Sent, *Dropped,
		*StatusSet, *ValueSet, *ValuesCleared, *Patched, *CallRefused, *Completed, *Failed, *Cancelled, *ContinuedAsNew:
	}
	return false
}

// Ends reports whether a fact ends its execution.
func Ends(f Fact) bool {
	switch f.(type) {
	case *Completed, *Failed, *Cancelled, *Terminated, *ContinuedAsNew:
		return true
	default:
	}
	return false
}

// ---- An execution begins and ends.

// Started is event 1 of every execution. The Carried events after it are the custom status, the
// values and the unread messages that it inherits. The code first runs after all of them.
type Started struct {
	Name    string        `json:"name"`
	Version string        `json:"version"`
	Input   codec.Payload `json:"input,omitempty"`
	// Incarnation tells this instance from an earlier or later one with the same id. It stays the
	// same when the instance continues as new.
	Incarnation string `json:"incarnation"`
	// Engine is the version of the engine that started the execution.
	Engine int `json:"engine"`
	// Message is the id of the message that started it, Age when it was sent (see [AgeOf]).
	Message string `json:"message,omitempty"`
	Age     int64  `json:"age,omitempty"`
	// Parent is the instance that waits for the outcome; nil if there is none.
	Parent     *Parent           `json:"parent,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Trace is the W3C traceparent of the starter. Without one, it names the execution's own span.
	Trace string `json:"trace,omitempty"`
	// TraceState and Baggage came with it.
	TraceState string `json:"trace_state,omitempty"`
	Baggage    string `json:"baggage,omitempty"`
	// Follows is the traceparent of the execution that this one continues.
	Follows string `json:"follows,omitempty"`
	// Previous is the execution this one continues, 0 for the first. Begun is when the first one
	// was started.
	Previous int64     `json:"previous,omitempty"`
	Begun    time.Time `json:"begun,omitzero"`
	// Carried is the number of events after this one that were inherited.
	Carried int `json:"carried,omitempty"`
	// Seen are short hashes of the messages taken in by earlier executions, newest last, so that
	// one delivered again across a continue-as-new is still known.
	Seen []uint64 `json:"seen,omitempty"`
	// SeenAges tell, in the same order, when those messages were sent (see [AgeOf]).
	SeenAges []int64 `json:"seen_ages,omitempty"`
	// Forgotten is the newest time at which a message was sent that an earlier execution took in
	// and that is no longer in Seen. Whether a message sent before it was taken in, only the
	// histories of earlier executions can tell.
	Forgotten time.Time `json:"forgotten,omitzero"`
}

// Parent says which event of which instance waits for a child's outcome.
type Parent struct {
	Instance    string `json:"instance"`
	Incarnation string `json:"incarnation"`
	Execution   int64  `json:"execution"`
	Event       int64  `json:"event"`
}

// Completed ends an execution with its result.
type Completed struct {
	Output codec.Payload `json:"output,omitempty"`
}

// Failed ends an execution with an error.
type Failed struct {
	Error *failure.Error `json:"error"`
}

// Cancelled ends an execution that was asked to stop, after its code had its chance to clean up.
type Cancelled struct {
	Reason string `json:"reason,omitempty"`
	// Output is what the code returned, if it returned something.
	Output codec.Payload `json:"output,omitempty"`
	// Error is the error the code returned, if it says more than that it was cancelled.
	Error *failure.Error `json:"error,omitempty"`
}

// Terminated ends an execution from outside, without asking its code.
type Terminated struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Age     int64  `json:"age,omitempty"`
	// Deletion means that the instance is about to be deleted, so that the starts whose messages it
	// has not read do not start it again.
	Deletion bool `json:"deletion,omitempty"`
}

// ContinuedAsNew ends an execution; the next one starts with fresh history.
type ContinuedAsNew struct {
	Name    string        `json:"name"`
	Version string        `json:"version"`
	Input   codec.Payload `json:"input,omitempty"`
}

// ---- It is steered from outside.

// CancelRequested asks the code to stop: its waits end, and it may clean up.
type CancelRequested struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Age     int64  `json:"age,omitempty"`
}

// Suspended halts the code; what arrives is taken in and waits.
type Suspended struct {
	Reason string `json:"reason,omitempty"`
	// Error is set when the engine itself halted the code, because it no longer fits its history.
	// Such a halt ends by itself as soon as code is deployed that fits.
	Error   *failure.Error `json:"error,omitempty"`
	Message string         `json:"message,omitempty"`
	Age     int64          `json:"age,omitempty"`
}

// Resumed lets the code go on with what arrived meanwhile.
type Resumed struct {
	Reason string `json:"reason,omitempty"`
	// Healed means that the engine lifts its own halt; otherwise a client resumes the instance.
	Healed  bool   `json:"healed,omitempty"`
	Message string `json:"message,omitempty"`
	Age     int64  `json:"age,omitempty"`
}

// ---- Activities: work done by workers.

// ActivityScheduled is one attempt of one activity. A retry is a new one that names the first.
type ActivityScheduled struct {
	Name    string        `json:"name"`
	Input   codec.Payload `json:"input,omitempty"`
	Tag     string        `json:"tag,omitempty"`
	Session string        `json:"session,omitempty"`
	// Attempt counts from 1; First is the event of attempt 1, 0 when this is it.
	Attempt int   `json:"attempt"`
	First   int64 `json:"first,omitempty"`
	// NotBefore delays a retry.
	NotBefore time.Time `json:"not_before,omitzero"`
	// StartBy is when it must have begun, Deadline when the step as a whole must be over.
	StartBy  time.Time `json:"start_by,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// StartToClose bounds one execution, HeartbeatTimeout the silence between two heartbeats.
	StartToClose     Duration `json:"start_to_close,omitempty"`
	HeartbeatTimeout Duration `json:"heartbeat_timeout,omitempty"`
	// Heartbeat is the last progress the attempt before reported.
	Heartbeat codec.Payload `json:"heartbeat,omitempty"`
	Retry     *RetryPolicy  `json:"retry,omitempty"`
}

// ActivityBegun says that a worker took the activity up. It is only reported when StartBy is set,
// or when the activity is Pending.
type ActivityBegun struct {
	Schedule int64  `json:"schedule"`
	Worker   string `json:"worker,omitempty"`
	// Pending means that the worker has finished, and that another program will complete it, by its
	// token (see [Token]).
	Pending bool `json:"pending,omitempty"`
}

// ActivityCompleted answers an ActivityScheduled with its result.
type ActivityCompleted struct {
	Schedule int64         `json:"schedule"`
	Result   codec.Payload `json:"result,omitempty"`
	Worker   string        `json:"worker,omitempty"`
}

// ActivityFailed answers an ActivityScheduled with an error.
type ActivityFailed struct {
	Schedule  int64          `json:"schedule"`
	Error     *failure.Error `json:"error"`
	Heartbeat codec.Payload  `json:"heartbeat,omitempty"`
	Worker    string         `json:"worker,omitempty"`
}

// ---- Inline steps: side effects run by the orchestrator itself. Starting one leaves no event;
// Step counts the steps that the code has started, from 1.

// StepCompleted is the result of an inline step.
type StepCompleted struct {
	Step   int64         `json:"step"`
	Name   string        `json:"name"`
	Result codec.Payload `json:"result,omitempty"`
}

// StepFailed is one failed attempt of an inline step.
type StepFailed struct {
	Step    int64          `json:"step"`
	Name    string         `json:"name"`
	Attempt int            `json:"attempt"`
	Error   *failure.Error `json:"error"`
}

// ---- Timers.

// TimerCreated opens a timer.
type TimerCreated struct {
	FireAt time.Time `json:"fire_at"`
}

// TimerFired answers a TimerCreated.
type TimerFired struct {
	Timer int64 `json:"timer"`
}

// ---- Named events and mailboxes.

// EventAwaited opens a wait for the next event of a name. Kept is the EventReceived that it takes,
// which came before; 0 means there was none, and the next event to arrive answers it.
type EventAwaited struct {
	Name string `json:"name"`
	Kept int64  `json:"kept,omitempty"`
	// Again is the wait that this one goes on with, because the event that it got is not of the
	// type that the code waits for.
	Again int64 `json:"again,omitempty"`
}

// EventReceived answers an EventAwaited, or, with Wait 0, keeps an event for which the instance
// does not wait yet.
type EventReceived struct {
	Wait    int64         `json:"wait,omitempty"`
	Name    string        `json:"name"`
	Data    codec.Payload `json:"data,omitempty"`
	Message string        `json:"message,omitempty"`
	Age     int64         `json:"age,omitempty"`
	// Keep is set if the orchestration keeps early events of the name: then the event is kept until
	// the code has looked at it.
	Keep bool `json:"keep,omitempty"`
	// Instead is the kept event that this one replaces, because there is no room for both.
	Instead int64 `json:"instead,omitempty"`
}

// MessageReceived puts a message into one of the instance's mailboxes.
type MessageReceived struct {
	Mailbox string        `json:"mailbox"`
	Data    codec.Payload `json:"data,omitempty"`
	Message string        `json:"message,omitempty"`
	Age     int64         `json:"age,omitempty"`
	// Restart is set when the message came with a start that restarts an instance that has ended,
	// and met a running one: if the execution ends before its code has looked at the message, that
	// start is sent once more.
	Restart *Restart `json:"restart,omitempty"`
}

// MailboxRead takes the oldest message of a mailbox. Message is the MessageReceived it took; 0
// means the mailbox was empty, and the next message to arrive answers it.
type MailboxRead struct {
	Mailbox string `json:"mailbox"`
	Message int64  `json:"message,omitempty"`
	// Again is the read that this one goes on with, because the message that it took is not of the
	// type that the code reads.
	Again int64 `json:"again,omitempty"`
}

// Dropped says that the code no longer waits for some of what it started: the losers of a select,
// what a cancelled or finished scope left behind. Schedules are events of this execution, Steps are
// numbers of inline steps.
type Dropped struct {
	Schedules []int64 `json:"schedules,omitempty"`
	Steps     []int64 `json:"steps,omitempty"`
}

// ---- What the instance shows and keeps.

// StatusSet replaces the custom status; without a value it removes it.
type StatusSet struct {
	Status codec.Payload `json:"status,omitempty"`
	// Version counts the changes over the whole incarnation of the instance.
	Version int64 `json:"version"`
}

// ValueSet sets one value. Set is when it was last set, which differs from the event's time when it
// was inherited.
type ValueSet struct {
	Key   string        `json:"key"`
	Value codec.Payload `json:"value,omitempty"`
	Set   time.Time     `json:"set"`
}

// ValuesCleared removes values.
type ValuesCleared struct {
	Keys []string `json:"keys"`
}

// Patched marks that the code took the new path at a change of the code.
type Patched struct {
	ID string `json:"id"`
}

// CallRefused says that a call of the code was refused because of a limit: it did nothing but to
// give the error. It stands in history so that a replay gives the same error, also when the limit
// is another one by then.
type CallRefused struct {
	// Call is the kind of the event that there would be otherwise, and Name what it is about.
	Call  Kind           `json:"call"`
	Name  string         `json:"name,omitempty"`
	Error *failure.Error `json:"error"`
}

// Kind implements Fact.
func (*Started) Kind() Kind           { return KindStarted }
func (*Completed) Kind() Kind         { return KindCompleted }
func (*Failed) Kind() Kind            { return KindFailed }
func (*Cancelled) Kind() Kind         { return KindCancelled }
func (*Terminated) Kind() Kind        { return KindTerminated }
func (*ContinuedAsNew) Kind() Kind    { return KindContinuedAsNew }
func (*CancelRequested) Kind() Kind   { return KindCancelRequested }
func (*Suspended) Kind() Kind         { return KindSuspended }
func (*Resumed) Kind() Kind           { return KindResumed }
func (*ActivityScheduled) Kind() Kind { return KindActivityScheduled }
func (*ActivityBegun) Kind() Kind     { return KindActivityBegun }
func (*ActivityCompleted) Kind() Kind { return KindActivityCompleted }
func (*ActivityFailed) Kind() Kind    { return KindActivityFailed }
func (*StepCompleted) Kind() Kind     { return KindStepCompleted }
func (*StepFailed) Kind() Kind        { return KindStepFailed }
func (*TimerCreated) Kind() Kind      { return KindTimerCreated }
func (*TimerFired) Kind() Kind        { return KindTimerFired }
func (*EventAwaited) Kind() Kind      { return KindEventAwaited }
func (*EventReceived) Kind() Kind     { return KindEventReceived }
func (*MessageReceived) Kind() Kind   { return KindMessageReceived }
func (*MailboxRead) Kind() Kind       { return KindMailboxRead }
func (*ChildStarted) Kind() Kind      { return KindChildStarted }
func (*ChildCompleted) Kind() Kind    { return KindChildCompleted }
func (*ChildFailed) Kind() Kind       { return KindChildFailed }
func (*Launched) Kind() Kind          { return KindLaunched }
func (*Sent) Kind() Kind              { return KindSent }
func (*Dropped) Kind() Kind           { return KindDropped }
func (*StatusSet) Kind() Kind         { return KindStatusSet }
func (*ValueSet) Kind() Kind          { return KindValueSet }
func (*ValuesCleared) Kind() Kind     { return KindValuesCleared }
func (*Patched) Kind() Kind           { return KindPatched }
func (*CallRefused) Kind() Kind       { return KindCallRefused }

// Size implements Fact.
func (f *Started) Size() int {
	return len(f.Input) + len(f.Baggage) + 8*len(f.Seen) + 4*len(f.SeenAges)
}
func (f *Completed) Size() int         { return len(f.Output) }
func (f *Failed) Size() int            { return sizeOf(f.Error) }
func (f *Cancelled) Size() int         { return len(f.Output) + sizeOf(f.Error) }
func (f *Terminated) Size() int        { return len(f.Reason) }
func (f *ContinuedAsNew) Size() int    { return len(f.Input) }
func (f *CancelRequested) Size() int   { return len(f.Reason) }
func (f *Suspended) Size() int         { return len(f.Reason) + sizeOf(f.Error) }
func (f *Resumed) Size() int           { return len(f.Reason) }
func (f *ActivityScheduled) Size() int { return len(f.Input) + len(f.Heartbeat) }
func (f *ActivityBegun) Size() int     { return 0 }
func (f *ActivityCompleted) Size() int { return len(f.Result) }
func (f *ActivityFailed) Size() int    { return sizeOf(f.Error) + len(f.Heartbeat) }
func (f *StepCompleted) Size() int     { return len(f.Result) }
func (f *StepFailed) Size() int        { return sizeOf(f.Error) }
func (f *TimerCreated) Size() int      { return 0 }
func (f *TimerFired) Size() int        { return 0 }
func (f *EventAwaited) Size() int      { return 0 }
func (f *EventReceived) Size() int     { return len(f.Data) }
func (f *MessageReceived) Size() int   { return len(f.Data) + f.Restart.size() }
func (f *MailboxRead) Size() int       { return 0 }
func (f *ChildCompleted) Size() int    { return len(f.Output) }
func (f *ChildFailed) Size() int       { return sizeOf(f.Error) }
func (f *Sent) Size() int              { return len(f.Data) }
func (f *Dropped) Size() int           { return 8 * (len(f.Schedules) + len(f.Steps)) }
func (f *StatusSet) Size() int         { return len(f.Status) }
func (f *ValueSet) Size() int          { return len(f.Key) + len(f.Value) }
func (f *ValuesCleared) Size() int     { return 16 * len(f.Keys) }
func (f *Patched) Size() int           { return len(f.ID) }
func (f *CallRefused) Size() int       { return len(f.Name) + sizeOf(f.Error) }

func (r *Restart) size() int {
	if r == nil {
		return 0
	}
	return len(r.Input)
}

// The checks say what a fact must have to mean anything. They guard the decoder, not the engine.

func (f *Started) check() error {
	switch {
	case f.Name == "":
		return errors.New("no orchestration name")
	case f.Version == "":
		return errors.New("no version")
	case f.Incarnation == "":
		return errors.New("no incarnation")
	case f.Engine < 1:
		return fmt.Errorf("engine %d", f.Engine)
	case f.Carried < 0:
		return fmt.Errorf("%d carried events", f.Carried)
	case len(f.SeenAges) > 0 && len(f.SeenAges) != len(f.Seen):
		return fmt.Errorf("%d ages of %d messages", len(f.SeenAges), len(f.Seen))
	case f.Previous < 0:
		return fmt.Errorf("previous execution %d", f.Previous)
	case f.Parent != nil:
		return f.Parent.check()
	}
	return nil
}

func (p *Parent) check() error {
	if p.Instance == "" || p.Incarnation == "" || p.Execution < 1 || p.Event < 1 {
		return errors.New("incomplete parent")
	}
	return nil
}

func (f *Completed) check() error       { return nil }
func (f *Failed) check() error          { return checkError(f.Error) }
func (f *Cancelled) check() error       { return checkOptional(f.Error) }
func (f *Terminated) check() error      { return nil }
func (f *ContinuedAsNew) check() error  { return needName(f.Name) }
func (f *CancelRequested) check() error { return nil }
func (f *Suspended) check() error       { return checkOptional(f.Error) }
func (f *Resumed) check() error         { return nil }

func (f *ActivityScheduled) check() error {
	if f.Attempt < 1 || f.First < 0 {
		return fmt.Errorf("attempt %d, first attempt at event %d", f.Attempt, f.First)
	}
	if f.Retry != nil {
		return errors.Join(needName(f.Name), f.Retry.Check())
	}
	return needName(f.Name)
}

func (f *ActivityBegun) check() error     { return needSchedule(f.Schedule) }
func (f *ActivityCompleted) check() error { return needSchedule(f.Schedule) }
func (f *ActivityFailed) check() error {
	return errors.Join(needSchedule(f.Schedule), checkError(f.Error))
}
func (f *StepCompleted) check() error { return needSchedule(f.Step) }
func (f *StepFailed) check() error    { return errors.Join(needSchedule(f.Step), checkError(f.Error)) }

func (f *TimerCreated) check() error {
	if f.FireAt.IsZero() {
		return errors.New("no time to fire at")
	}
	return nil
}

func (f *TimerFired) check() error   { return needSchedule(f.Timer) }
func (f *EventAwaited) check() error { return needName(f.Name) }
func (f *EventReceived) check() error {
	if f.Keep && f.Wait == 0 {
		return needName(f.Name)
	}
	return errors.Join(needSchedule(f.Wait), needName(f.Name))
}
func (f *MessageReceived) check() error {
	return errors.Join(needName(f.Mailbox), f.Restart.check())
}
func (f *MailboxRead) check() error    { return needName(f.Mailbox) }
func (f *ChildCompleted) check() error { return needSchedule(f.Schedule) }
func (f *ChildFailed) check() error {
	return errors.Join(needSchedule(f.Schedule), checkError(f.Error))
}

func (r *Restart) check() error {
	if r == nil {
		return nil
	}
	return needName(r.Name)
}

func (f *Dropped) check() error {
	if len(f.Schedules)+len(f.Steps) == 0 {
		return errors.New("nothing dropped")
	}
	return nil
}

func (f *StatusSet) check() error {
	if f.Version < 1 {
		return fmt.Errorf("status version %d", f.Version)
	}
	return nil
}

func (f *ValueSet) check() error {
	if f.Set.IsZero() {
		return errors.New("no time")
	}
	return needName(f.Key)
}

func (f *ValuesCleared) check() error {
	if len(f.Keys) == 0 {
		return errors.New("nothing cleared")
	}
	return nil
}

func (f *Patched) check() error { return needName(f.ID) }

func (f *CallRefused) check() error {
	if f.Error == nil {
		return errors.New("no error")
	}
	return needName(string(f.Call))
}

func needName(s string) error {
	if s == "" {
		return errors.New("no name")
	}
	return nil
}

func needSchedule(id int64) error {
	if id < 1 {
		return fmt.Errorf("answers event %d", id)
	}
	return nil
}
