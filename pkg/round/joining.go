package round

import (
	"strconv"

	"github.com/rondo-run/rondo/pkg/events"
)

// A start may bring messages along. They begin a new incarnation together with it, or are for the
// instance that runs: which of the two is decided here, in one turn, so that nothing comes between.
// If the start restarts what has ended, its sender is promised that the code of some incarnation
// looks at the messages, or that a new incarnation begins with them. So what such a start has
// brought to a running instance is kept together with what the start said; if the execution ends
// and has not looked at it, the start is sent once more.

// joins reports whether the messages of a start are for the instance that runs.
func (in *Instance) joins(m events.Message, s *events.Start) bool {
	row := in.current()
	return len(s.Messages) > 0 && s.Parent == nil &&
		s.Conflict != events.RejectExisting && s.Conflict != events.ReplaceRunning &&
		row.Execution > 0 && !row.Status.Ended() && !in.isSameStart(m, s)
}

// takeJoining takes what a start has brought to an instance that runs: all of it, or nothing.
func (in *Instance) takeJoining(d Delivery, s *events.Start) Receipt {
	bytes := 0
	for _, x := range s.Messages {
		bytes += len(x.Data)
	}
	if name := in.ledger.info.Name; name != s.Orchestration {
		return Receipt{Verdict: Dead, Reason: IDTaken, Detail: "instance " + quote(in.id) + " runs orchestration " +
			quote(name) + ", and the messages are for " + quote(s.Orchestration) + "; use another id"}
	}
	if in.pending {
		return in.notRunHere(d)
	}
	if r, is := in.takenBefore(d, startIDs(d.Message, s)...); is {
		return r
	}
	if r, full := in.mailboxFull(len(s.Messages), bytes); full {
		return r
	}
	for i, x := range s.Messages {
		if !in.ledger.running() || in.pending {
			in.sendOn(d, s, i)
			break
		}
		in.happen(&events.MessageQueued{
			Queue: x.Queue, Data: x.Data, Message: events.StartMessageID(d.Message.ID, i+1), Age: in.age(d),
			Restart: restartOf(s),
		})
	}
	return Receipt{Verdict: Accepted, Reason: Joined}
}

// restartOf is what is kept of a start; nil if nothing is.
func restartOf(s *events.Start) *events.Restart {
	if s.Conflict != events.RestartFinished {
		return nil
	}
	return &events.Restart{Name: s.Orchestration, Version: s.Version, Input: s.Input, Attributes: s.Attributes}
}

// sendOn sends what is left of the messages of a start, from one on: the ones before it have ended
// the execution, or begun another one.
func (in *Instance) sendOn(d Delivery, s *events.Start, from int) {
	if s.Conflict == events.RestartFinished {
		rest := *s
		rest.Messages = s.Messages[from:]
		in.sendItself(d.Message.ID+"/rest/"+strconv.Itoa(from), d.Message, &rest)
		return
	}
	for i, x := range s.Messages[from:] {
		id := events.StartMessageID(d.Message.ID, from+i+1)
		in.sendItself(id, d.Message, &events.QueueSent{Queue: x.Queue, Data: x.Data})
	}
}

func (in *Instance) sendItself(id string, like events.Message, c events.Content) {
	in.turn.send(events.Message{
		ID: id, Instance: in.id, Sent: in.now, Trace: like.Trace, TraceState: like.TraceState,
		Baggage: like.Baggage, Content: c,
	})
}

// startOnceMore sends the starts again whose messages the execution has not looked at before it
// ended.
func (in *Instance) startOnceMore() { in.startWith(in.ledger.unreadLetters()) }

// startWith sends the starts again that have brought these messages.
func (in *Instance) startWith(letters []letter) {
	for _, m := range letters {
		if m.restart == nil {
			continue
		}
		in.turn.send(in.sayOnce("again", in.ledger.ref(m.id), in.id, &events.Start{
			Orchestration: m.restart.Name, Version: m.restart.Version,
			Input: m.restart.Input, Attributes: m.restart.Attributes,
			Conflict: events.RestartFinished, Messages: []events.StartMessage{{Queue: m.queue, Data: m.data}},
		}))
	}
}
