package round

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

var (
	taken = Receipt{Verdict: Accepted, Reason: Taken}
	again = Receipt{Verdict: Again, Reason: NextRound}
)

func ignored(r Reason, detail string) Receipt {
	return Receipt{Verdict: Ignored, Reason: r, Detail: detail}
}

// takeAll takes the deliveries in order. When the instance does not exist yet, its start comes
// first: what was sent to it in the same moment must not be lost to a race between two publishers.
func (in *Instance) takeAll(inbox []Delivery) {
	first := -1
	if !in.known() {
		first = slices.IndexFunc(inbox, func(d Delivery) bool { _, ok := d.Message.Content.(*events.Start); return ok })
		if first >= 0 {
			in.turn.Receipts[first] = in.take(inbox[first])
		}
	}
	for i, d := range inbox {
		switch {
		case i == first:
		case in.full():
			in.turn.Receipts[i] = again
			in.turn.Again = in.turn.Again || in.turn.Question == nil
		default:
			in.turn.Receipts[i] = in.take(d)
		}
	}
}

// full reports whether the rest must wait for the next round: this one is large, or an execution
// begins that has not run yet and must see what comes, or something must be known first about a
// message before it.
func (in *Instance) full() bool {
	return in.turn.events() >= events.MaxTurnEvents || in.pending && in.turn.Again || in.turn.Question != nil
}

// take takes one delivery and says what becomes of it.
func (in *Instance) take(d Delivery) Receipt {
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
	case *events.QueueSent:
		return in.takeLetter(d, c)
	case *events.Control:
		return in.takeControl(d, c)
	case *events.WorkBegun:
		return in.takeAnswer(c.Ref, openActivity,
			&events.ActivityBegun{Schedule: c.Ref.Event, Worker: c.Worker, Pending: c.Pending})
	case *events.WorkDone:
		return in.takeAnswer(c.Ref, openActivity,
			&events.ActivityCompleted{Schedule: c.Ref.Event, Result: c.Result, Worker: c.Worker})
	case *events.WorkFailed:
		return in.takeAnswer(c.Ref, openActivity, &events.ActivityFailed{Schedule: c.Ref.Event,
			Error: c.Error.Bounded(), Heartbeat: c.Heartbeat, Worker: c.Worker})
	case *events.ChildDone:
		return in.takeAnswer(c.Ref, openChild, &events.ChildCompleted{Schedule: c.Ref.Event, Output: c.Output})
	case *events.ChildError:
		return in.takeAnswer(c.Ref, openChild, &events.ChildFailed{Schedule: c.Ref.Event, Error: c.Error.Bounded()})
	case *events.TimerDue:
		return in.takeTimer(c)
	case *events.StepDone:
		return in.takeStep(c)
	case *events.Wake:
		return ignored(Woken, c.Reason)
	}
	return Receipt{Verdict: Dead, Reason: NotOpen,
		Detail: fmt.Sprintf("a message that says %T is not for an instance", d.Message.Content)}
}

// ---- Starts.

func (in *Instance) takeStart(d Delivery, s *events.Start) Receipt {
	switch {
	case !in.known():
	case in.joins(d.Message, s):
		return in.takeJoining(d, s)
	case !in.mayReplace(d.Message, s):
		return in.startOfExisting(d, s)
	case s.Parent == nil:
		if r, is := in.takenBefore(d, startIDs(d.Message, s)...); is {
			return r
		}
	}
	version := s.Version
	if version == "" {
		v, ok := in.config.Code.Resolve(s.Orchestration)
		if !ok {
			return in.startOfUnknown(d, s)
		}
		version = v
	}
	code, ok := in.config.Code.Lookup(s.Orchestration, version)
	if !ok {
		return in.startOfUnknown(d, s)
	}
	if err := in.checkInput(s, version); err != nil {
		in.stillborn(d, s, err)
		return Receipt{Verdict: Accepted, Reason: WrongInput, Detail: err.Message}
	}
	in.startIncarnation(d, s, version, code)
	return taken
}

// checkInput tells what is wrong with the input of a start, while nothing has happened yet. What
// other instances start was checked by the compiler, and may come from newer code: there the code
// itself says what it cannot read.
func (in *Instance) checkInput(s *events.Start, version string) *events.Error {
	inputs, known := in.config.Code.(Inputs)
	if !known || s.Parent != nil {
		return nil
	}
	return inputs.CheckInput(s.Orchestration, version, in.config.codec(), s.Input, !s.IgnoreUnknown)
}

// mayReplace reports whether a start begins a new incarnation of an id that is in use.
func (in *Instance) mayReplace(m events.Message, s *events.Start) bool {
	if in.isSameStart(m, s) {
		return false
	}
	running := in.ledger.running() || in.ledger.lastID == 0 && !in.stored().Status.Ended()
	return s.Conflict == events.ReplaceRunning || s.Conflict == events.RestartFinished && !running
}

// isSameStart reports whether the instance was started by this very start.
func (in *Instance) isSameStart(m events.Message, s *events.Start) bool {
	row := in.current()
	if s.Parent != nil {
		return row.Parent != nil && *row.Parent == *s.Parent
	}
	return m.ID != "" && (m.ID == row.StartMessage || slices.ContainsFunc(startIDs(m, s), in.ledger.seen.has))
}

// startIDs are the ids of which one at least is known when a start was taken: its own when it has
// begun an incarnation, the one of its first message when that was for an instance that ran.
func startIDs(m events.Message, s *events.Start) []string {
	if len(s.Messages) == 0 {
		return []string{m.ID}
	}
	return []string{m.ID, events.StartMessageID(m.ID, 1)}
}

// current is the row as it stands within the turn.
func (in *Instance) current() Row {
	if in.ledger.lastID == 0 {
		return in.stored()
	}
	return Row{
		Execution: in.ledger.info.Execution, Incarnation: in.ledger.info.Incarnation, Parent: in.ledger.info.Parent,
		StartMessage: in.ledger.startID,
		Status:       in.ledger.standing(), Output: in.ledger.output, Error: in.ledger.err,
	}
}

// startOfExisting answers a start for an id that is in use.
func (in *Instance) startOfExisting(d Delivery, s *events.Start) Receipt {
	m, row := d.Message, in.current()
	if in.isSameStart(m, s) {
		if s.Parent != nil && row.Status.Ended() {
			in.tellParent(row) // the parent asks again: it may have missed the answer
		}
		return ignored(Duplicate, "this start was taken before")
	}
	if s.Parent == nil && len(s.Messages) > 0 && s.Conflict != events.RejectExisting {
		if r, is := in.takenBefore(d, startIDs(m, s)...); is {
			return r
		}
		return Receipt{Verdict: Dead, Reason: HasEnded,
			Detail: "instance " + quote(in.id) + " has ended (" + string(row.Status) +
				"); nobody will read the messages that the start has brought"}
	}
	if s.Parent == nil {
		return ignored(Exists, "instance "+quote(in.id)+" is already there ("+string(row.Status)+")")
	}
	err := events.Errorf(events.Conflict,
		"instance id %q is already in use by another instance (%s); give the child another id, or none",
		in.id, row.Status)
	err.Final = true
	in.turn.send(events.Message{
		ID: events.MessageID("refused", in.id,
			events.Ref{Incarnation: s.Parent.Incarnation, Execution: s.Parent.Execution, Event: s.Parent.Event}),
		Instance: s.Parent.Instance,
		Content: &events.ChildError{Ref: events.Ref{Incarnation: s.Parent.Incarnation, Execution: s.Parent.Execution,
			Event: s.Parent.Event}, Error: err},
	})
	return ignored(IDTaken, err.Message)
}

// startOfUnknown gives a start back for a replica that knows its code, or fails it when that has
// taken too long.
func (in *Instance) startOfUnknown(d Delivery, s *events.Start) Receipt {
	detail := in.unknownCode(s.Orchestration, s.Version)
	if in.config.FailUnregistered <= 0 || d.Age < in.config.FailUnregistered {
		return Receipt{Verdict: Returned, After: backoff(d.NumDelivered), Reason: NotKnownHere, Detail: detail}
	}
	in.stillborn(d, s, &events.Error{Kind: events.Unregistered, Final: true, Message: detail})
	return taken
}

// stillborn writes the history of an instance that fails without having run.
func (in *Instance) stillborn(d Delivery, s *events.Start, err *events.Error) {
	version := s.Version
	if version == "" {
		version, _ = in.config.Code.Resolve(s.Orchestration)
	}
	in.startIncarnation(d, s, orElse(version, "unknown"), nil)
	in.pending = false
	if err.Kind != events.Application {
		in.turn.Fault = err
	}
	in.append(&events.Failed{Error: err})
}

// unknownCode says that code is missing, and what is there.
func (in *Instance) unknownCode(name, version string) string {
	if versions := in.config.Code.Versions(name); len(versions) > 0 {
		return fmt.Sprintf("orchestration %q version %s is not registered here; registered versions are %s", name,
			version, strings.Join(versions, ", "))
	}
	names := in.config.Code.Names()
	const most = 10
	switch {
	case len(names) == 0:
		return fmt.Sprintf("orchestration %q is not registered here, nor is any other", name)
	case len(names) > most:
		return fmt.Sprintf("orchestration %q is not registered here; registered are %s and %d others", name,
			strings.Join(names[:most], ", "), len(names)-most)
	}
	return fmt.Sprintf("orchestration %q is not registered here; registered are %s", name, strings.Join(names, ", "))
}

// ---- Messages from people and other instances.

func (in *Instance) takeEvent(d Delivery, c *events.EventRaised) Receipt {
	m := d.Message
	if in.ledger.seen.has(m.ID) {
		return ignored(Duplicate, "this event was taken before")
	}
	waits := in.ledger.waits.of(c.Name)
	if len(waits) == 0 {
		return ignored(NobodyWaits,
			"nobody waits for event "+quote(c.Name)+"; use a queue for messages that must not be lost")
	}
	if r, is := in.takenBefore(d, m.ID); is {
		return r
	}
	if err := in.refuses(waits[0], c.Data); err != nil {
		return ignored(WrongType, "event "+quote(c.Name)+" is not of the type that the instance waits for: "+
			err.Error()+"; the instance goes on waiting")
	}
	in.happen(&events.EventReceived{Wait: waits[0], Name: c.Name, Data: c.Data, Message: m.ID, Age: in.age(d)})
	return taken
}

func (in *Instance) takeLetter(d Delivery, c *events.QueueSent) Receipt {
	if r, is := in.takenBefore(d, d.Message.ID); is {
		return r
	}
	if r, full := in.mailboxFull(1, len(c.Data)); full {
		return r
	}
	if err := in.readerRefuses(c); err != nil {
		return Receipt{Verdict: Dead, Reason: WrongType,
			Detail: "the message is not of the type that the instance reads from queue " + quote(c.Queue) +
				": " + err.Error() +
				"; the instance goes on waiting"}
	}
	in.happen(&events.MessageQueued{Queue: c.Queue, Data: c.Data, Message: d.Message.ID, Age: in.age(d)})
	return taken
}

// mailboxFull tells whether there is no room for so many messages of so many bytes.
func (in *Instance) mailboxFull(messages, bytes int) (Receipt, bool) {
	if in.ledger.unread+messages <= events.MaxMailbox && in.ledger.mailSize+int64(bytes) <= events.MaxMailboxBytes {
		return Receipt{}, false
	}
	return Receipt{Verdict: Dead, Reason: MailboxFull, Detail: fmt.Sprintf(
		"instance %q has %d unread queue messages (%d bytes); the limits are %d and %d bytes: "+
			"read faster, or send slower",
		in.id, in.ledger.unread, in.ledger.mailSize, events.MaxMailbox, events.MaxMailboxBytes)}, true
}

// refuses tells why the code that waits at an event of its history cannot read data. Without the
// code, nobody knows its type: then the code sees to it when it runs (see
// [coro.Program.Resolve]).
func (in *Instance) refuses(wait int64, data events.Payload) error {
	if in.program == nil {
		return nil
	}
	return in.program.Refuses(wait, data)
}

// readerRefuses tells why who reads a queue just now cannot read a message.
func (in *Instance) readerRefuses(c *events.QueueSent) error {
	q := in.ledger.queues[c.Queue]
	if q == nil || len(q.reads) == 0 {
		return nil
	}
	return in.refuses(q.reads[0], c.Data)
}

func (in *Instance) takeControl(d Delivery, c *events.Control) Receipt {
	m, age := d.Message, in.age(d)
	if in.ledger.seen.has(m.ID) {
		return ignored(Duplicate, "this was taken before")
	}
	if p := in.ledger.info.Parent; c.Parent != nil && (p == nil || *p != *c.Parent) {
		return ignored(IDTaken, "it is for another instance of this id")
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
		in.happen(&events.Terminated{Reason: c.Reason, Message: m.ID, Age: age})
	case events.Suspend:
		in.happen(&events.Suspended{Reason: c.Reason, Message: m.ID, Age: age})
	case events.Resume:
		in.happen(&events.Resumed{Reason: c.Reason, Message: m.ID, Age: age})
	}
	return taken
}

// ---- Answers from the services.

// addressed checks that an answer is for this incarnation and execution.
func (in *Instance) addressed(incarnation string, execution int64) (Receipt, bool) {
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
func (in *Instance) takeAnswer(ref events.Ref, kind openKind, f events.Fact) Receipt {
	if r, ok := in.addressed(ref.Incarnation, ref.Execution); !ok {
		return r
	}
	o := in.ledger.open.Get(ref.Event)
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

func (in *Instance) takeTimer(c *events.TimerDue) Receipt {
	if r, ok := in.addressed(c.Ref.Incarnation, c.Ref.Execution); !ok {
		return r
	}
	o := in.ledger.open.Get(c.Ref.Event)
	if o == nil || o.next().IsZero() {
		return ignored(NotOpen, fmt.Sprintf("event %d is not waiting for a time", c.Ref.Event))
	}
	if wait := o.next().Sub(in.now); wait > 0 {
		return Receipt{Verdict: Returned, After: wait, Reason: TooEarly,
			Detail: "it is due at " + o.next().Format(time.RFC3339Nano)}
	}
	in.fire(c.Ref.Event)
	return taken
}

func (in *Instance) takeStep(c *events.StepDone) Receipt {
	if r, ok := in.addressed(c.Incarnation, c.Execution); !ok {
		return r
	}
	if in.ledger.stepAnswered(c.Step, c.Attempt) || in.program == nil || !in.program.Waits(c.Step, c.Attempt) {
		return ignored(NotOpen, fmt.Sprintf("nobody waits for attempt %d of inline step %d", c.Attempt, c.Step))
	}
	switch {
	case c.Error != nil:
		in.happen(&events.StepFailed{Step: c.Step, Name: c.Name, Attempt: c.Attempt, Error: c.Error.Bounded()})
	case len(c.Result) > events.MaxPayload:
		in.happen(&events.StepFailed{Step: c.Step, Name: c.Name, Attempt: c.Attempt,
			Error: events.CheckPayload("result of step "+quote(c.Name), c.Result)})
	default:
		in.happen(&events.StepCompleted{Step: c.Step, Name: c.Name, Result: c.Result})
	}
	return taken
}

// ---- Messages that cannot be taken.

// unknownInstance answers what is not a start and has nobody to go to. What must not be lost when
// it overtakes the start waits a while: messages, and wishes that the instance should end.
func (in *Instance) unknownInstance(d Delivery) Receipt {
	detail := "there is no instance " + quote(in.id)
	_, isLetter := d.Message.Content.(*events.QueueSent)
	if c, ok := d.Message.Content.(*events.Control); !isLetter &&
		(!ok || c.How == events.Suspend || c.How == events.Resume) {
		return ignored(UnknownInstance, detail)
	}
	patience := in.config.UnknownFor
	if patience == 0 {
		patience = time.Minute
	}
	if d.Age < patience {
		return Receipt{Verdict: Returned, After: backoff(d.NumDelivered), Reason: UnknownInstance,
			Detail: detail + " yet"}
	}
	detail += ", and none was started within " + patience.String()
	if !isLetter {
		return ignored(UnknownInstance, detail)
	}
	return Receipt{Verdict: Dead, Reason: UnknownInstance, Detail: detail}
}

// afterTheEnd answers what comes for an instance that has ended. Queue messages are dead-lettered:
// somebody meant them to be read.
func (in *Instance) afterTheEnd(d Delivery) Receipt {
	detail := "instance " + quote(in.id) + " has ended (" + string(in.current().Status) + ")"
	if c, ok := d.Message.Content.(*events.QueueSent); ok {
		if r, is := in.takenBefore(d, d.Message.ID); is {
			return r
		}
		return Receipt{Verdict: Dead, Reason: HasEnded, Detail: detail + "; nobody will read queue " + quote(c.Queue)}
	}
	return ignored(HasEnded, detail)
}

// notRunHere answers what comes for an execution whose code is not registered here and has not run
// yet.
func (in *Instance) notRunHere(d Delivery) Receipt {
	if c, ok := d.Message.Content.(*events.Control); ok && c.How == events.Terminate {
		return in.takeControl(d, c)
	}
	return Receipt{Verdict: Returned, After: backoff(d.NumDelivered), Reason: NotKnownHere,
		Detail: in.unknownCode(in.ledger.info.Name, in.ledger.info.Version)}
}

// turnAway answers a whole inbox when the instance cannot be run here, or not be read at all. Only
// ending it is possible.
func (in *Instance) turnAway(inbox []Delivery, why Receipt) {
	if why.Reason == NotKnownHere {
		in.readLedger()
	}
	for i, d := range inbox {
		r := why
		r.After = backoff(d.NumDelivered)
		c, isControl := d.Message.Content.(*events.Control)
		switch {
		case why.Reason == NewerEngine:
		case in.stored().Status.Ended() && in.ledger.lastID == 0:
			r = in.afterTheEnd(d)
		case in.unreadable == nil && !in.ledger.running():
			r = in.take(d)
		case why.Reason == NotKnownHere && in.startsHere(d):
			r = in.take(d) // which needs other code, or none
		case isControl && c.How == events.Terminate:
			r = in.endBlind(&events.Terminated{Reason: c.Reason, Message: d.Message.ID, Age: in.age(d)})
		case in.overAttempts(d):
			r, _ = in.poison(d)
		}
		in.turn.Receipts[i] = r
	}
}

// startsHere reports whether a delivery is a start that does not need the code of the instance that
// is there.
func (in *Instance) startsHere(d Delivery) bool {
	s, ok := d.Message.Content.(*events.Start)
	return ok && !in.joins(d.Message, s)
}

// endBlind ends an instance without its code, and if need be without its history: it only appends.
func (in *Instance) endBlind(f events.Fact) Receipt {
	if in.unreadable == nil {
		in.happen(f)
		return taken
	}
	row := in.stored()
	in.unreadable = nil
	in.ledger = ledger{
		info: coro.Info{Instance: in.id, Execution: row.Execution, Name: row.Name, Version: row.Version,
			Incarnation: row.Incarnation, Parent: row.Parent, Attributes: row.Attributes},
		engine: row.Engine, trace: row.Trace, startID: row.StartMessage, started: row.StartedAt, begun: row.StartedAt,
		lastID: row.LastEvent, lastAt: row.UpdatedAt, bytes: row.HistoryBytes, custom: row.CustomStatus,
		customVersion: row.CustomStatusVersion,
	}
	in.ledger.follow(row.Trace)
	in.ledger.seen.forget(in.now.UnixMicro()) // what it has taken in cannot be read
	if in.now.Before(row.UpdatedAt) {
		in.now = row.UpdatedAt
	}
	in.append(f)
	return taken
}

// ---- Poison.

func (in *Instance) overAttempts(d Delivery) bool {
	most := in.config.MaxAttempts
	if most == 0 {
		most = 10
	}
	return d.Attempts > most
}

// poison ends an instance that a message could not be brought to in many attempts.
func (in *Instance) poison(d Delivery) (Receipt, bool) {
	if !in.overAttempts(d) {
		return Receipt{}, false
	}
	err := &events.Error{Kind: events.Poison, Final: true, Attempts: d.Attempts - 1,
		Message: fmt.Sprintf("the message (%s) could not be processed", d.Message.Content.Verb())}
	if in.unreadable != nil {
		err.Kind, err.Message = events.Unreadable, "its history cannot be read: "+in.unreadable.Error()
	}
	start, isStart := d.Message.Content.(*events.Start)
	switch {
	case !in.known() && isStart:
		in.stillborn(d, start, err)
	case in.known() && (in.unreadable != nil || in.ledger.running()):
		in.turn.Fault = err
		in.Evict()
		in.pending, in.waiting = false, nil
		in.endBlind(&events.Failed{Error: err})
	}
	return Receipt{Verdict: Dead, Reason: TriedTooOften, Detail: err.Error()}, true
}

// backoff grows from one second to a minute.
func backoff(deliveries int) time.Duration {
	const most = time.Minute
	n := max(0, deliveries-1)
	if n > 5 {
		return most
	}
	return time.Second << n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func newerEngine(version int) string {
	return fmt.Sprintf("it is pinned to engine %d, this is engine %d; upgrade this replica", version, events.Engine)
}
