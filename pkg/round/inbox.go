package round

import (
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

var (
	taken = Receipt{Verdict: Accepted, Reason: Taken}
	again = Receipt{Verdict: Again, Reason: NextRound}
)

func ignored(r Reason, detail string) Receipt {
	return Receipt{Verdict: Ignored, Reason: r, Detail: detail}
}

// receiver takes the deliveries of a round.
type receiver struct {
	*execution
	former *Former // what earlier executions have taken in, if that was asked for
}

// takeAll takes the deliveries in the order of their moments, each after the timers that were due
// before it. When the instance does not exist yet, its start comes first: messages that were sent
// to it in the same moment must not be lost to a race between two publishers. It reports whether it
// took all.
func (in *receiver) takeAll(inbox []Delivery) (all bool) {
	first := -1
	if !in.known() {
		first = slices.IndexFunc(inbox, func(d Delivery) bool { _, ok := d.Message.Content.(*events.Start); return ok })
		if first >= 0 {
			in.turn.Receipts[first] = in.take(inbox[first])
		}
	}
	all = true
	order := byMoment(inbox)
	for i := range inbox {
		if order != nil {
			i = order[i]
		}
		d := inbox[i]
		switch {
		case i == first:
			continue
		case in.full():
			in.turn.Again = in.turn.Again || in.turn.Question == nil && in.turn.Awaits.IsZero()
			in.turn.Receipts[i] = again
		case !d.Moment.IsZero() && !in.fireDue(d.Moment):
			in.turn.Receipts[i] = again
		default:
			in.turn.Receipts[i] = in.take(d)
		}
		all = all && in.turn.Receipts[i].Verdict != Again
	}
	return all
}

// full reports whether the rest must wait for the next round: this one is large, or an execution
// begins that has not run yet and must see the rest, or a message before it raises a question or
// waits for the watermark.
func (in *receiver) full() bool {
	return in.large() || in.pending && in.turn.Again || in.turn.Question != nil || !in.turn.Awaits.IsZero()
}

// take takes one delivery and says what becomes of it.
func (in *receiver) take(d Delivery) Receipt {
	if r, poisoned := in.poison(d); poisoned {
		return r
	}
	if s, ok := d.Message.Content.(*events.Start); ok {
		return in.takeStart(d, s)
	}
	switch {
	case !in.known():
		return in.unknownInstance(d)
	case !in.ledger.running():
		return in.afterTheEnd(d)
	case in.pending:
		return in.notRunHere(d)
	}
	switch c := d.Message.Content.(type) {
	case *events.EventRaised:
		return in.takeEvent(d, c)
	case *events.MailboxMessage:
		return in.takeMailboxMessage(d, c)
	case *events.Control:
		return in.takeControl(d, c)
	case *events.TaskBegun:
		return in.takeAnswer(c.Ref, openActivity,
			&events.ActivityBegun{Schedule: c.Ref.Event, Worker: c.Worker, Pending: c.Pending})
	case *events.TaskDone:
		return in.takeAnswer(c.Ref, openActivity,
			&events.ActivityCompleted{Schedule: c.Ref.Event, Result: c.Result, Worker: c.Worker})
	case *events.TaskFailed:
		return in.takeAnswer(c.Ref, openActivity, &events.ActivityFailed{Schedule: c.Ref.Event,
			Error: events.Bounded(c.Error), Heartbeat: c.Heartbeat, Worker: c.Worker})
	case *events.ChildDone:
		return in.takeAnswer(c.Ref, openChild, &events.ChildCompleted{Schedule: c.Ref.Event, Output: c.Output})
	case *events.ChildError:
		return in.takeAnswer(c.Ref, openChild, &events.ChildFailed{Schedule: c.Ref.Event,
			Error: events.Bounded(c.Error)})
	case *events.TimerDue:
		return in.takeTimer(c)
	case *events.StepDone:
		return in.takeStep(c)
	case *events.Wake:
		return ignored(Woken, c.Reason)
	default:
	}
	return Receipt{Verdict: Dead, Reason: NotOpen,
		Detail: fmt.Sprintf("a message that says %T is not for an instance", d.Message.Content)}
}

// ---- Messages from clients and other instances.

func (in *receiver) takeEvent(d Delivery, c *events.EventRaised) Receipt {
	m := d.Message
	if in.ledger.seen.has(m.ID) {
		return ignored(Duplicate, "this event was taken before")
	}
	how := in.config.keeps(&in.ledger.info, c.Name)
	waits := in.ledger.calls.waits.of(c.Name)
	if len(waits) == 0 && how.most == 0 {
		return ignored(NoWaiter,
			"no waiter for event "+quote(c.Name)+
				"; bind the orchestration with Buffered to keep early events, or use a mailbox")
	}
	if r, is := in.takenBefore(d, m.ID); is {
		return r
	}
	if len(waits) == 0 {
		return in.keepEvent(d, c, how)
	}
	if err := in.refuses(waits[0], c.Data, c.RefuseUnknown); err != nil {
		return ignored(WrongType, "event "+quote(c.Name)+" is not of the type that the instance waits for: "+
			err.Error()+"; the instance goes on waiting")
	}
	in.happen(&events.EventReceived{Wait: waits[0], Name: c.Name, Data: c.Data, Message: m.ID, Age: in.age(d),
		Keep: how.most > 0})
	return taken
}

// keepEvent keeps an event for which the code does not wait yet.
func (in *receiver) keepEvent(d Delivery, c *events.EventRaised, how keep) Receipt {
	l := &in.ledger
	if err := in.config.refusesKept(&l.info, c); err != nil {
		return ignored(WrongType, "event "+quote(c.Name)+" is not of the type that the instance keeps: "+err.Error())
	}
	box := l.mail.box(keptOf(c.Name))
	var instead, messages, bytes = int64(0), 1, len(c.Data)
	if kept := len(box.messages); kept >= how.most {
		if !how.latest {
			return ignored(EventsFull, fmt.Sprintf(
				"the instance keeps %d events %q already, and does not wait for one now", kept, c.Name))
		}
		instead, messages, bytes = box.messages[0].id, 0, bytes-len(box.messages[0].data)
	}
	switch {
	case !l.mail.room(messages, bytes):
		return ignored(EventsFull, fmt.Sprintf("the instance has %d unread mailbox messages and kept events (%d bytes)",
			l.mail.unread, l.mail.unreadBytes))
	case l.tail.isNearOver(): // senders must not fail the instance with events for which it does not wait
		return ignored(EventsFull, "the history of the instance is nearly full, and it does not wait for event "+
			quote(c.Name)+" now")
	}
	in.happen(&events.EventReceived{Name: c.Name, Data: c.Data, Message: d.Message.ID, Age: in.age(d), Keep: true,
		Instead: instead})
	r := taken
	r.Detail = "the code does not wait for event " + quote(c.Name) + " now; the instance keeps it"
	return r
}

func (in *receiver) takeMailboxMessage(d Delivery, c *events.MailboxMessage) Receipt {
	if r, is := in.takenBefore(d, d.Message.ID); is {
		return r
	}
	if r, full := in.mailboxFull(1, len(c.Data)); full {
		return r
	}
	if err := in.readerRefuses(c); err != nil {
		return Receipt{Verdict: Dead, Reason: WrongType,
			Detail: "the message is not of the type that the instance reads from mailbox " + quote(c.Mailbox) +
				": " + err.Error() +
				"; the instance goes on waiting"}
	}
	reads := in.ledger.mail.reader(mailboxOf(c.Mailbox)) > 0
	in.happen(&events.MessageReceived{Mailbox: c.Mailbox, Data: c.Data, Message: d.Message.ID, Age: in.age(d)})
	if c.RefuseUnknown && !reads {
		return Receipt{Verdict: Accepted, Reason: Taken, Detail: "the code does not read mailbox " + quote(c.Mailbox) +
			" now, so the type of the message is not checked"}
	}
	return taken
}

// mailboxFull tells whether there is no room for so many messages of so many bytes.
func (in *receiver) mailboxFull(messages, bytes int) (Receipt, bool) {
	if in.ledger.mail.room(messages, bytes) {
		return Receipt{}, false
	}
	return Receipt{Verdict: Dead, Reason: MailboxFull, Detail: fmt.Sprintf(
		"instance %q has %d unread mailbox messages (%d bytes); the limits are %d and %d bytes: "+
			"read faster, or send slower",
		in.id, in.ledger.mail.unread, in.ledger.mail.unreadBytes, events.MaxMailbox, events.MaxMailboxBytes)}, true
}

// readerRefuses describes why the code that reads a mailbox just now cannot read a message.
func (in *receiver) readerRefuses(c *events.MailboxMessage) error {
	read := in.ledger.mail.reader(mailboxOf(c.Mailbox))
	if read == 0 {
		return nil
	}
	return in.refuses(read, c.Data, c.RefuseUnknown)
}

func (in *receiver) takeControl(d Delivery, c *events.Control) Receipt {
	m, age := d.Message, in.age(d)
	if in.ledger.seen.has(m.ID) {
		return ignored(Duplicate, "this was taken before")
	}
	if p := in.ledger.info.Parent; c.Parent != nil && (p == nil || *p != *c.Parent) {
		return ignored(IDTaken, "it is for another instance of this id")
	}
	if r, other := in.otherIncarnation(c); other {
		return r
	}
	switch {
	case c.How == events.Cancel && in.ledger.cancel != nil:
		return ignored(NoChange, "it is being cancelled already")
	case c.How == events.Suspend && in.ledger.userSuspended:
		return ignored(NoChange, "it is suspended already")
	case c.How == events.Resume && !in.ledger.userSuspended:
		return ignored(NoChange, "it is not suspended")
	}
	if r, is := in.takenBefore(d, m.ID); is {
		return r
	}
	switch c.How {
	case events.Cancel:
		in.happen(&events.CancelRequested{Reason: c.Reason, Message: m.ID, Age: age})
	case events.Terminate:
		in.happen(terminated(c, m.ID, age))
	case events.Suspend:
		in.happen(&events.Suspended{Reason: c.Reason, Message: m.ID, Age: age})
	case events.Resume:
		in.happen(&events.Resumed{Reason: c.Reason, Message: m.ID, Age: age})
	}
	return taken
}

// otherIncarnation answers a control that is for an incarnation that was to be deleted, if this is
// another one.
func (in *receiver) otherIncarnation(c *events.Control) (Receipt, bool) {
	if c.Incarnation == "" || c.Incarnation == in.current().Incarnation {
		return Receipt{}, false
	}
	return ignored(OtherIncarnation, "it is for an earlier instance of this id"), true
}

func terminated(c *events.Control, message string, age int64) *events.Terminated {
	return &events.Terminated{Reason: c.Reason, Message: message, Age: age, Deletion: c.Incarnation != ""}
}

// ---- Answers from the services.

// addressed checks that an answer is for this incarnation and execution.
func (in *receiver) addressed(incarnation string, execution int64) (Receipt, bool) {
	switch {
	case incarnation != in.ledger.info.Incarnation:
		return ignored(OtherIncarnation, "it is for an earlier instance of this id"), false
	case execution != in.ledger.info.Execution:
		return ignored(OtherExecution,
			fmt.Sprintf("it is for execution %d, this is %d", execution, in.ledger.info.Execution)), false
	}
	return Receipt{}, true
}

// takeAnswer takes what answers something open.
func (in *receiver) takeAnswer(ref events.Ref, kind openKind, f events.Fact) Receipt {
	if r, ok := in.addressed(ref.Incarnation, ref.Execution); !ok {
		return r
	}
	o := in.ledger.calls.open.Get(ref.Event)
	if o == nil || o.kind != kind {
		return ignored(NotOpen, fmt.Sprintf("event %d was answered before, or nobody waits for it any more", ref.Event))
	}
	if b, ok := f.(*events.ActivityBegun); ok {
		switch {
		case b.Pending && o.pending:
			return ignored(NoChange, "that it is pending is known")
		case !b.Pending && (o.begun || o.startBy.IsZero()):
			return ignored(NoChange, "that it has begun is known")
		}
	}
	in.happen(f)
	return taken
}

func (in *receiver) takeTimer(c *events.TimerDue) Receipt {
	if r, ok := in.addressed(c.Ref.Incarnation, c.Ref.Execution); !ok {
		return r
	}
	o := in.ledger.calls.open.Get(c.Ref.Event)
	if o == nil || o.next().IsZero() {
		return ignored(NotOpen, fmt.Sprintf("event %d is not waiting for a time", c.Ref.Event))
	}
	if !c.Due.IsZero() && c.Due.Before(o.next()) {
		// It would fire at the time that it is for, BEFORE messages that came in time.
		return ignored(NotOpen, "the activity has begun, and another timer tells of its time limit")
	}
	if wait := o.next().Sub(in.now); wait > 0 {
		return Receipt{Verdict: Returned, After: wait, Reason: TooEarly,
			Detail: "it is due at " + o.next().Format(time.RFC3339Nano)}
	}
	if !in.knows(o.next()) {
		return again
	}
	in.fire(c.Ref.Event)
	return taken
}

func (in *receiver) takeStep(c *events.StepDone) Receipt {
	if r, ok := in.addressed(c.Incarnation, c.Execution); !ok {
		return r
	}
	if in.ledger.steps.answered(c.Step, c.Attempt) || in.program == nil || !in.program.Waits(c.Step, c.Attempt) {
		return ignored(NotOpen, fmt.Sprintf("nobody waits for attempt %d of inline step %d", c.Attempt, c.Step))
	}
	switch {
	case c.Error != nil:
		in.happen(&events.StepFailed{Step: c.Step, Name: c.Name, Attempt: c.Attempt, Error: events.Bounded(c.Error)})
	case len(c.Result) > events.MaxPayload:
		in.happen(&events.StepFailed{Step: c.Step, Name: c.Name, Attempt: c.Attempt,
			Error: events.CheckPayload("result of step "+quote(c.Name), c.Result)})
	default:
		in.happen(&events.StepCompleted{Step: c.Step, Name: c.Name, Result: c.Result})
	}
	return taken
}

// ---- Messages that cannot be taken.

// WaitsForStart is UnknownFor, or its default.
func (c *Config) WaitsForStart() time.Duration {
	if c.UnknownFor == 0 {
		return time.Minute
	}
	return c.UnknownFor
}

// unknownInstance answers a message, other than a start, for an unknown instance. Messages that
// must not be lost when they overtake the start wait a while: mailbox messages, and requests to end
// the instance. They wait until all starts are known that the broker stored within that time.
func (in *receiver) unknownInstance(d Delivery) Receipt {
	detail := "there is no instance " + quote(in.id)
	_, isMailboxMessage := d.Message.Content.(*events.MailboxMessage)
	if c, ok := d.Message.Content.(*events.Control); !isMailboxMessage &&
		(!ok || c.How == events.Suspend || c.How == events.Resume || c.Incarnation != "") {
		return ignored(UnknownInstance, detail)
	}
	patience := in.config.WaitsForStart()
	if d.Age < patience || in.starts.Waiting {
		return Receipt{Verdict: Returned, After: min(returnedFor(d.NumDelivered), maxEarly), Reason: UnknownInstance,
			Detail: detail + " yet"}
	}
	until := in.now.Add(patience - d.Age)
	if known := in.starts.Known; !known.IsZero() && until.After(known) { // its start may not be delivered yet
		in.turn.Awaits = later(in.turn.Awaits, until)
		return again
	}
	detail += ", and none was started within " + patience.String()
	if !isMailboxMessage {
		return ignored(UnknownInstance, detail)
	}
	return Receipt{Verdict: Dead, Reason: UnknownInstance, Detail: detail}
}

// afterTheEnd answers a message for an instance that has ended. Queue messages are dead-lettered:
// their senders expect them to be read.
func (in *receiver) afterTheEnd(d Delivery) Receipt {
	detail := "instance " + quote(in.id) + " has ended (" + string(in.current().Status) + ")"
	if c, ok := d.Message.Content.(*events.MailboxMessage); ok {
		if r, is := in.takenBefore(d, d.Message.ID); is {
			return r
		}
		return Receipt{Verdict: Dead, Reason: HasEnded,
			Detail: detail + "; nobody will read mailbox " + quote(c.Mailbox)}
	}
	return ignored(HasEnded, detail)
}

// notRunHere answers a message for an execution whose code is not registered here and has not run
// yet.
func (in *receiver) notRunHere(d Delivery) Receipt {
	if c, ok := d.Message.Content.(*events.Control); ok && c.How == events.Terminate {
		return in.takeControl(d, c)
	}
	return Receipt{Verdict: Returned, After: returnedFor(d.NumDelivered), Reason: NotKnownHere,
		Detail: in.config.unknownCode(in.ledger.info.Name, in.ledger.info.Version)}
}

// turnAway answers a whole inbox when the instance cannot be run here, or not be read at all. Only
// ending it is possible.
func (in *receiver) turnAway(inbox []Delivery, why Receipt) {
	if why.Reason == NotKnownHere {
		in.readLedger()
	}
	for i, d := range inbox {
		r := why
		r.After = returnedFor(d.NumDelivered)
		c, isControl := d.Message.Content.(*events.Control)
		switch {
		case why.Reason == NewerEngine:
		case in.stored().Status.Ended() && in.ledger.tail.lastID == 0:
			r = in.afterTheEnd(d)
		case in.unreadable == nil && !in.ledger.running():
			r = in.take(d)
		case why.Reason == NotKnownHere && in.startsHere(d):
			r = in.take(d) // which needs other code, or none
		case isControl && c.How == events.Terminate:
			var other bool
			if r, other = in.otherIncarnation(c); !other {
				r = in.endBlind(terminated(c, d.Message.ID, in.age(d)))
			}
		case in.config.overAttempts(d):
			r, _ = in.poison(d)
		}
		in.turn.Receipts[i] = r
	}
}

// startsHere reports whether a delivery is a start that does not need the code of the instance that
// is there.
func (in *receiver) startsHere(d Delivery) bool {
	s, ok := d.Message.Content.(*events.Start)
	return ok && !in.joins(d.Message, s)
}

// ---- Poison.

// poison ends an instance that a message could not be brought to in many attempts.
func (in *receiver) poison(d Delivery) (Receipt, bool) {
	if !in.config.overAttempts(d) {
		return Receipt{}, false
	}
	err := &failure.Error{Kind: failure.Poison, NonRetryable: true, Attempts: d.Attempts - 1,
		Message: fmt.Sprintf("the message (%s) could not be processed", d.Message.Content.Verb())}
	if in.unreadable != nil {
		err.Kind, err.Message = failure.Unreadable, "its history cannot be read: "+in.unreadable.Error()
	}
	start, isStart := d.Message.Content.(*events.Start)
	switch {
	case !in.known() && isStart:
		in.stillborn(d, start, err)
	case in.known() && (in.unreadable != nil || in.ledger.running()):
		in.turn.Fault = err
		in.evict()
		in.pending, in.waiting = false, nil
		in.endBlind(&events.Failed{Error: err})
	}
	return Receipt{Verdict: Dead, Reason: TriedTooOften, Detail: err.Error()}, true
}

// maxEarly bounds the delay of a message that was delivered before the start of its instance, so
// that it comes soon after the start.
const maxEarly = 2 * time.Second

// returnedFor is the delay of a returned message: from one second to a minute.
func returnedFor(deliveries int) time.Duration {
	return backoff.Backoff{First: time.Second, Most: time.Minute}.After(deliveries - 1)
}

func newerEngine(version int) string {
	return fmt.Sprintf("it is pinned to engine %d, this is engine %d; upgrade this replica", version, events.Engine)
}

// refuses describes why the code that waits at an event of its history cannot read data. Without
// the code, the type is unknown: then the code sees to it when it runs (see
// [coro.Program.Resolve]).
func (in *receiver) refuses(wait int64, data codec.Payload, strict bool) error {
	if in.program == nil {
		return nil
	}
	return in.program.Refuses(wait, data, strict)
}
