package check

import (
	"fmt"
	"strings"
)

// Rule names what must hold. The names are stable: scripts may rely on them.
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
	AnsweredDropped Rule = "answered-dropped" // what nobody waits for any more is not answered
	TimerEarly      Rule = "timer-early"      // a timer fires no earlier than promised
	WrongEvent      Rule = "wrong-event"      // a wait gets an event of its name
	StepTwice       Rule = "step-twice"       // an inline step completes once
	MessageTwice    Rule = "message-twice"    // a message is taken in once
	ReadNothing     Rule = "read-nothing"     // what is read from a queue was put into it
	ReadTwice       Rule = "read-twice"       // a queue message is read once
	// the oldest message of a queue is read first, and nobody waits while there is one
	ReadOrder     Rule = "read-order"
	HistoryUnread Rule = "history-unreadable" // every event can be read
)

// The rules about the executions of an instance, and about what the store shows of it.
const (
	NoEnd            Rule = "no-end"            // an execution that has a successor has ended
	ExecutionMissing Rule = "execution-missing" // there is no gap between the executions that are kept
	ContinuedDiffers Rule = "continued-differs" // an execution begins as the one before said
	CarriedDiffers   Rule = "carried-differs"   // values and status go on into the next execution as they were
	MailLost         Rule = "mail-lost"         // what was unread goes on into the next execution
	MailFromNowhere  Rule = "mail-from-nowhere" // and nothing else does
	RowDiffers       Rule = "row-differs"       // the row of an instance says what its history says
	ValuesDiffer     Rule = "values-differ"     // its values are those that history tells
	StatusDiffers    Rule = "status-differs"    // its custom status is the one that history tells
	NoWake           Rule = "no-wake"           // what waits for a service or a time will be looked at again
)

// The rules about parents and children.
const (
	ChildMissing Rule = "child-missing" // a child that has answered exists, or was deleted
	ChildForeign Rule = "child-foreign" // the instance that answered for a child is that child
	ChildEarly   Rule = "child-early"   // a child has ended before its parent is told
	ChildOutcome Rule = "child-outcome" // a parent is told how its child has ended
	Orphan       Rule = "orphan"        // the parent of a child exists
	ChildUnknown Rule = "child-unknown" // and has started it
)

// The rules about what clients were promised, and about what instances have said to others.
const (
	StartLost Rule = "start-lost" // a start that was acknowledged has an instance
	// a queue message that was acknowledged is in history, under way, or a dead letter
	QueueLost    Rule = "queue-lost"
	QueueReorder Rule = "queue-reorder" // messages from one client to one queue come in the order of their promises
	EndDiffers   Rule = "end-differs"   // what a waiter was told is what history says
	EndEarly     Rule = "end-early"     // nobody is told that an instance has ended before it has
	LaunchLost   Rule = "launch-lost"   // an instance that another one has started, and does not wait for, exists
	// a queue message that another instance has sent is in history, under way, or a dead letter
	SendLost Rule = "send-lost"
)

// The rules about what is outstanding.
const (
	PromiseOverdue Rule = "promise-overdue" // what a commit owes is sent, and removed from the outbox
	WakeOverdue    Rule = "wake-overdue"    // an instance is looked at when its time has come
	WorkLost       Rule = "work-lost"       // an activity that has no answer is in NATS, or its answer is
	TimerLost      Rule = "timer-lost"      // a timer that has not fired is in NATS
	ChildLost      Rule = "child-lost"      // a child that does not exist yet has its start in NATS
	// the answer of a child that has ended is in NATS, if its parent does not have it
	AnswerLost  Rule = "answer-lost"
	Outstanding Rule = "outstanding" // nothing is outstanding, if that is demanded
)

// Rules are all rules.
var Rules = []Rule{
	EventOrder, TimeOrder, FirstEvent, TwoOutcomes, AfterEnd, AnswersNothing, AnsweredTwice, AnsweredDropped,
	TimerEarly, WrongEvent, StepTwice, MessageTwice,
	ReadNothing, ReadTwice, ReadOrder, HistoryUnread,
	NoEnd, ExecutionMissing, ContinuedDiffers, CarriedDiffers, MailLost, MailFromNowhere, RowDiffers, ValuesDiffer,
	StatusDiffers, NoWake,
	ChildMissing, ChildForeign, ChildEarly, ChildOutcome, Orphan, ChildUnknown,
	StartLost, QueueLost, QueueReorder, EndDiffers, EndEarly, LaunchLost, SendLost,
	PromiseOverdue, WakeOverdue, WorkLost, TimerLost, ChildLost, AnswerLost, Outstanding,
}

// Finding is a violation of a rule: where, what was expected, and what was found.
type Finding struct {
	Rule Rule `json:"rule"`
	// Instance, Execution and Event say where it is, as far as it is anywhere.
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

// same reports whether two findings are about the same violation: what was found may have moved on.
func (f Finding) same(g Finding) bool {
	return f.Rule == g.Rule && f.Instance == g.Instance && f.Execution == g.Execution && f.Event == g.Event
}
