package check

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file has the rules about one history, one after the other. Each sees an event before it is
// noted down.

// historyRules are asked in this order.
var historyRules = []func(*execution, events.Event){
	(*execution).inOrder,
	(*execution).neverBack,
	(*execution).startedFirst,
	(*execution).nothingAfterTheEnd,
	(*execution).answersWhatIsOpen,
	(*execution).stepsCompleteOnce,
	(*execution).timersFireInTime,
	(*execution).waitsGetTheirEvent,
	(*execution).messagesAreTakenOnce,
	(*execution).readsAreInOrder,
}

// execution follows one history.
type execution struct {
	lineage *lineage
	number  int64
	last    events.Event
	started *events.Started
	end     events.Event // the zero value while it runs

	open map[int64]events.Event // events that were begun and have no answer
	shut map[int64]closing      // how each other one was closed

	steps map[int64]int64 // inline steps by number: the event that has completed them

	mailboxes mailboxes
	values    map[string]codec.Payload
	status    codec.Payload
	// statusVersion counts the changes of the status.
	statusVersion int64

	suspended, halted bool
	carried           bool // what the execution inherits is in place
	begunAt           time.Time
	children          []child
	childAt           map[int64]int // by event
	received          []received
	said              []said
}

// closing is how something was closed.
type closing struct {
	by      int64 // the event
	dropped bool
}

// received is a message that was put into a mailbox.
type received struct {
	mailbox, message string
	event            int64
}

// said is a start or a message that the execution sent to another instance without waiting for an
// answer.
type said struct {
	event          int64
	at             time.Time
	what           AcknowledgedKind
	instance, name string
	due            time.Time // of a delayed start
}

func newExecution(l *lineage, number int64) *execution {
	return &execution{
		lineage: l, number: number, open: make(map[int64]events.Event), shut: make(map[int64]closing),
		steps:     make(map[int64]int64),
		mailboxes: newMail(), values: make(map[string]codec.Payload), childAt: make(map[int64]int),
	}
}

// take judges an event, and notes it down.
func (x *execution) take(e events.Event) {
	for _, rule := range historyRules {
		rule(x, e)
	}
	x.note(e)
	x.last = e
	if x.started != nil && !x.carried && e.ID >= 1+int64(x.started.Carried) {
		x.carried = true
		x.lineage.inherited(x)
	}
}

func (x *execution) bad(rule Rule, event int64, expected, found string) {
	x.lineage.bad(Finding{Rule: rule, Execution: x.number, Event: event, Expected: expected, Found: found})
}

// inherits reports whether an event is part of the state that the execution inherits from the one
// before. The first execution of an incarnation inherits nothing: its state comes with its start.
func (x *execution) inherits(e events.Event) bool {
	return x.started != nil && x.started.Previous != 0 && e.ID <= 1+int64(x.started.Carried)
}

// inOrder: a gap is a lost event; an id that occurs again is an overwritten event.
func (x *execution) inOrder(e events.Event) {
	if e.ID != x.last.ID+1 {
		x.bad(EventOrder, e.ID, fmt.Sprintf("event %d", x.last.ID+1), fmt.Sprintf("event %d (%s)", e.ID, e.Fact.Kind()))
	}
}

// neverBack: code sees the times of events, so they must not depend on the clock of one machine.
func (x *execution) neverBack(e events.Event) {
	if e.At.Before(x.last.At) {
		x.bad(TimeOrder, e.ID, "a time not before "+stamp(x.last.At), stamp(e.At))
	}
}

// startedFirst: an execution that begins twice has lost its earlier events.
func (x *execution) startedFirst(e events.Event) {
	_, ok := e.Fact.(*events.Started)
	switch first := x.last.ID == 0; {
	case first && !ok:
		x.bad(FirstEvent, e.ID, "started", string(e.Fact.Kind()))
	case !first && ok:
		x.bad(FirstEvent, e.ID, "started once", "started again")
	}
}

// nothingAfterTheEnd: a waiter that has received the outcome would see a different one, or would
// miss the events after it.
func (x *execution) nothingAfterTheEnd(e events.Event) {
	switch {
	case x.end.Fact == nil:
	case events.Ends(e.Fact):
		x.bad(TwoOutcomes, e.ID, fmt.Sprintf("one outcome, %s at event %d", x.end.Fact.Kind(), x.end.ID),
			string(e.Fact.Kind()))
	default:
		x.bad(AfterEnd, e.ID, fmt.Sprintf("nothing after %s at event %d", x.end.Fact.Kind(), x.end.ID),
			string(e.Fact.Kind()))
	}
}

// answersWhatIsOpen: an answer that is recorded twice, or for another event than its own, lets the
// code go on with an outcome that never happened.
func (x *execution) answersWhatIsOpen(e events.Event) {
	schedule, kind := answers(e.Fact)
	if kind == "" {
		return
	}
	expected := fmt.Sprintf("an answer to %s that is open at event %d", kind, schedule)
	opener, isOpen := x.open[schedule]
	how, wasClosed := x.shut[schedule]
	switch {
	case isOpen && opener.Fact.Kind() == kind:
	case isOpen:
		x.bad(AnswersNothing, e.ID, expected, fmt.Sprintf("%s for %s", e.Fact.Kind(), opener.Fact.Kind()))
	case wasClosed && how.dropped:
		x.bad(AnsweredDropped, e.ID, expected,
			fmt.Sprintf("%s for what nobody waits for since event %d", e.Fact.Kind(), how.by))
	case wasClosed:
		x.bad(AnsweredTwice, e.ID, expected, fmt.Sprintf("%s for what was answered at event %d", e.Fact.Kind(), how.by))
	default:
		x.bad(AnswersNothing, e.ID, expected, fmt.Sprintf("%s for what was never begun", e.Fact.Kind()))
	}
}

// answers returns the event that a fact answers, and the kind that event must have; "" if it
// answers none.
func answers(f events.Fact) (schedule int64, kind events.Kind) {
	switch f := f.(type) {
	case *events.ActivityBegun:
		return f.Schedule, events.KindActivityScheduled
	case *events.ActivityCompleted:
		return f.Schedule, events.KindActivityScheduled
	case *events.ActivityFailed:
		return f.Schedule, events.KindActivityScheduled
	case *events.TimerFired:
		return f.Timer, events.KindTimerCreated
	case *events.EventReceived:
		if f.Wait != 0 {
			return f.Wait, events.KindEventAwaited
		}
	case *events.ChildCompleted:
		return f.Schedule, events.KindChildStarted
	case *events.ChildFailed:
		return f.Schedule, events.KindChildStarted
	default:
	}
	return 0, ""
}

// stepsCompleteOnce: the second result of a step would replace one that the code has acted upon.
func (x *execution) stepsCompleteOnce(e events.Event) {
	var step int64
	switch f := e.Fact.(type) {
	case *events.StepCompleted:
		step = f.Step
	case *events.StepFailed:
		step = f.Step
	default:
		return
	}
	if by, ok := x.steps[step]; ok {
		x.bad(StepTwice, e.ID, fmt.Sprintf("nothing more of step %d, which is over since event %d", step, by),
			string(e.Fact.Kind()))
	}
}

// timersFireInTime: the code relies on the pause. A late timer is allowed, because delays
// cannot be excluded.
func (x *execution) timersFireInTime(e events.Event) {
	fired, ok := e.Fact.(*events.TimerFired)
	if !ok {
		return
	}
	if timer, ok := x.open[fired.Timer].Fact.(*events.TimerCreated); ok && e.At.Before(timer.FireAt) {
		x.bad(TimerEarly, e.ID, fmt.Sprintf("the timer of event %d not before %s", fired.Timer, stamp(timer.FireAt)),
			fmt.Sprintf("%s, which is %v early", stamp(e.At), timer.FireAt.Sub(e.At)))
	}
}

// waitsGetTheirEvent: an event under another name is another event.
func (x *execution) waitsGetTheirEvent(e events.Event) {
	got, ok := e.Fact.(*events.EventReceived)
	if !ok {
		return
	}
	if wait, ok := x.open[got.Wait].Fact.(*events.EventAwaited); ok && wait.Name != got.Name {
		x.bad(WrongEvent, e.ID, fmt.Sprintf("event %q, which event %d waits for", wait.Name, got.Wait),
			fmt.Sprintf("event %q", got.Name))
	}
	name := keptEvents(got.Name)
	if open := x.mailboxes.waiting[name]; got.Keep && len(open) > 0 && open[0] != got.Wait {
		x.bad(ReadOrder, e.ID, fmt.Sprintf("the answer to event %d, the oldest wait for event %q", open[0], got.Name),
			fmt.Sprintf("the answer to event %d", got.Wait))
	}
	if kept := x.mailboxes.unread[name]; got.Instead != 0 && (len(kept) == 0 || kept[0] != got.Instead) {
		x.bad(ReadOrder, e.ID, "that it replaces the oldest "+describeMailbox(name),
			fmt.Sprintf("that it replaces event %d", got.Instead))
	}
}

// messagesAreTakenOnce: a message that was sent twice, or redelivered, is recorded once. An
// execution inherits messages that the one before it recorded.
func (x *execution) messagesAreTakenOnce(e events.Event) {
	if id := messageOf(e.Fact); id != "" && !x.inherits(e) && x.lineage.messages.has(id) {
		x.bad(MessageTwice, e.ID, "message "+id+" once", "it was taken in before")
	}
}

// messageOf is the id of the message that a fact records; "" if it records none.
func messageOf(f events.Fact) string {
	switch f := f.(type) {
	case *events.EventReceived:
		return f.Message
	case *events.MessageReceived:
		return f.Message
	case *events.CancelRequested:
		return f.Message
	case *events.Suspended:
		return f.Message
	case *events.Resumed:
		return f.Message
	default:
	}
	return ""
}

// readsAreInOrder: a mailbox keeps the order of its messages, and each message is read once.
func (x *execution) readsAreInOrder(e events.Event) {
	var rule Rule
	var expected, found string
	switch f := e.Fact.(type) {
	case *events.MailboxRead:
		rule, expected, found = x.mailboxes.judge(f.Mailbox, f.Message)
	case *events.EventAwaited:
		rule, expected, found = x.mailboxes.judge(keptEvents(f.Name), f.Kept)
	default:
	}
	if rule != "" {
		x.bad(rule, e.ID, expected, found)
	}
}

// note remembers what an event changes.
func (x *execution) note(e events.Event) {
	if id := messageOf(e.Fact); id != "" {
		x.lineage.messages.add(id)
	}
	if schedule, kind := answers(e.Fact); kind != "" && e.Fact.Kind() != events.KindActivityBegun {
		delete(x.open, schedule)
		x.shut[schedule] = closing{by: e.ID}
	}
	switch f := e.Fact.(type) {
	case *events.Started:
		x.begun(e, f)
	case *events.ActivityScheduled, *events.TimerCreated:
		x.open[e.ID] = e
	case *events.EventAwaited:
		if f.Kept == 0 {
			x.open[e.ID] = e
		}
		x.mailboxes.read(e.ID, keptEvents(f.Name), f.Kept)
	case *events.EventReceived:
		if f.Keep {
			x.mailboxes.keep(e.ID, f)
		} else {
			x.mailboxes.giveUp(f.Wait)
		}
	case *events.ChildStarted:
		x.open[e.ID] = e
		x.childAt[e.ID] = len(x.children)
		x.children = append(x.children, child{event: e.ID, at: e.At, instance: f.Instance})
	case *events.ActivityBegun:
		if f.Pending { // only a program outside completes it now
			delete(x.open, f.Schedule)
			x.open[f.Schedule] = events.Event{ID: f.Schedule, At: e.At, Fact: &events.ActivityScheduled{Name: passedOn}}
		}
	case *events.ChildCompleted:
		x.answered(f.Schedule, e)
	case *events.ChildFailed:
		x.answered(f.Schedule, e)
	case *events.StepCompleted:
		x.steps[f.Step] = e.ID
	case *events.MessageReceived:
		x.mailboxes.put(e.ID, message{f.Mailbox, f.Message, string(f.Data)})
		x.received = append(x.received, received{f.Mailbox, f.Message, e.ID})
	case *events.MailboxRead:
		x.mailboxes.read(e.ID, f.Mailbox, f.Message)
	case *events.Launched:
		x.said = append(x.said, said{e.ID, e.At, AcknowledgedStart, f.Instance, f.Name, f.NotBefore})
	case *events.Sent:
		if f.To == events.ToMailbox { // an event is dropped if no code waits for it
			x.said = append(x.said, said{e.ID, e.At, AcknowledgedMailbox, f.Instance, f.Name, time.Time{}})
		}
	case *events.Dropped:
		x.dropped(e.ID, f)
	case *events.Suspended, *events.Resumed:
		x.halt(f)
	case *events.StatusSet:
		x.status, x.statusVersion = f.Status, f.Version
	case *events.ValueSet:
		x.values[f.Key] = f.Value
	case *events.ValuesCleared:
		for _, k := range f.Keys {
			delete(x.values, k)
		}
	case *events.ActivityCompleted, *events.ActivityFailed, *events.TimerFired: // closed above
	case *events.Completed, *events.Failed, *events.Cancelled, *events.Terminated, *events.ContinuedAsNew: // see below
	case *events.StepFailed, *events.CancelRequested, *events.Patched, *events.CallRefused: // these change nothing
	}
	if events.Ends(e.Fact) && x.end.Fact == nil {
		x.end = e
	}
}

// passedOn is the name of an activity that a program outside is to complete.
const passedOn = ""

func (x *execution) begun(e events.Event, f *events.Started) {
	if x.started != nil {
		return
	}
	x.started, x.begunAt = f, e.At
	x.lineage.started(x)
}

// answered notes how a child has answered.
func (x *execution) answered(schedule int64, e events.Event) {
	if i, ok := x.childAt[schedule]; ok && x.children[i].answer.Fact == nil {
		x.children[i].answer = e
	}
}

// dropped closes events that the code no longer waits for. If the code has not looked at the
// message of a read, the read returns its message to the mailbox.
func (x *execution) dropped(by int64, f *events.Dropped) {
	for _, id := range f.Schedules {
		if _, ok := x.open[id]; ok {
			delete(x.open, id)
			x.shut[id] = closing{by: by, dropped: true}
			if i, ok := x.childAt[id]; ok {
				x.children[i].dropped = true
			}
		}
		x.mailboxes.giveUp(id)
	}
	for _, read := range x.mailboxes.handOut() {
		if _, ok := x.open[read]; ok { // a wait for an event
			delete(x.open, read)
			x.shut[read] = closing{by: by}
		}
	}
	for _, n := range f.Steps {
		x.steps[n] = by
	}
}

func (x *execution) halt(f events.Fact) {
	switch f := f.(type) {
	case *events.Suspended:
		if f.Error != nil {
			x.halted = true
		} else {
			x.suspended = true
		}
	case *events.Resumed:
		if f.Healed {
			x.halted = false
		} else {
			x.suspended = false
		}
	default:
	}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
