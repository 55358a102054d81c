package events

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Message is something said to an instance, to a worker, or to the broker about an earlier message.
type Message struct {
	// ID is what makes it the same message when it comes again. The engine's own messages get
	// theirs from [MessageID]; others bring a Rondo-Id header, a CloudEvents id, or are given one
	// by the stream that stores them.
	ID string
	// Instance is the receiver.
	Instance string
	// Internal says that a service has sent it: a start, an event, a mailbox message or a control
	// message that comes from another instance, or from a schedule. Only then does it count what it
	// says of a parent, and may it have a [ReservedID].
	Internal bool
	// NotBefore delays it; zero means at once.
	NotBefore time.Time
	// Sent is when it was sent first, by the clock of its sender; zero means that nothing says so.
	// It stays the same however often the message is published again.
	Sent time.Time
	// Trace is the W3C traceparent it carries.
	Trace string
	// TraceState and Baggage are what goes with that, W3C too. The engine passes them on as they
	// are.
	TraceState, Baggage string
	// Content is what it says.
	Content Content
}

// Content is what a message says. The implementations are the pointer types of this package; there
// are no others.
type Content interface {
	// Verb is the first word of the subject: what sort of message it is.
	Verb() Verb
}

// Verb is the first word of a subject after the prefix.
type Verb string

// internal begins the verbs of what instances start, raise, send and control, and of what schedules
// start and end; clients may not publish under them:
//
//	rondo.internal_start.<orchestration>.<instance>
const internal = "internal_"

// The verbs. Those of one word are for clients to use; those of two words, and work, are between
// the services. See [Verb.Ahead].
const (
	VerbStart   Verb = "start"   // rondo.start.<orchestration>.<instance>
	VerbEvent   Verb = "event"   // rondo.event.<name>.<instance>
	VerbMailbox Verb = "mailbox" // rondo.mailbox.<mailbox>.<instance>
	VerbControl Verb = "control" // rondo.control.<how>.<instance>
	VerbWake    Verb = "wake"    // rondo.wake.<reason>.<instance>

	VerbBegun Verb = "task-begun"  // rondo.task-begun.<execution>-<event>.<instance>
	VerbDone  Verb = "task-done"   // rondo.task-done.<execution>-<event>.<instance>
	VerbFail  Verb = "task-failed" // rondo.task-failed.<execution>-<event>.<instance>
	VerbTimer Verb = "timer-due"   // rondo.timer-due.<execution>-<event>.<instance>
	VerbChild Verb = "child-ended" // rondo.child-ended.<execution>-<event>.<parent instance>

	VerbTask Verb = "task" // rondo.task.<tag>.<activity>.<execution>-<event>.<instance>

	// VerbStep never travels: an inline step's result comes back inside the orchestrator.
	VerbStep Verb = "step"
)

// Ahead reports whether messages with this verb go ahead of everything else that is said to
// instances, however much of that waits: what instances that run wait for does, which is the
// results of activities, timers, and the ends of children.
func (v Verb) Ahead() bool { return strings.Contains(string(v), "-") }

// fromClients reports whether clients may publish messages with this verb, and instances under
// another one.
func (v Verb) fromClients() bool {
	switch v {
	case VerbStart, VerbEvent, VerbMailbox, VerbControl:
		return true
	default:
	}
	return false
}

// Origin takes the first word of a subject apart: the verb, and whether only services may publish
// under it.
func Origin(word string) (verb Verb, internally bool) {
	if rest, ok := strings.CutPrefix(word, internal); ok && Verb(rest).fromClients() {
		return Verb(rest), true
	}
	verb = Verb(word)
	return verb, !verb.fromClients() && verb != VerbWake
}

// Ref points at an event of one execution of one incarnation of the instance that a message is for.
type Ref struct {
	Incarnation string
	Execution   int64
	Event       int64
}

// Place is the subject token for the event: <execution>-<event>.
func (r Ref) Place() string {
	return strconv.FormatInt(r.Execution, 10) + "-" + strconv.FormatInt(r.Event, 10)
}

// token is the subject token for the event of this incarnation only:
// <execution>-<event>-<incarnation>.
func (r Ref) token() string {
	if r.Incarnation == "" {
		return r.Place()
	}
	return r.Place() + "-" + EncodeToken(r.Incarnation)
}

// MessageID makes the id of a message of the engine from its meaning: its sender, incarnation and
// execution, and the event that caused it.
func MessageID(verb Verb, instance string, ref Ref) string {
	return string(verb) + "/" + ref.Place() + "/" + ref.Incarnation + "/" + EncodeToken(instance)
}

// ScheduleIDs begins the ids of the messages of schedules.
const ScheduleIDs = "schedule/"

// AttributeSchedule is the attribute of each run of a schedule. Its value is the id of the
// schedule.
const AttributeSchedule = "rondo.schedule"

// ReservedID reports whether an id has the form of those that services give to messages which
// clients may publish, too: those of schedules, of deletions, and of [MessageID]. A client could
// otherwise have a message of a service ignored as a duplicate of its own.
func ReservedID(id string) bool {
	if strings.HasPrefix(id, ScheduleIDs) || strings.HasPrefix(id, "delete/") {
		return true
	}
	verb, rest, _ := strings.Cut(id, "/")
	place, _, more := strings.Cut(rest, "/")
	if !more || !Verb(verb).fromClients() {
		return false
	}
	_, _, err := decodePlace(place)
	return err == nil
}

// checkOrigin refuses a message that is not of a service and has what only theirs have.
func checkOrigin(m Message) error {
	if m.Internal {
		return nil
	}
	if ReservedID(m.ID) {
		return fmt.Errorf("message id %q: ids of this form are reserved for the services; choose another id",
			cut(m.ID, 128))
	}
	start, ok := m.Content.(*Start)
	if !ok {
		return nil
	}
	if _, reserved := start.Attributes[AttributeSchedule]; reserved {
		return fmt.Errorf("attribute %q is reserved for the runs of schedules; choose another name", AttributeSchedule)
	}
	return nil
}

// PendingID is the id of the message that says that an activity is pending: a worker may have said
// before, in another message, that it has begun.
func PendingID(instance string, ref Ref) string {
	return MessageID(VerbBegun, instance, ref) + "/pending"
}

// ---- To an instance, from clients and services.

// StartConflict says what becomes of a start when the instance id is already in use.
type StartConflict string

// The choices.
const (
	KeepExisting    StartConflict = ""        // the start changes nothing
	RestartFinished StartConflict = "restart" // a finished instance is started afresh, a running one is kept
	// a running instance is terminated and started afresh, a finished one started afresh
	ReplaceRunning StartConflict = "replace"
	RejectExisting StartConflict = "reject" // the start changes nothing, nor do its messages
)

// Start begins an instance.
type Start struct {
	Orchestration string
	Version       string // empty: as the registry's policy says
	Input         codec.Payload
	Parent        *Parent
	Conflict      StartConflict
	Attributes    map[string]string
	// Messages are in the instance's mailbox before its code begins. If the start finds a running
	// instance of the same orchestration, they are for that one, unless Conflict says otherwise.
	Messages []StartMessage
	// IgnoreUnknown has fields of the input that the orchestration does not know ignored: the
	// sender may know a newer type. Otherwise the start fails.
	IgnoreUnknown bool
}

// StartMessage is a mailbox message that a start brings along.
type StartMessage struct {
	Mailbox string        `json:"mailbox"`
	Data    codec.Payload `json:"data,omitempty"`
}

// StartMessageID is the id of the n-th message that a start brings along, from 1. It is the same
// when the start comes again.
func StartMessageID(start string, n int) string { return start + "/with/" + strconv.Itoa(n) }

// EventRaised is for the code that waits for the name at that moment.
type EventRaised struct {
	Name string
	Data codec.Payload
	// RefuseUnknown has the code that waits refuse fields that it does not know, and missing data.
	RefuseUnknown bool
}

// MailboxMessage is put into the instance's mailbox.
type MailboxMessage struct {
	Mailbox string
	Data    codec.Payload
	// RefuseUnknown has the code that reads the mailbox when the message comes refuse fields that
	// it does not know, and missing data. Without such code, the message is kept.
	RefuseUnknown bool
}

// How an instance is steered.
type How string

// The ways.
const (
	Cancel    How = "cancel"
	Terminate How = "terminate"
	Suspend   How = "suspend"
	Resume    How = "resume"
)

// Control steers an instance.
type Control struct {
	How    How
	Reason string
	// Parent is set when a parent gives its child up: an instance that is not that child has
	// nothing to do with it.
	Parent *Parent
	// Incarnation is set when an orchestrator terminates an instance that it is about to delete:
	// that incarnation of it, and no other one. It counts only if the message is internal.
	Incarnation string
}

// Wake asks to look at an instance again: its timers may be due, its code may not have run yet.
type Wake struct {
	Reason string
}

// ---- To an instance, from the services.

// TaskBegun says that a worker took an activity up.
type TaskBegun struct {
	Ref    Ref
	Worker string
	// Pending says that the worker has finished, and that another program will complete it, by its
	// token.
	Pending bool
}

// TaskDone brings the result of an activity.
type TaskDone struct {
	Ref    Ref
	Result codec.Payload
	Worker string
}

// TaskFailed says why an activity has no result.
type TaskFailed struct {
	Ref       Ref
	Error     *failure.Error
	Heartbeat codec.Payload
	Worker    string
}

// StepDone brings the result or the error of one attempt of an inline step.
type StepDone struct {
	Incarnation string
	Execution   int64
	Step        int64
	Name        string
	Attempt     int
	Result      codec.Payload
	Error       *failure.Error
}

// TimerDue says that something of an instance is due: a timer, or the deadline of an activity.
type TimerDue struct {
	Ref Ref
	Due time.Time
}

// ChildDone brings the output of a child to its parent.
type ChildDone struct {
	Ref    Ref
	Output codec.Payload
}

// ChildError tells a parent why its child has no output.
type ChildError struct {
	Ref   Ref
	Error *failure.Error
}

// ---- To a worker.

// Work is one attempt of one activity.
type Task struct {
	Ref              Ref
	Orchestration    string
	Version          string
	Activity         string
	Input            codec.Payload
	Tag              string
	Session          string
	Attempt          int
	IdempotencyKey   string
	StartBy          time.Time
	Deadline         time.Time
	StartToClose     time.Duration
	HeartbeatTimeout time.Duration
	Heartbeat        codec.Payload
}

// ---- To the broker.

// WithdrawTask withdraws a Work that no instance waits for any more; a worker that has it already
// gets a notification.
type WithdrawTask struct {
	Ref      Ref
	Tag      string
	Activity string
}

// WithdrawTimer takes back a TimerDue.
type WithdrawTimer struct {
	Ref Ref
}

// Verb implements Content.
func (*Start) Verb() Verb          { return VerbStart }
func (*EventRaised) Verb() Verb    { return VerbEvent }
func (*MailboxMessage) Verb() Verb { return VerbMailbox }
func (*Control) Verb() Verb        { return VerbControl }
func (*Wake) Verb() Verb           { return VerbWake }
func (*TaskBegun) Verb() Verb      { return VerbBegun }
func (*TaskDone) Verb() Verb       { return VerbDone }
func (*TaskFailed) Verb() Verb     { return VerbFail }
func (*StepDone) Verb() Verb       { return VerbStep }
func (*TimerDue) Verb() Verb       { return VerbTimer }
func (*ChildDone) Verb() Verb      { return VerbChild }
func (*ChildError) Verb() Verb     { return VerbChild }
func (*Task) Verb() Verb           { return VerbTask }
func (*WithdrawTask) Verb() Verb   { return VerbTask }
func (*WithdrawTimer) Verb() Verb  { return VerbTimer }

// Restart is what a start said that restarts an instance which has ended.
type Restart struct {
	Name       string            `json:"name"`
	Version    string            `json:"version,omitempty"`
	Input      codec.Payload     `json:"input,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`

	IgnoreUnknown bool `json:"ignore_unknown,omitempty"` // see [Start]
}
