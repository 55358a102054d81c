package worker

import (
	"github.com/rondo-run/rondo/pkg/failure"
)

// state is the state of an attempt.
type state int

const (
	// waiting is an attempt whose function has not been called: it waits for a slot, or for its
	// admission.
	waiting state = iota
	// cancelled is a waiting attempt whose function must not be called any more.
	cancelled
	// running is an attempt whose function was called.
	running
	// ending is a running attempt whose function's context has ended. The function has a grace.
	ending
	// decided is an attempt whose outcome is decided, and published if there is one. A function
	// that was given up may still run.
	decided
	// settled is an attempt whose deliveries are nacked, or left to another worker.
	settled
	// acknowledged is an attempt whose deliveries are acknowledged.
	acknowledged
)

// change is an event that may change the state of an attempt.
type change int

const (
	onCall    change = iota // the worker calls the function
	onStop                  // a time limit is over, the task is withdrawn, or the worker shuts down
	onReturn                // the function has returned, or an error takes the place of its call
	onGiveUp                // the worker waits for the function no longer
	onDecline               // the worker does not execute the task
	onSettle                // the worker nacks the deliveries, or leaves them to another worker
	onAck                   // the worker acknowledges the deliveries
)

// transition returns the state after a change. It returns false if the change has no effect: the
// first decision counts.
//
//	              onCall   onStop     onReturn  onGiveUp  onDecline  onSettle  onAck
//	waiting       running  cancelled  decided   decided   decided    -         -
//	cancelled     -        -          decided   decided   decided    -         -
//	running       -        ending     decided   decided   -          -         -
//	ending        -        -          decided   decided   -          -         -
//	decided       -        -          -         -         -          settled   acknowledged
//	settled       -        -          -         -         -          -         -
//	acknowledged  -        -          -         -         -          -         -
func transition(s state, c change) (next state, ok bool) {
	switch {
	case c == onCall && s == waiting:
		return running, true
	case c == onStop && s == waiting:
		return cancelled, true
	case c == onStop && s == running:
		return ending, true
	case (c == onReturn || c == onGiveUp) && s < decided:
		return decided, true
	case c == onDecline && s <= cancelled:
		return decided, true
	case c == onSettle && s == decided:
		return settled, true
	case c == onAck && s == decided:
		return acknowledged, true
	}
	return s, false
}

// lifecycle is the state of an attempt, with the reason to stop. It is guarded by the attempt's
// lock.
type lifecycle struct {
	state   state
	cause   *failure.Error // why the function must stop, or must not be called; nil: no reason
	givenUp bool           // the function was still running when the outcome was decided
}

// move changes the state, and reports whether the change has an effect.
func (l *lifecycle) move(c change) bool {
	next, ok := transition(l.state, c)
	if ok && c == onGiveUp {
		l.givenUp = l.inCall()
	}
	l.state = next
	return ok
}

// inCall reports whether the function was called, and the outcome is open.
func (l *lifecycle) inCall() bool { return l.state == running || l.state == ending }

// open reports whether the outcome is not decided yet.
func (l *lifecycle) open() bool { return l.state < decided }

// over reports whether all deliveries are settled.
func (l *lifecycle) over() bool { return l.state > decided }

// wanted reports whether the worker means to complete the task, as far as it knows.
func (l *lifecycle) wanted() bool { return l.state == waiting || l.state == running }
