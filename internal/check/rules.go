package check

import (
	"fmt"
	"strings"
)

// Rule names a condition that must hold. The names are stable: scripts may rely on them.
type Rule string

// The rules about one history.
const (
	EventOrder      Rule = "event-order"      // event ids are 1, 2, 3, …
	TimeOrder       Rule = "time-order"       // times never run backwards
	FirstEvent      Rule = "first-event"      // the first event is started, and no other
	TwoOutcomes     Rule = "two-outcomes"     // one event at most ends an execution
	AfterEnd        Rule = "after-end"        // nothing follows the event that ends it
	AnswersNothing  Rule = "answers-nothing"  // an answer is to something that was begun
	AnsweredTwice   Rule = "answered-twice"   // each thing is answered once
	AnsweredDropped Rule = "answered-dropped" // an answer to a dropped event is not recorded
	TimerEarly      Rule = "timer-early"      // a timer fires no earlier than its event says
	WrongEvent      Rule = "wrong-event"      // a wait gets an event of its name
	StepTwice       Rule = "step-twice"       // an inline step completes once
	MessageTwice    Rule = "message-twice"    // a message is taken in once
	ReadNothing     Rule = "read-nothing"     // each message that is read was put into its mailbox
	ReadTwice       Rule = "read-twice"       // a mailbox message is read once
	// the oldest message of a mailbox is read first, and no read waits while there is one
	ReadOrder     Rule = "read-order"
	HistoryUnread Rule = "history-unreadable" // every event can be read
)

// The rules about the executions of an instance, and about their rows and values in the store.
const (
	NoEnd              Rule = "no-end"               // an execution that has a successor has ended
	ExecutionMissing   Rule = "execution-missing"    // there is no gap between the executions that are kept
	ContinuedDiffers   Rule = "continued-differs"    // an execution begins as the end of the one before demands
	CarriedDiffers     Rule = "carried-differs"      // values and status go on into the next execution as they were
	MailboxDropped     Rule = "mailbox-dropped"      // unread messages go on into the next execution
	MailboxFromNowhere Rule = "mailbox-from-nowhere" // and no other messages do
	RowDiffers         Rule = "row-differs"          // the row of an instance agrees with its history
	ValuesDiffer       Rule = "values-differ"        // its values are those in history
	StatusDiffers      Rule = "status-differs"       // its custom status is the one in history
	NoWake             Rule = "no-wake"              // an instance that waits for a service or a time has a wake time
)

// The rules about parents and children.
const (
	ChildMissing Rule = "child-missing" // a child that has answered exists, or was deleted
	ChildForeign Rule = "child-foreign" // the instance that answered for a child is that child
	ChildEarly   Rule = "child-early"   // a child has ended before its parent records it
	ChildOutcome Rule = "child-outcome" // a parent records the outcome that its child has
	Orphan       Rule = "orphan"        // the parent of a child exists
	ChildUnknown Rule = "child-unknown" // and has started it
)

// The rules about the acknowledgements of clients, and about messages from one instance to another.
const (
	StartLost Rule = "start-lost" // a start that was acknowledged has an instance
	// an acknowledged mailbox message is in history, in flight, or a dead letter
	MailboxLost Rule = "mailbox-lost"
	// messages from one client to one mailbox are in history in the client's order
	MailboxReorder Rule = "mailbox-reorder"
	EndDiffers     Rule = "end-differs" // the outcome that a waiter received is the one in history
	EndEarly       Rule = "end-early"   // no waiter receives an outcome before history has it
	LaunchLost     Rule = "launch-lost" // an instance that another one has started, and does not wait for, exists
	// a mailbox message from another instance is in history, in flight, or a dead letter
	SendLost Rule = "send-lost"
)

// The rules about messages in flight.
const (
	OutboxOverdue Rule = "outbox-overdue" // each outbox entry is published, and deleted from the outbox
	WakeOverdue   Rule = "wake-overdue"   // an orchestrator loads an instance when its wake time has come
	TaskLost      Rule = "task-lost"      // an activity that has no answer is in NATS, or its answer is
	TimerLost     Rule = "timer-lost"     // a timer that has not fired is in NATS
	ChildLost     Rule = "child-lost"     // a child that does not exist yet has its start in NATS
	// the answer of a child that has ended is in NATS, if its parent does not have it
	AnswerLost  Rule = "answer-lost"
	Outstanding Rule = "outstanding" // nothing is outstanding, if the options demand it
)

// Rules are all rules.
var Rules = []Rule{
	EventOrder, TimeOrder, FirstEvent, TwoOutcomes, AfterEnd, AnswersNothing, AnsweredTwice, AnsweredDropped,
	TimerEarly, WrongEvent, StepTwice, MessageTwice,
	ReadNothing, ReadTwice, ReadOrder, HistoryUnread,
	NoEnd, ExecutionMissing, ContinuedDiffers, CarriedDiffers, MailboxDropped, MailboxFromNowhere, RowDiffers,
	ValuesDiffer,
	StatusDiffers, NoWake,
	ChildMissing, ChildForeign, ChildEarly, ChildOutcome, Orphan, ChildUnknown,
	StartLost, MailboxLost, MailboxReorder, EndDiffers, EndEarly, LaunchLost, SendLost,
	OutboxOverdue, WakeOverdue, TaskLost, TimerLost, ChildLost, AnswerLost, Outstanding,
}

// Finding is a violation of a rule: its place, the expectation, and the fact that differs.
type Finding struct {
	Rule Rule `json:"rule"`
	// Instance, Execution and Event are its place, as far as it has one.
	Instance  string `json:"instance,omitempty"`
	Execution int64  `json:"execution,omitempty"`
	Event     int64  `json:"event,omitempty"`
	Expected  string `json:"expected"`
	Found     string `json:"found"`
}

// Error is the finding in one line.
func (f Finding) Error() string {
	var b strings.Builder
	if f.Instance != "" {
		fmt.Fprintf(&b, "instance %q", f.Instance)
	} else {
		b.WriteString("the system")
	}
	if f.Execution > 0 {
		fmt.Fprintf(&b, ", execution %d", f.Execution)
	}
	if f.Event > 0 {
		fmt.Fprintf(&b, ", event %d", f.Event)
	}
	fmt.Fprintf(&b, ": %s: expected %s; found %s", f.Rule, f.Expected, f.Found)
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// same reports whether two findings are about the same violation. Found may differ between two
// readings.
func (f Finding) same(g Finding) bool {
	return f.Rule == g.Rule && f.Instance == g.Instance && f.Execution == g.Execution && f.Event == g.Event
}
