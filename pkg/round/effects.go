package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// addEffects adds the effects of an event that was just appended to the turn: its messages, and its
// part of the row.
func (r *recorder) addEffects(e events.Event, eff effects) {
	ref := r.ledger.ref(e.ID)
	for _, c := range eff.closed {
		if c.open.abandon {
			continue // it goes on without a parent
		}
		if !r.takeBack(c.open) {
			r.turn.send(r.withdraw(c.id, c.open)...)
		}
	}
	before := len(r.turn.Messages)
	switch f := e.Fact.(type) {
	case *events.ActivityScheduled:
		r.turn.send(r.work(ref, f))
		if o := r.ledger.calls.open.Get(e.ID); !o.next().IsZero() {
			r.turn.send(r.due(ref, o.next()))
		}
	case *events.ActivityBegun:
		if o := r.ledger.calls.open.Get(f.Schedule); eff.retimed && !o.deadline.IsZero() {
			m := r.due(r.ledger.ref(f.Schedule), o.deadline)
			m.ID += "/begun" // the time to start by was another message
			r.turn.send(m)
		}
	case *events.TimerCreated:
		r.turn.send(r.due(ref, f.FireAt))
	case *events.ChildStarted:
		r.turn.send(r.say(OverChild, events.VerbStart, ref, f.Instance, &events.Start{
			Orchestration: f.Name, Version: f.Version, Input: f.Input, Attributes: f.Attributes,
			Parent: &events.Parent{Instance: r.id, Incarnation: ref.Incarnation, Execution: ref.Execution,
				Event: ref.Event},
		}))
	case *events.Launched:
		r.turn.send(r.launch(ref, f))
	case *events.Sent:
		if f.To == events.ToEvent {
			r.turn.send(r.sayOnce(events.VerbEvent, ref, f.Instance, &events.EventRaised{Name: f.Name, Data: f.Data}))
		} else {
			r.turn.send(r.sayOnce(events.VerbMailbox, ref, f.Instance, &events.MailboxMessage{Mailbox: f.Name,
				Data: f.Data}))
		}
	case *events.ValueSet:
		r.turn.value(ValueChange{Key: f.Key, Value: f.Value, Execution: ref.Execution, Set: f.Set})
	case *events.ValuesCleared:
		for _, k := range f.Keys {
			r.turn.value(ValueChange{Key: k, Removed: true})
		}
	default:
		if events.Ends(f) && f.Kind() != events.KindContinuedAsNew {
			r.notifyParent(r.current())
			r.startOnceMore()
		}
	}
	if o := r.ledger.calls.open.Get(e.ID); o != nil {
		o.round, o.sent = r.rounds, [2]int32{int32(before), int32(len(r.turn.Messages))}
	}
}

// takeBack removes the effects of an open call of this very round from the turn. It reports false
// if the call is of an earlier round: then it is in flight and must be withdrawn.
func (r *recorder) takeBack(o *open) bool {
	if o.round != r.rounds {
		return false
	}
	for i := o.sent[0]; i < o.sent[1]; i++ {
		r.turn.Messages[i].Content = nil // closeTurn takes it out
	}
	return true
}

// say makes a message of the instance's to another one. About is what its trace goes on in.
func (r *recorder) say(about OverKind, verb events.Verb, ref events.Ref, to string, c events.Content) events.Message {
	beside := r.ledger.trace.besides()
	return events.Message{
		ID: events.MessageID(verb, r.id, ref), Instance: to, Internal: true, Content: c,
		Trace: r.traceOf(about, ref), TraceState: beside.state, Baggage: beside.baggage,
	}
}

// sayOnce is say for a message that an unrelated instance must take only once: it has the time of
// sending.
func (r *recorder) sayOnce(verb events.Verb, ref events.Ref, to string, c events.Content) events.Message {
	m := r.say(OverExecution, verb, ref, to, c)
	m.Sent = r.ledger.tail.lastAt
	return m
}

// launch makes the message that starts a detached instance.
func (r *recorder) launch(ref events.Ref, f *events.Launched) events.Message {
	m := r.say(OverExecution, events.VerbStart, ref, f.Instance, &events.Start{
		Orchestration: f.Name, Version: f.Version, Input: f.Input, Conflict: f.Conflict,
		Attributes: f.Attributes, Messages: f.Messages,
		IgnoreUnknown: true, // the compiler has checked it
	})
	m.NotBefore = f.NotBefore
	if f.Conflict != events.KeepExisting || len(f.Messages) > 0 {
		// An instance of the id that has taken it once must not take a copy. All copies have the
		// same time, also those that are published after the delay.
		m.Sent = later(r.ledger.tail.lastAt, f.NotBefore)
	}
	return m
}

// work makes the message that has an activity executed.
func (r *recorder) work(ref events.Ref, f *events.ActivityScheduled) events.Message {
	first := f.First
	if first == 0 {
		first = ref.Event
	}
	m := r.say(OverActivity, events.VerbTask, ref, r.id, &events.Task{
		Ref: ref, Orchestration: r.ledger.info.Name, Version: r.ledger.info.Version,
		Activity: f.Name, Input: f.Input, Tag: f.Tag, Session: f.Session, Attempt: f.Attempt,
		IdempotencyKey: events.IdempotencyKey(r.id, ref.Incarnation, ref.Execution, first),
		StartBy:        f.StartBy, Deadline: f.Deadline, StartToClose: time.Duration(f.StartToClose),
		HeartbeatTimeout: time.Duration(f.HeartbeatTimeout),
		Heartbeat:        f.Heartbeat,
	})
	m.NotBefore = f.NotBefore
	return m
}

// due makes the message that comes back when something is due.
func (r *recorder) due(ref events.Ref, at time.Time) events.Message {
	about := OverTimer
	if o := r.ledger.calls.open.Get(ref.Event); o != nil {
		about = overKinds[o.kind]
	}
	m := r.say(about, events.VerbTimer, ref, r.id, &events.TimerDue{Ref: ref, Due: at})
	m.NotBefore = at
	return m
}

// withdraw makes the messages that take back what an open thing has set going.
func (r *recorder) withdraw(id int64, o *open) []events.Message {
	ref := r.ledger.ref(id)
	var out []events.Message
	switch o.kind {
	case openActivity:
		// NotBefore is that of the message that is taken back: when it is over, that one does not
		// wait for its time any more.
		out = append(out, events.Message{Instance: r.id, NotBefore: o.notBefore,
			Content: &events.WithdrawTask{Ref: ref, Tag: o.tag, Activity: o.name}})
		if at := o.next(); !at.IsZero() {
			out = append(out, events.Message{Instance: r.id, NotBefore: at, Content: &events.WithdrawTimer{Ref: ref}})
		}
	case openTimer:
		out = append(out, events.Message{Instance: r.id, NotBefore: o.deadline,
			Content: &events.WithdrawTimer{Ref: ref}})
	case openChild:
		reason := "its parent no longer waits for it"
		if c := r.ledger.cancel; c != nil {
			reason = because("its parent was cancelled", c.Reason)
		}
		out = append(out, r.say(OverExecution, events.VerbControl, ref, o.instance, &events.Control{
			How: events.Cancel, Reason: reason,
			Parent: &events.Parent{Instance: r.id, Incarnation: ref.Incarnation, Execution: ref.Execution,
				Event: ref.Event},
		}))
	case openWait, openRead: // nothing was sent for these
	}
	return out
}

// notifyParent sends the outcome to the parent that waits for it.
func (r *recorder) notifyParent(row Row) {
	p := row.Parent
	if p == nil {
		return
	}
	m := answer(r.id, row)
	m.Trace = r.traceOf(OverExecution, r.ledger.ref(1))
	r.turn.send(m)
}

// answer is the message that tells a parent how its child has ended.
func answer(id string, row Row) events.Message {
	p := row.Parent
	ref := events.Ref{Incarnation: p.Incarnation, Execution: p.Execution, Event: p.Event}
	m := events.Message{
		ID: events.MessageID(events.VerbChild, id,
			events.Ref{Incarnation: row.Incarnation, Execution: row.Execution, Event: p.Event}),
		Instance: p.Instance,
		Content:  &events.ChildDone{Ref: ref, Output: row.Output},
	}
	if row.Error != nil {
		m.Content = &events.ChildError{Ref: ref, Error: row.Error}
	}
	return m
}

// AnswerOfDeleted is the last message of a child that is deleted without its parent, which would
// wait for it for ever. A child that has ended repeats its answer, which may have been lost.
func AnswerOfDeleted(id string, row Row) events.Message {
	if !row.Status.Ended() {
		row.Output, row.Error = nil, deleted()
	}
	m := answer(id, row)
	m.Trace = row.Trace
	return m
}

// RefusalOfDeleted answers the start of a child that was deleted, which a parent sends again that
// has not got the answer of the deletion.
func RefusalOfDeleted(id string, parent *events.Parent) events.Message {
	ref := events.Ref{Incarnation: parent.Incarnation, Execution: parent.Execution, Event: parent.Event}
	return events.Message{ID: events.MessageID("deleted", id, ref), Instance: parent.Instance,
		Content: &events.ChildError{Ref: ref, Error: deleted()}}
}

func deleted() *failure.Error {
	return &failure.Error{Kind: failure.Terminated, Message: "it was deleted", NonRetryable: true}
}

// Outstanding lists the messages that an instance with this history is waiting for the services to
// answer, as they were first sent. Publishing them again is harmless: their ids are the same, and
// history takes each answer once.
func Outstanding(known Known) ([]events.Message, error) {
	r := newReader(known.Instance, max(1, known.Row.Execution))
	l := &r.ledger
	sent := make(map[int64][]events.Message) // by what the answer is expected for
	for _, e := range known.History {
		if err := l.follows(e); err != nil {
			return nil, err
		}
		eff, err := l.apply(e)
		if err != nil {
			return nil, err
		}
		r.turn.Messages = nil
		r.addEffects(e, effects{retimed: eff.retimed})
		if begun, ok := e.Fact.(*events.ActivityBegun); ok {
			sent[begun.Schedule] = stillDue(sent[begun.Schedule], begun, eff)
			sent[begun.Schedule] = append(sent[begun.Schedule], r.turn.Messages...)
		} else if len(r.turn.Messages) > 0 {
			sent[e.ID] = r.turn.Messages
		}
	}
	r.turn.Messages = nil
	for _, e := range known.History {
		if o := l.calls.open.Get(e.ID); o != nil {
			r.turn.send(sent[e.ID]...)
		}
	}
	if l.outcome.kind != "" && l.outcome.kind != events.KindContinuedAsNew {
		r.notifyParent(r.current())
		r.startWith(r.ledger.mail.untakenMessages()) // no code has run here that could have looked at others
	}
	return r.turn.Messages, nil
}

// stillDue leaves of the messages about an activity those that are still to be answered when it has
// begun.
func stillDue(sent []events.Message, begun *events.ActivityBegun, eff effects) []events.Message {
	return slices.DeleteFunc(sent, func(m events.Message) bool {
		switch m.Content.(type) {
		case *events.Task:
			return begun.Pending // no worker is to run it again
		case *events.TimerDue:
			return eff.retimed
		default:
		}
		return false
	})
}

// Unanswered lists the messages that an instance with this history has sent since a moment and
// expects no answer to: what it launched, and what it said to others. A delayed start counts as
// sent when it is due. Publishing them again is harmless, as for [Outstanding].
func Unanswered(known Known, since time.Time) ([]events.Message, error) {
	r := newReader(known.Instance, max(1, known.Row.Execution))
	l := &r.ledger
	for _, e := range known.History {
		if err := l.follows(e); err != nil {
			return nil, err
		}
		if _, err := l.apply(e); err != nil {
			return nil, err
		}
		sent := e.At
		switch f := e.Fact.(type) {
		case *events.Launched:
			sent = later(e.At, f.NotBefore) // until then the broker keeps it
		case *events.Sent:
		default:
			continue
		}
		if !sent.Before(since) {
			r.addEffects(e, effects{})
		}
	}
	return r.turn.Messages, nil
}

func (r *recorder) sendItself(id string, like events.Message, c events.Content) {
	r.turn.send(events.Message{
		ID: id, Instance: r.id, Sent: r.now, Trace: like.Trace, TraceState: like.TraceState,
		Baggage: like.Baggage, Content: c,
	})
}

// startOnceMore sends the starts again whose messages the execution has not looked at before it
// ended.
func (r *recorder) startOnceMore() { r.startWith(r.ledger.mail.unreadMessages()) }

// startWith sends the starts again that have brought these messages. Nothing begins an instance
// again that is about to be deleted.
func (r *recorder) startWith(unread []message) {
	if r.ledger.outcome.deletion {
		return
	}
	for _, m := range unread {
		if m.restart == nil {
			continue
		}
		r.turn.send(r.sayOnce("again", r.ledger.ref(m.id), r.id, &events.Start{
			Orchestration: m.restart.Name, Version: m.restart.Version,
			Input: m.restart.Input, Attributes: m.restart.Attributes, IgnoreUnknown: m.restart.IgnoreUnknown,
			Conflict: events.RestartFinished, Messages: []events.StartMessage{{Mailbox: m.mailbox.name, Data: m.data}},
		}))
	}
}
