// Package round decides. It takes the state of an instance, its messages and the time, and gives
// one value, the [Turn], with all effects. It is pure: no I/O, no clock, no randomness, no logging,
// no goroutines that outlive a call; the same inputs give the same turn, to the byte, on every
// replica.
//
// # The protocol
//
//	known, inbox, now ──► Instance.Decide ──► Turn
//
//	 1. commit the turn in one transaction: Executions, Row, Values, Messages (as outbox entries)
//	 2. publish Messages
//	 3. settle the deliveries as Receipts say: Accepted ones only after the commit
//	 4. run Steps; their results come back as messages
//	 5. write Logs; if Again is set, decide again at once; if Evict is set, forget the instance
//
// History is the authority. If the commit fails or its end is unknown, the instance must be
// forgotten ([Instance.Evict]) and loaded again: what it decided did not happen, or happened and
// will be read back.
//
// # Hydrated and cold
//
// An [Instance] keeps running between rounds: its coroutines are parked at their waits, so a round
// costs the new events, not the old ones. A cold instance, loaded from history, replays it first.
// Both give the same turn. What makes that possible is the order in which history is written: every
// fact from outside is followed by all that the code said because of it (see package events).
//
// # What becomes of a message
//
//	it changes history                        Accepted   acknowledge after the commit
//	it changes nothing, now or ever           Ignored    acknowledge at once (but see Turn.Expected)
//	it cannot be taken yet                    Returned   nack, with a delay
//	it can be taken in the next round         Again      present it again, do not nack it (answer
//	                                                     Turn.Question first)
//	it can never be taken and must be kept    Dead       dead-letter it with the reason
//
// # What happens when things go wrong
//
//	the code does not fit its history   the instance is halted, takes in messages, and goes on once code is
//	                                    deployed that fits
//	                                    (or fails, if Config.FailNondeterminism says so)
//	the code panics or runs away        the instance fails, with the stack
//	the code is not registered here     its messages are returned, for a replica that does
//	history cannot be read              messages are returned; after too many attempts a failure is appended,
//	                                    nothing else touched
//	a message was tried too often       the instance fails, its parent is told, the message is dead-lettered
package round

import (
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Code finds the code of orchestrations. It may be called concurrently, and must give the same code
// for the same name and version until the process ends.
type Code interface {
	// Source gives the code of a name and version to the engine.
	coro.Source
	// Has reports whether there is code of a name and version.
	Has(name, version string) bool
	// Resolve picks the version for a new execution that does not ask for one.
	Resolve(name string) (version string, ok bool)
	// Names and Versions list the registered code, for error messages.
	Names() []string
	Versions(name string) []string
}

// Inputs is a Code that knows the types of the inputs.
type Inputs interface {
	// CheckInput tells why a version cannot be started with an input. Strict is for senders that
	// may have mistyped it: then it refuses unknown fields, too.
	CheckInput(name, version string, codec codec.Codec, input codec.Payload, strict bool) *failure.Error
}

// Keepers is a Code that knows which early events orchestrations keep.
type Keepers interface {
	// Keeps tells how many events of a name the instances of a version keep that come before they
	// wait for them; 0: none. Beyond that they refuse events, or, with latest, drop the oldest one.
	Keeps(name, version, event string) (most int, latest bool)
	// CheckKept tells why data is not of the type of an event that a version keeps. Strict is for
	// senders that may have mistyped it: then it refuses unknown fields and missing data, too.
	CheckKept(name, version, event string, codec codec.Codec, data codec.Payload, strict bool) error
}

// Config says what rounds need to know besides the instance.
type Config struct {
	Code  Code
	Codec codec.Codec // nil: JSON

	// MaxAttempts is how often a message may be tried before it is poison; 0 means 10.
	MaxAttempts int
	// FailNondeterminism fails an instance whose code does not fit its history, instead of halting
	// it.
	FailNondeterminism bool
	// FailUnregistered is the time after which a start without registered code fails; 0: never.
	FailUnregistered time.Duration
	// UnknownFor is how long a mailbox message waits for its instance to be started; 0 means a
	// minute.
	UnknownFor time.Duration
	// Patience is the longest silence of outstanding tasks before an orchestrator checks them; 0
	// means a minute.
	Patience time.Duration
	// StepPatience is the same for inline steps, which only this process knows; 0 means ten
	// seconds.
	StepPatience time.Duration
	// NewTrace decides whether a trace that begins here is sampled. Nil: executions without a trace
	// have none.
	NewTrace func(id [16]byte, orchestration string) (sampled bool) `json:"-"`
	// ReportOver has turns report ended calls even if the trace is not sampled, for metrics.
	ReportOver bool
	// ShowPayloads has warnings tell the data that they are about, and not only its size and hash.
	ShowPayloads bool
	// Remembered is how many messages of former executions an execution knows; 0 means
	// [events.MaxSeen]. Other values are for tests.
	Remembered int
	// HaltedFor is how often a halted instance is tried again; 0 means five minutes.
	HaltedFor time.Duration
	// Coroutines are kept for the code of instances, so that it need not begin with a new one each
	// time; nil: none are. Their maker ends them.
	Coroutines *Coroutines `json:"-"`
	// CheckGoroutines has each call of the code panic that comes from a goroutine of its own. It is
	// for tests and development: each check takes microseconds.
	CheckGoroutines bool
}

// Coroutines are some that have nothing to do just now. The zero value is good.
type Coroutines = coro.Coroutines

// Known is what the store knows of an instance. The zero value with an id stands for one that does
// not exist.
type Known struct {
	Instance string
	// Row is the instance's row as the last turn wrote it.
	Row Row
	// History is the current execution's, read together with the row. It may be left out for an
	// instance that has ended; a message that it took and that comes again is then not known to be
	// the same.
	History []events.Event
	// Own is the first event of History that was recorded with the code that now replays it. The
	// same code gives the same data, so from there other data halts the instance, as another call
	// does. Zero: the code may have changed since, so other data is a warning.
	Own int64
	// Unreadable says why the history could not be read.
	Unreadable error
}

// Delivery is a message that came.
type Delivery struct {
	Message events.Message
	// Attempts counts how often it was tried, this time included. Giving it back on purpose does
	// not count.
	Attempts int
	// NumDelivered counts how often it came at all, for delays that grow.
	NumDelivered int
	// Age is how long ago it was first published.
	Age time.Duration
	// Sent is when it counts as sent (see [SentAt]); zero means now.
	Sent time.Time
	// Moment is its place in time among the timers of the instance: when the broker stored it, or
	// the time that it was delayed to. Zero stands for that of the delivery before it.
	Moment time.Time
}

// Turn is what a round decided. Everything in it is in the order in which it must happen.
type Turn struct {
	Instance string
	// Executions are the events to append, most often of one execution; of two or more when the
	// code continued as new.
	Executions []Execution
	// Row replaces the instance's row; only meant when Executions is not empty.
	Row Row
	// Former are the last rows of the executions that this turn leaves behind, oldest first: those
	// it continued as new, and the one it begins anew after.
	Former []Row
	// ClearValues removes all values before Values is applied: the id begins a new incarnation.
	ClearValues bool
	// Values are the changes to the instance's values, at most one for each key.
	Values []ValueChange
	// Messages are to be published after the commit.
	Messages []events.Message
	// Steps are inline steps to run after the commit; DroppedSteps are no longer wanted.
	Steps        []Step
	DroppedSteps []StepRef
	// Receipts say what becomes of each delivery, in the order of the inbox.
	Receipts []Receipt
	// Logs are what the code logged; LogsDropped counts those over the limit.
	Logs        []Log
	LogsDropped int
	// Told is what the code tells about itself: its own spans, and numbers.
	Emitted []Emitted
	// Over is the ended calls and executions, if the trace of the execution is sampled, or
	// [Config.ReportOver] is set.
	Over []Over
	// Warnings are for the operator: nothing failed, but something is unusual.
	Warnings []string
	// Near names the limits of which this turn has used four fifths, for metrics; Warnings say it
	// for the operator.
	Near []string
	// Fault is why the engine halted or failed the instance in this turn.
	Fault *failure.Error
	// Again asks for another round at once, with the deliveries that were receipted Again.
	Again bool
	// Question must be answered before the next round, which takes the deliveries that were
	// receipted Again: whether they were taken in before, the current execution does not know. See
	// [Former] and [Instance.Remember].
	Question *Question
	// Awaits is when the latest of those timers and time limits is due that wait until the
	// watermark has risen to it, with the deliveries that were receipted Again: see
	// [Instance.SetWatermark]. Zero: none does.
	Awaits time.Time
	// Evict asks to forget the instance after the commit: it has ended, or could not be run here.
	Evict bool
	// Replayed counts the events that were replayed to get here.
	Replayed int
	// Expected is the version that the turn was decided on: the store commits the turn only if the
	// row still has that version. A turn that appends nothing is not committed, so if the instance
	// was not loaded for this very round, another process may have committed a later turn, and a
	// message that is Ignored here may matter there. Compare Expected with the stored row before
	// acknowledging.
	Expected RowVersion
}

// Log is a record that the code has logged, and the execution it was in.
type Log struct {
	Record    slog.Record
	Execution int64
}

// RowVersion is the version of an instance's row: the end of its history. The zero value stands for
// an instance that does not exist.
type RowVersion struct {
	Incarnation          string
	Execution, LastEvent int64
	// CustomStatusVersion tells whether the turn has changed the custom status.
	CustomStatusVersion int64
}

// Execution is what a turn appends to one execution's history.
type Execution struct {
	ID     int64
	Events []events.Event
}

// Row describes an instance without its history.
type Row struct {
	Execution     int64
	Incarnation   string
	Engine        int // the engine version the execution is pinned to
	Name, Version string
	Parent        *events.Parent
	Attributes    map[string]string
	Trace         string
	StartMessage  string

	Status Status
	Output codec.Payload
	Error  *failure.Error

	CustomStatus        codec.Payload
	CustomStatusVersion int64

	StartedAt time.Time // this execution
	UpdatedAt time.Time
	EndedAt   time.Time

	// Fresh says that the code of the execution has not run yet, which history alone cannot tell.
	Fresh bool

	LastEvent    int64
	HistoryBytes int64
	Unread       int

	// WakeAt is when an orchestrator must look at it again; zero if only a message can change
	// anything.
	WakeAt time.Time
}

// Status is how an instance stands.
type Status string

// The statuses.
const (
	Running    Status = "running"
	Suspended  Status = "suspended" // a client asked for it
	Halted     Status = "halted"    // the code does not fit its history
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
	Terminated Status = "terminated"

	// ContinuedAsNew is how an execution ends that has a successor; an instance never stands so.
	ContinuedAsNew Status = "continued_as_new"
)

// Statuses lists how an instance can stand.
func Statuses() []Status {
	return []Status{Running, Suspended, Halted, Completed, Failed, Cancelled, Terminated}
}

// Ended reports whether the instance will do nothing more.
func (s Status) Ended() bool {
	switch s {
	case Completed, Failed, Cancelled, Terminated, ContinuedAsNew:
		return true
	case Running, Suspended, Halted:
		return false
	}
	return false
}

// ValueChange sets or removes one value.
type ValueChange struct {
	Key   string
	Value codec.Payload
	// Execution is the one that set it, Set when.
	Execution int64
	Set       time.Time
	Removed   bool
}

// Told is something that the code of an execution tells about itself.
type Emitted struct {
	coro.Emitted
	Incarnation string
	Execution   int64
}

// Step is an inline step to run.
type Step struct {
	StepRef
	coro.Step
	// Trace is the place of its execution in a trace; TraceState and Baggage came with that.
	Trace, TraceState, Baggage string
	// Repeated says that it was handed out before, by an instance that is gone.
	Repeated bool
}

// StepRef names an inline step.
type StepRef struct {
	Incarnation string
	Execution   int64
	Number      int64
}

// Done makes the message that brings a step's result back.
func (s Step) Done(instance string, result codec.Payload, err *failure.Error) events.Message {
	return events.Message{Instance: instance, Content: &events.StepDone{
		Incarnation: s.StepRef.Incarnation, Execution: s.Execution, Step: s.StepRef.Number, Name: s.Name,
		Attempt: s.Attempt,
		Result:  result, Error: err,
	}}
}

// Receipt says what becomes of a delivery. Giving a delivery back is no attempt to process it, with
// one exception: when the history cannot be read ([CannotRead]) it is, so that it ends some time.
type Receipt struct {
	Verdict Verdict
	// After delays a Returned delivery.
	After  time.Duration
	Reason Reason
	Detail string
}

// Verdict is what to do with a delivery.
type Verdict uint8

// The verdicts.
const (
	Accepted Verdict = iota + 1 // acknowledge after the commit
	Ignored                     // acknowledge at once
	Returned                    // nack, with a delay
	Again                       // present again in the next round
	Dead                        // dead-lettered with the reason
)

// Reason is why, in a word that metrics can count.
type Reason string

// The reasons.
const (
	Taken            Reason = "taken"             // Accepted
	Woken            Reason = "woken"             // a wake-up has no content
	Duplicate        Reason = "duplicate"         // it was taken before
	Exists           Reason = "exists"            // a start for an instance that is there
	IDTaken          Reason = "id_taken"          // a child start for an id that another instance has
	UnknownInstance  Reason = "unknown_instance"  // no instance has that id
	HasEnded         Reason = "has_ended"         // the instance has ended
	OtherIncarnation Reason = "other_incarnation" // for an earlier instance of the same id
	OtherExecution   Reason = "other_execution"   // for an earlier execution
	NotOpen          Reason = "not_open"          // answered before, or no longer waited for
	NoWaiter         Reason = "no_waiter"         // an event without a waiter
	EventsFull       Reason = "events_full"       // an event without a waiter, and no room to keep it
	NoChange         Reason = "no_change"         // already so
	TooEarly         Reason = "too_early"         // a timer that is not due
	NotKnownHere     Reason = "unregistered"      // the code is not registered here
	NewerEngine      Reason = "newer_engine"      // pinned to a newer engine
	CannotRead       Reason = "unreadable"        // the history cannot be read
	TriedTooOften    Reason = "poison"            // too many attempts
	MailboxFull      Reason = "mailbox_full"      // too many unread messages
	// Accepted: a start with an input that the orchestration does not take
	WrongInput Reason = "wrong_input"
	WrongType  Reason = "wrong_type" // data that the code which waits cannot decode
	NextRound  Reason = "next_round" // this round has become large
	// it may have been taken before, and the history that would tell was removed
	Undecided Reason = "undecided"
	Joined    Reason = "joined" // a start whose messages are for the instance that is there
)

// Instance is the state of one instance, with its code parked at its waits if it has been run here.
// It is not safe for concurrent use, except for Interrupt.
type Instance struct {
	run execution
	// For the next round:
	former    *Former   // what earlier executions have taken in, if that was asked for
	watermark time.Time // see SetWatermark
	starts    Starts
}

// New makes an instance of what the store knows. The history is replayed by the first Decide.
func New(config *Config, known Known) *Instance {
	return &Instance{run: execution{recorder: recorder{config: config, state: newState(known)}}}
}

// RowVersion is the version that a turn decided on the row expects.
func (r Row) RowVersion() RowVersion {
	return RowVersion{Incarnation: r.Incarnation, Execution: r.Execution, LastEvent: r.LastEvent,
		CustomStatusVersion: r.CustomStatusVersion}
}

// CanRead reports whether this engine may read the history of an instance, given what its row is
// pinned to.
func CanRead(row Row) bool { return row.Engine <= events.Engine }

// Interrupt stops code that does not come back from its round, the next time it makes a call of the
// context's. It may be called from any goroutine. Code that makes no such call cannot be stopped;
// the process must be given up.
func (in *Instance) Interrupt() { in.run.interrupt.Store(true) }

// Evict forgets the instance: its coroutines end and its memory is freed.
func (in *Instance) Evict() { in.run.evict() }

// Hydrated reports whether the code is parked at its waits, so that the next round needs no replay.
func (in *Instance) Hydrated() bool { return in.run.program != nil }
