package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Past gives the effects of a message that was taken before, as if it had been a turn of its own,
// from the history of an execution. It is for an orchestrator that finds that another one has taken
// the message and may have died before publishing the effects. It reports false if history does not
// have it. The caller must not apply the effects again.
func Past(instance string, execution int64, history []events.Event, m events.Message) (Turn, bool) {
	return past(instance, execution, history, func(f events.Fact) bool { return tookBy(f, m) })
}

// PastStart is the same for how an execution that continues another one has begun.
func PastStart(instance string, execution int64, history []events.Event) (Turn, bool) {
	return past(instance, execution, history, func(f events.Fact) bool { _, ok := f.(*events.Started); return ok })
}

// PastSince gives the turns in which a part of an execution was decided, from a moment on: all
// events of a turn have its time. Their messages are left out.
func PastSince(instance string, execution int64, history []events.Event, since time.Time) (turns []Turn) {
	r := newReader(instance, execution)
	var turn *Turn
	var at time.Time
	for _, e := range history {
		if r.ledger.follows(e) != nil {
			return nil
		}
		eff, err := r.ledger.apply(e)
		if err != nil {
			return nil
		}
		if e.At.Before(since) {
			continue
		}
		if turn == nil || !e.At.Equal(at) {
			turns = append(turns, Turn{Instance: instance})
			turn, at = &turns[len(turns)-1], e.At
			r.turn = turn
		}
		turn.add(execution, e)
		r.noteOver(e, eff)
		turn.Row = r.newRow(codeState{})
	}
	return turns
}

func past(instance string, execution int64, history []events.Event, began func(events.Fact) bool) (Turn, bool) {
	r := newReader(instance, execution)
	turn := r.turn
	within, carried := false, 0
	for _, e := range history {
		if r.ledger.follows(e) != nil {
			return Turn{}, false
		}
		carried = r.ledger.tail.inherited
		eff, err := r.ledger.apply(e)
		switch {
		case err != nil:
			return Turn{}, false
		case !within:
			within = began(e.Fact)
		case events.FromOutside(e.Fact) && carried == 0:
			return turn.tidied(), true
		}
		if !within {
			continue
		}
		turn.add(execution, e)
		r.noteOver(e, eff)
		if carried == 0 {
			r.addEffects(e, eff)
		}
		turn.Row = r.newRow(codeState{})
	}
	return turn.tidied(), within
}

// tidied is a turn without the messages that it has taken back itself.
func (t Turn) tidied() Turn {
	t.Messages = slices.DeleteFunc(t.Messages, func(m events.Message) bool { return m.Content == nil })
	return t
}

// tookBy reports whether a fact is what became of a message.
func tookBy(f events.Fact, m events.Message) bool {
	switch c := m.Content.(type) {
	case *events.Start:
		s, ok := f.(*events.Started)
		return ok && s.Message == m.ID && s.Previous == 0
	case *events.EventRaised:
		r, ok := f.(*events.EventReceived)
		return ok && r.Message == m.ID
	case *events.MailboxMessage:
		q, ok := f.(*events.MessageReceived)
		return ok && q.Message == m.ID
	case *events.Control:
		return messageOf(f) == m.ID && m.ID != ""
	case *events.TaskBegun:
		b, ok := f.(*events.ActivityBegun)
		return ok && b.Schedule == c.Ref.Event && b.Pending == c.Pending
	case *events.TaskDone:
		return answers(f) == c.Ref.Event
	case *events.TaskFailed:
		return answers(f) == c.Ref.Event
	case *events.TimerDue:
		return answers(f) == c.Ref.Event
	case *events.ChildDone:
		return answers(f) == c.Ref.Event
	case *events.ChildError:
		return answers(f) == c.Ref.Event
	default:
	}
	return false
}

// messageOf is the id of the message by which a client has controlled an instance.
func messageOf(f events.Fact) string {
	switch f := f.(type) {
	case *events.CancelRequested:
		return f.Message
	case *events.Suspended:
		return f.Message
	case *events.Resumed:
		return f.Message
	case *events.Terminated:
		return f.Message
	default:
	}
	return ""
}

// answers is the event that a fact answers; 0 if it answers none.
func answers(f events.Fact) int64 {
	switch f := f.(type) {
	case *events.ActivityCompleted:
		return f.Schedule
	case *events.ActivityFailed:
		return f.Schedule
	case *events.TimerFired:
		return f.Timer
	case *events.ChildCompleted:
		return f.Schedule
	case *events.ChildFailed:
		return f.Schedule
	default:
	}
	return 0
}

// ExecutionOf is the execution that a message is for; 0 if it is for the one that is current.
func ExecutionOf(m events.Message) int64 {
	switch c := m.Content.(type) {
	case *events.TaskBegun:
		return c.Ref.Execution
	case *events.TaskDone:
		return c.Ref.Execution
	case *events.TaskFailed:
		return c.Ref.Execution
	case *events.TimerDue:
		return c.Ref.Execution
	case *events.ChildDone:
		return c.Ref.Execution
	case *events.ChildError:
		return c.Ref.Execution
	default:
	}
	return 0
}
