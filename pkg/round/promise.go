package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// promise adds to the turn what must follow from an event that was just appended: the messages it
// means, and what the store shows of it.
func (in *Instance) promise(e events.Event, eff effects) {
	ref := in.ledger.ref(e.ID)
	for _, c := range eff.closed {
		if c.open.abandon {
			continue // it goes on without whoever waited
		}
		if !in.takeBack(c.open) {
			in.turn.send(in.withdraw(c.id, c.open)...)
		}
	}
	before := len(in.turn.Messages)
	switch f := e.Fact.(type) {
	case *events.ActivityScheduled:
		in.turn.send(in.work(ref, f))
		if o := in.ledger.open.Get(e.ID); !o.next().IsZero() {
			in.turn.send(in.due(ref, o.next()))
		}
	case *events.ActivityBegun:
		if o := in.ledger.open.Get(f.Schedule); eff.retimed && !o.deadline.IsZero() {
			m := in.due(in.ledger.ref(f.Schedule), o.deadline)
			m.ID += "/begun" // the time to start by was another message
			in.turn.send(m)
		}
	case *events.TimerCreated:
		in.turn.send(in.due(ref, f.FireAt))
	case *events.ChildStarted:
		in.turn.send(in.say(OverChild, events.VerbStart, ref, f.Instance, &events.Start{
			Orchestration: f.Name, Version: f.Version, Input: f.Input,
			Parent: &events.Parent{Instance: in.id, Incarnation: ref.Incarnation, Execution: ref.Execution,
				Event: ref.Event},
		}))
	case *events.Launched:
		in.turn.send(in.say(OverExecution, events.VerbStart, ref, f.Instance, &events.Start{
			// the compiler has checked it
			Orchestration: f.Name, Version: f.Version, Input: f.Input, IgnoreUnknown: true,
		}))
	case *events.Sent:
		if f.To == events.ToEvent {
			in.turn.send(in.sayOnce(events.VerbEvent, ref, f.Instance, &events.EventRaised{Name: f.Name, Data: f.Data}))
		} else {
			in.turn.send(in.sayOnce(events.VerbQueue, ref, f.Instance, &events.QueueSent{Queue: f.Name, Data: f.Data}))
		}
	case *events.ValueSet:
		in.turn.value(ValueChange{Key: f.Key, Value: f.Value, Execution: ref.Execution, Set: f.Set})
	case *events.ValuesCleared:
		for _, k := range f.Keys {
			in.turn.value(ValueChange{Key: k, Removed: true})
		}
	default:
		if events.Ends(f) && f.Kind() != events.KindContinuedAsNew {
			in.tellParent(in.current())
			in.startOnceMore()
		}
	}
	if o := in.ledger.open.Get(e.ID); o != nil {
		o.round, o.sent = in.rounds, [2]int32{int32(before), int32(len(in.turn.Messages))}
	}
}

// takeBack removes from the turn what an open thing has set going in this very round. It reports
// false when that was in an earlier one: then it is on its way and must be withdrawn.
func (in *Instance) takeBack(o *open) bool {
	if o.round != in.rounds {
		return false
	}
	for i := o.sent[0]; i < o.sent[1]; i++ {
		in.turn.Messages[i].Content = nil // closeTurn takes it out
	}
	return true
}

func (t *Turn) send(m ...events.Message) { t.Messages = append(t.Messages, m...) }

// value notes a change; the last one of a key counts.
func (t *Turn) value(v ValueChange) {
	if i := slices.IndexFunc(t.Values, func(x ValueChange) bool { return x.Key == v.Key }); i >= 0 {
		t.Values = slices.Delete(t.Values, i, i+1)
	}
	t.Values = append(t.Values, v)
}

// say makes a message of the instance's to another one. About is what its trace goes on in.
func (in *Instance) say(about OverKind, verb events.Verb, ref events.Ref, to string, c events.Content) events.Message {
	return events.Message{
		ID: events.MessageID(verb, in.id, ref), Instance: to, Internal: true, Content: c,
		Trace: in.traceOf(about, ref), TraceState: in.ledger.besides().state, Baggage: in.ledger.besides().baggage,
	}
}

// sayOnce is say for what must be taken only once by an instance that knows nothing of this one: it
// tells when it was sent.
func (in *Instance) sayOnce(verb events.Verb, ref events.Ref, to string, c events.Content) events.Message {
	m := in.say(OverExecution, verb, ref, to, c)
	m.Sent = in.ledger.lastAt
	return m
}

// work makes the message that has an activity executed.
func (in *Instance) work(ref events.Ref, f *events.ActivityScheduled) events.Message {
	first := f.First
	if first == 0 {
		first = ref.Event
	}
	m := in.say(OverActivity, events.VerbWork, ref, in.id, &events.Work{
		Ref: ref, Orchestration: in.ledger.info.Name, Version: in.ledger.info.Version,
		Activity: f.Name, Input: f.Input, Tag: f.Tag, Session: f.Session, Priority: f.Priority, Attempt: f.Attempt,
		IdempotencyKey: events.IdempotencyKey(in.id, ref.Incarnation, ref.Execution, first),
		StartBy:        f.StartBy, Deadline: f.Deadline, StartToClose: time.Duration(f.StartToClose),
		HeartbeatTimeout: time.Duration(f.HeartbeatTimeout),
		Heartbeat:        f.Heartbeat,
	})
	m.NotBefore = f.NotBefore
	return m
}

// due makes the message that comes back when something is due.
func (in *Instance) due(ref events.Ref, at time.Time) events.Message {
	about := OverTimer
	if o := in.ledger.open.Get(ref.Event); o != nil {
		about = overKinds[o.kind]
	}
	m := in.say(about, events.VerbTimer, ref, in.id, &events.TimerDue{Ref: ref, Due: at})
	m.NotBefore = at
	return m
}

// withdraw makes the messages that take back what an open thing has set going.
func (in *Instance) withdraw(id int64, o *open) []events.Message {
	ref := in.ledger.ref(id)
	var out []events.Message
	switch o.kind {
	case openActivity:
		// NotBefore is that of the message that is taken back: when it is over, that one does not
		// wait for its time any more.
		out = append(out, events.Message{Instance: in.id, NotBefore: o.notBefore,
			Content: &events.WithdrawWork{Ref: ref, Tag: o.tag, Activity: o.name}})
		if at := o.next(); !at.IsZero() {
			out = append(out, events.Message{Instance: in.id, NotBefore: at, Content: &events.WithdrawTimer{Ref: ref}})
		}
	case openTimer:
		out = append(out, events.Message{Instance: in.id, NotBefore: o.deadline,
			Content: &events.WithdrawTimer{Ref: ref}})
	case openChild:
		reason := "its parent no longer waits for it"
		if c := in.ledger.cancel; c != nil {
			reason = because("its parent was cancelled", c.Reason)
		}
		out = append(out, in.say(OverExecution, events.VerbControl, ref, o.instance, &events.Control{
			How: events.Cancel, Reason: reason,
			Parent: &events.Parent{Instance: in.id, Incarnation: ref.Incarnation, Execution: ref.Execution,
				Event: ref.Event},
		}))
	}
	return out
}

// tellParent brings the outcome to whoever started the instance and waits for it.
func (in *Instance) tellParent(row Row) {
	p := row.Parent
	if p == nil {
		return
	}
	ref := events.Ref{Incarnation: p.Incarnation, Execution: p.Execution, Event: p.Event}
	m := events.Message{
		ID: events.MessageID(events.VerbChild, in.id,
			events.Ref{Incarnation: row.Incarnation, Execution: row.Execution, Event: p.Event}),
		Instance: p.Instance, Trace: in.traceOf(OverExecution, in.ledger.ref(1)),
		Content: &events.ChildDone{Ref: ref, Output: row.Output},
	}
	if row.Error != nil {
		m.Content = &events.ChildError{Ref: ref, Error: row.Error}
	}
	in.turn.send(m)
}

// Outstanding lists the messages that an instance with this history is waiting for the services to
// answer, as they were first promised. Publishing them again is harmless: their ids are the same,
// and history takes each answer once.
func Outstanding(known Known) ([]events.Message, error) {
	in := New(&Config{}, known)
	in.busy = busyWith(Turn{})
	var l ledger
	l.info = in.ledger.info
	sent := make(map[int64][]events.Message) // by what the answer is expected for
	for _, e := range known.History {
		if err := l.follows(e); err != nil {
			return nil, err
		}
		eff, err := l.apply(e)
		if err != nil {
			return nil, err
		}
		in.ledger, in.turn.Messages = l, nil
		in.promise(e, effects{retimed: eff.retimed})
		if begun, ok := e.Fact.(*events.ActivityBegun); ok {
			sent[begun.Schedule] = stillDue(sent[begun.Schedule], begun, eff)
			sent[begun.Schedule] = append(sent[begun.Schedule], in.turn.Messages...)
		} else if len(in.turn.Messages) > 0 {
			sent[e.ID] = in.turn.Messages
		}
	}
	in.turn.Messages = nil
	for _, e := range known.History {
		if o := l.open.Get(e.ID); o != nil {
			in.turn.send(sent[e.ID]...)
		}
	}
	if l.status != "" && l.status != events.KindContinuedAsNew {
		in.tellParent(in.current())
		in.startWith(in.ledger.lettersInQueues()) // no code has run here that could have looked at others
	}
	return in.turn.Messages, nil
}

// stillDue leaves of the messages about an activity those that are still to be answered when it has
// begun.
func stillDue(sent []events.Message, begun *events.ActivityBegun, eff effects) []events.Message {
	return slices.DeleteFunc(sent, func(m events.Message) bool {
		switch m.Content.(type) {
		case *events.Work:
			return begun.Pending // no worker is to run it again
		case *events.TimerDue:
			return eff.retimed
		}
		return false
	})
}

// Unanswered lists the messages that an instance with this history has sent since a moment and
// expects no answer to: what it launched, and what it said to others. Publishing them again is
// harmless, as for [Outstanding].
func Unanswered(known Known, since time.Time) ([]events.Message, error) {
	in := New(&Config{}, known)
	in.busy = busyWith(Turn{})
	var l ledger
	l.info = in.ledger.info
	for _, e := range known.History {
		if err := l.follows(e); err != nil {
			return nil, err
		}
		if _, err := l.apply(e); err != nil {
			return nil, err
		}
		switch e.Fact.(type) {
		case *events.Launched, *events.Sent:
			if !e.At.Before(since) {
				in.ledger = l
				in.promise(e, effects{})
			}
		}
	}
	return in.turn.Messages, nil
}
