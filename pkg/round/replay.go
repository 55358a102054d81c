package round

import (
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
)

// endedByEngine reports whether an execution was ended by a failure that its code did not return.
func endedByEngine(f events.Fact) bool {
	failed, ok := f.(*events.Failed)
	if !ok || failed.Error.Source != "" {
		return false
	}
	switch failed.Error.Kind {
	case events.Application, events.CancelledError, events.TerminatedError, events.Timeout, events.Conflict,
		events.Infrastructure:
		return false
	}
	return true
}

// Replay runs today's code along a history, ended or not, and tells whether they fit. It changes
// nothing. The warnings are differences that would not stop an instance in production but may be
// worth a look: the same things done with other data.
func Replay(config *Config, known Known) (warnings []string, err error) {
	if len(known.History) == 0 {
		return nil, errors.New("the history is empty")
	}
	started, ok := known.History[0].Fact.(*events.Started)
	if !ok {
		return nil, fmt.Errorf("the history begins with %s", known.History[0].Fact.Kind())
	}
	in := New(config, known)
	defer in.Evict()
	if _, ok := config.Code.Lookup(started.Name, started.Version); !ok {
		return nil, &events.Error{Kind: events.Unregistered, Final: true,
			Message: in.unknownCode(started.Name, started.Version)}
	}
	in.busy = busyWith(Turn{})
	in.cold = nil
	history := known.History
	if n := len(history); endedByEngine(history[n-1].Fact) {
		history, in.openEnd = history[:n-1], true
	}
	in.replay(history)
	switch {
	case in.unreadable != nil:
		return in.turn.Warnings, in.unreadable
	case in.fault != nil:
		return in.turn.Warnings, in.fault
	}
	return in.turn.Warnings, nil
}
