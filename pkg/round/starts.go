package round

import (
	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// takeStart begins an incarnation, or says why a start does not.
func (in *receiver) takeStart(d Delivery, s *events.Start) Receipt {
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
	code, ok := coro.Find(in.config.Code, s.Orchestration, version)
	if !ok {
		return in.startOfUnknown(d, s)
	}
	if err := in.config.checkInput(s, version); err != nil {
		in.stillborn(d, s, err)
		return Receipt{Verdict: Accepted, Reason: WrongInput, Detail: err.Message}
	}
	in.startIncarnation(d, s, version, code)
	return taken
}

// startOfExisting answers a start for an id that is in use.
func (in *receiver) startOfExisting(d Delivery, s *events.Start) Receipt {
	m, row := d.Message, in.current()
	if in.isSameStart(m, s) {
		if s.Parent != nil && row.Status.Ended() {
			in.notifyParent(row) // the parent asks again: it may have missed the answer
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
	err := failure.Errorf(failure.Conflict,
		"instance id %q is already in use by another instance (%s); give the child another id, or none",
		in.id, row.Status)
	err.NonRetryable = true
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
func (in *receiver) startOfUnknown(d Delivery, s *events.Start) Receipt {
	detail := in.config.unknownCode(s.Orchestration, s.Version)
	if in.config.FailUnregistered <= 0 || d.Age < in.config.FailUnregistered {
		return Receipt{Verdict: Returned, After: returnedFor(d.NumDelivered), Reason: NotKnownHere, Detail: detail}
	}
	in.stillborn(d, s, &failure.Error{Kind: failure.Unregistered, NonRetryable: true, Message: detail})
	return taken
}

// startIDs are the ids of which one at least is known when a start was taken: its own when it has
// begun an incarnation, the one of its first message when that was for an instance that ran.
func startIDs(m events.Message, s *events.Start) []string {
	if len(s.Messages) == 0 {
		return []string{m.ID}
	}
	return []string{m.ID, events.StartMessageID(m.ID, 1)}
}
