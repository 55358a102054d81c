package round

import (
	"strconv"

	"github.com/rondo-run/rondo/pkg/events"
)

// A start may bring messages along. They begin a new incarnation together with it, or are for the
// instance that runs: which of the two is decided here, in one turn, so that nothing comes between.
// If the start restarts an instance that has ended, the engine guarantees that the code of some
// incarnation looks at the messages, or that a new incarnation begins with them. So the messages
// that such a start has brought to a running instance are kept together with the start; if the
// execution ends and has not looked at them, the start is sent once more.

// takeJoining takes what a start has brought to an instance that runs: all of it, or nothing.
func (in *receiver) takeJoining(d Delivery, s *events.Start) Receipt {
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
		in.happen(&events.MessageReceived{
			Mailbox: x.Mailbox, Data: x.Data, Message: events.StartMessageID(d.Message.ID, i+1), Age: in.age(d),
			Restart: restartOf(s),
		})
	}
	return Receipt{Verdict: Accepted, Reason: Joined}
}

// restartOf is the part of a start that is kept; nil if there is none.
func restartOf(s *events.Start) *events.Restart {
	if s.Conflict != events.RestartFinished {
		return nil
	}
	return &events.Restart{Name: s.Orchestration, Version: s.Version, Input: s.Input, Attributes: s.Attributes,
		IgnoreUnknown: s.IgnoreUnknown}
}

// sendOn sends the rest of the messages of a start, from one on: the ones before it have ended the
// execution, or begun another one.
func (in *receiver) sendOn(d Delivery, s *events.Start, from int) {
	if s.Conflict == events.RestartFinished {
		rest := *s
		rest.Messages = s.Messages[from:]
		in.sendItself(d.Message.ID+"/rest/"+strconv.Itoa(from), d.Message, &rest)
		return
	}
	for i, x := range s.Messages[from:] {
		id := events.StartMessageID(d.Message.ID, from+i+1)
		in.sendItself(id, d.Message, &events.MailboxMessage{Mailbox: x.Mailbox, Data: x.Data})
	}
}
