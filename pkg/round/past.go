package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Past gives what a message that was taken before has brought about, as if it had been a turn of
// its own: from the history of an execution, for whoever finds that somebody else has taken it and
// may have died before telling of it. It reports false if history does not have it. Nothing of it
// is to be done again.
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
	in := newPast(instance, execution)
	var turn *Turn
	var at time.Time
	for _, e := range history {
		if in.ledger.follows(e) != nil {
			return nil
		}
		eff, err := in.ledger.apply(e)
		if err != nil {
			return nil
		}
		if e.At.Before(since) {
			continue
		}
		if turn == nil || !e.At.Equal(at) {
			turns = append(turns, Turn{Instance: instance})
			turn, at = &turns[len(turns)-1], e.At
			in.turn = turn
		}
		turn.add(execution, e)
		in.noteOver(e, eff)
		turn.Row = in.describe()
	}
	return turns
}

func past(instance string, execution int64, history []events.Event, began func(events.Fact) bool) (Turn, bool) {
	in := newPast(instance, execution)
	turn := in.turn
	within, carried := false, 0
	for _, e := range history {
		if in.ledger.follows(e) != nil {
			return Turn{}, false
		}
		carried = in.ledger.carried
		eff, err := in.ledger.apply(e)
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
		in.noteOver(e, eff)
		if carried == 0 {
			in.promise(e, eff)
		}
		turn.Row = in.describe()
	}
	return turn.tidied(), within
}

// newPast is an instance that is about to read its history, and decides nothing.
func newPast(instance string, execution int64) *Instance {
	in := &Instance{config: &Config{}, id: instance,
		ledger: ledger{info: coro.Info{Instance: instance, Execution: execution}}}
	in.busy, in.rounds = busyWith(Turn{Instance: instance}), 1
	return in
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
	case *events.QueueSent:
		q, ok := f.(*events.MessageQueued)
		return ok && q.Message == m.ID
	case *events.Control:
		return messageOf(f) == m.ID && m.ID != ""
	case *events.WorkBegun:
		b, ok := f.(*events.ActivityBegun)
		return ok && b.Schedule == c.Ref.Event && b.Pending == c.Pending
	case *events.WorkDone:
		return answers(f) == c.Ref.Event
	case *events.WorkFailed:
		return answers(f) == c.Ref.Event
	case *events.TimerDue:
		return answers(f) == c.Ref.Event
	case *events.ChildDone:
		return answers(f) == c.Ref.Event
	case *events.ChildError:
		return answers(f) == c.Ref.Event
	}
	return false
}

// messageOf is the id of the message by which somebody has steered an instance.
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
	}
	return 0
}

// ExecutionOf is the execution that a message is for; 0 if it is for the one that is current.
func ExecutionOf(m events.Message) int64 {
	switch c := m.Content.(type) {
	case *events.WorkBegun:
		return c.Ref.Execution
	case *events.WorkDone:
		return c.Ref.Execution
	case *events.WorkFailed:
		return c.Ref.Execution
	case *events.TimerDue:
		return c.Ref.Execution
	case *events.ChildDone:
		return c.Ref.Execution
	case *events.ChildError:
		return c.Ref.Execution
	}
	return 0
}
