package round

import "github.com/rondo-run/rondo/pkg/events"

// Withdrawn counts what the turn that ended an execution has withdrawn.
type Withdrawn struct {
	Tasks  int // of activities
	Timers int
}

// WithdrawnAtEnd counts what the last turn of an execution that has ended has withdrawn. History
// tells that: the last event closes all open calls, and withdraws their messages, unless they are
// of the same turn.
func WithdrawnAtEnd(history []events.Event) (w Withdrawn, err error) {
	n := len(history)
	if n == 0 || !events.Ends(history[n-1].Fact) {
		return w, nil
	}
	var l ledger
	if err := l.load(history[:n-1]); err != nil {
		return w, err
	}
	end := history[n-1]
	if err := l.follows(end); err != nil {
		return w, err
	}
	eff, err := l.apply(end)
	for _, c := range eff.closed {
		if c.abandon || c.since.Equal(end.At) {
			continue
		}
		switch c.kind {
		case openActivity:
			w.Tasks++
		case openTimer:
			w.Timers++
		case openChild, openWait, openRead: // a child ends by itself, for the others nothing was sent
		}
	}
	return w, err
}
