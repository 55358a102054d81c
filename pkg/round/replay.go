package round

import (
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// playback is the history that the code is replayed along.
type playback struct {
	on      bool
	openEnd bool           // the history was ended by the engine: where the code would have gone is not in it
	rest    []events.Event // that the code has not repeated yet
	matched events.Event   // the one that the code just repeated
}

// endedByEngine reports whether an execution was ended by a failure that its code did not return.
func endedByEngine(f events.Fact) bool {
	failed, ok := f.(*events.Failed)
	if !ok || failed.Error.Source != "" {
		return false
	}
	switch failed.Error.Kind {
	case failure.Application, failure.Cancelled, failure.Terminated, failure.Timeout, failure.Conflict,
		failure.Infrastructure:
		return false
	default:
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
	x := &in.run
	if !config.Code.Has(started.Name, started.Version) {
		return nil, &failure.Error{Kind: failure.Unregistered, NonRetryable: true,
			Message: config.unknownCode(started.Name, started.Version)}
	}
	x.busy = busyWith(Turn{})
	x.cold = nil
	history := known.History
	if n := len(history); endedByEngine(history[n-1].Fact) {
		history, x.playback.openEnd = history[:n-1], true
	}
	x.replay(history)
	switch {
	case x.unreadable != nil:
		return x.turn.Warnings, x.unreadable
	case x.fault != nil:
		return x.turn.Warnings, x.fault
	}
	return x.turn.Warnings, nil
}

// rehydrate replays a cold history.
func (x *execution) rehydrate() Receipt {
	started, ok := x.cold[0].Fact.(*events.Started)
	if ok {
		if !x.config.Code.Has(started.Name, started.Version) {
			return Receipt{Verdict: Returned, Reason: NotKnownHere,
				Detail: x.config.unknownCode(started.Name, started.Version)}
		}
	}
	history := x.cold
	x.cold = nil
	x.replay(history)
	switch {
	case x.unreadable != nil:
		return Receipt{Verdict: Returned, Reason: CannotRead, Detail: x.unreadable.Error()}
	case x.fault != nil:
		x.misfit()
	case x.pending:
		return x.runPending()
	case x.ledger.halt != nil:
		x.happen(&events.Resumed{Healed: true, Reason: "the code fits its history again"})
	}
	return Receipt{}
}

// replay runs the code along its history. Afterwards the code is where it was, or fault says where
// it parted from history, or unreadable says where history contradicts itself.
func (x *execution) replay(history []events.Event) {
	x.fault, x.waiting = nil, nil
	x.ledger = newLedger(x.id, x.ledger.info.Execution)
	x.playback.rest = history
	x.playback.on = true
	x.turn.Replayed = len(history)
	for len(x.playback.rest) > 0 && x.fault == nil && x.unreadable == nil {
		x.replayNext()
	}
	for len(x.playback.rest) > 0 && x.unreadable == nil { // beyond a misfit only the ledger goes on
		x.next()
	}
	if x.ledger.tail.inherited > 0 {
		x.unreadable = errors.New("history ends within what the execution inherited")
	}
	x.playback = playback{}
	if x.unreadable != nil {
		x.evict()
		x.ledger = newLedger(x.id, x.ledger.info.Execution)
		return
	}
	if x.fault == nil && x.program != nil {
		for _, s := range x.program.OpenSteps() {
			x.turn.Steps = append(x.turn.Steps, x.step(s, true))
		}
	}
}

// next takes the next event of the history that is being replayed into the ledger.
func (x *execution) next() (events.Event, effects) {
	e := x.playback.rest[0]
	x.playback.rest = x.playback.rest[1:]
	err := x.ledger.follows(e)
	var eff effects
	if err == nil {
		eff, err = x.ledger.apply(e)
	}
	if err != nil {
		x.unreadable = err
	}
	return e, eff
}

// replayNext replays one fact from outside and what the code said because of it.
func (x *execution) replayNext() {
	inherited := x.ledger.tail.inherited > 0
	if f := x.playback.rest[0].Fact; !events.FromOutside(f) && !inherited {
		if _, ok := f.(*events.Patched); !ok { // the code may have stopped to ask about a change
			x.misfitAt(x.playback.rest[0], nil)
			return
		}
	}
	e, eff := x.next()
	if x.unreadable != nil {
		return
	}
	_, started := e.Fact.(*events.Started)
	switch {
	case (started || inherited) && x.ledger.tail.inherited == 0:
		x.firstRun()
	case !started && !inherited && events.FromOutside(e.Fact):
		x.deliver(delivered{e, eff.answers})
	}
}

// firstRun is the replay's begin.
func (x *execution) firstRun() {
	if len(x.playback.rest) == 0 && x.stored().Fresh {
		x.pending = true // it runs for real
		return
	}
	code, _ := coro.Find(x.config.Code, x.ledger.info.Name, x.ledger.info.Version)
	x.begin(code)
}
