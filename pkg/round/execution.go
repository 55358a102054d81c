package round

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// execution runs the code of the current execution of an instance: it gives the code what happens,
// and records what the code says.
type execution struct {
	recorder
	program   *coro.Program
	playback  playback
	interrupt atomic.Bool
	pending   bool // the code of the current execution has not run yet

	clock     time.Time // what the code sees as now
	said      int       // facts the code has said since the last fact from outside
	continues int       // executions that this round has continued as new
	fault     *failure.Error
	waiting   []delivered // facts from outside that wait for the code to be resumed
}

// delivered is a fact from outside with what it answers.
type delivered struct {
	event   events.Event
	answers []coro.Answer
}

// runPending runs the code of an execution for the first time, in a later round than the one that
// started it.
func (x *execution) runPending() Receipt {
	code, ok := coro.Find(x.config.Code, x.ledger.info.Name, x.ledger.info.Version)
	if !ok {
		return Receipt{Verdict: Returned, Reason: NotKnownHere,
			Detail: x.config.unknownCode(x.ledger.info.Name, x.ledger.info.Version)}
	}
	x.begin(code)
	return Receipt{}
}

// begin runs the code of the current execution for the first time.
func (x *execution) begin(code coro.Func) {
	x.pending = false
	x.said = 0
	x.clock = x.ledger.origin.started
	x.interrupt.Store(false)
	input := x.ledger.origin.input
	x.ledger.origin.input = nil
	x.program = coro.New(host{x}, code, input, &x.interrupt, x.config.Coroutines,
		x.config.CheckGoroutines)
	x.run()
}

// happen appends a fact from outside and tells the code.
func (x *execution) happen(f events.Fact) {
	e, eff := x.append(f)
	x.deliver(delivered{e, eff.answers})
	if x.ledger.running() && x.ledger.tail.over() != nil && !x.pending {
		x.conclude(coro.Outcome{Err: x.ledger.tail.over(), Error: x.ledger.tail.over()})
	}
}

// tell brings a fact from outside to the code, or keeps it for when the code may go on.
func (x *execution) deliver(d delivered) {
	switch d.event.Fact.(type) {
	case *events.Suspended:
		return
	case *events.Resumed:
		if x.ledger.halted() {
			return
		}
		waiting, execution := x.waiting, x.ledger.info.Execution
		x.waiting = nil
		for _, w := range waiting {
			if x.ledger.info.Execution != execution {
				return // the code has continued as new; what else came was for the execution before
			}
			w.event.At = d.event.At // the code sees it now
			x.advance(w)
		}
		return
	case *events.Terminated:
		x.evict()
		return
	default:
	}
	if x.ledger.halted() {
		x.waiting = append(x.waiting, d)
		return
	}
	x.advance(d)
}

// advance lets the code go on with what happened.
func (x *execution) advance(d delivered) {
	if x.program == nil || x.fault != nil || !x.ledger.running() {
		return
	}
	x.clock = d.event.At
	x.said = 0
	switch f := d.event.Fact.(type) {
	case *events.CancelRequested:
		x.program.Cancel(&failure.Error{Kind: failure.Cancelled,
			Message: because("cancelled", f.Reason), NonRetryable: true})
	case *events.StepCompleted:
		x.stepped(d.event, x.program.ResolveStep(f.Step, f.Name, 0, f.Result, nil))
	case *events.StepFailed:
		x.stepped(d.event, x.program.ResolveStep(f.Step, f.Name, f.Attempt, nil, f.Error))
	default:
		for _, a := range d.answers {
			x.program.Resolve(a)
		}
	}
	x.run()
}

// stepped checks that the code knows of a step that history has a result of.
func (x *execution) stepped(e events.Event, known bool) {
	if !known && x.fault == nil {
		x.misfitAt(e, nil)
	}
}

// run lets the code go on until it waits, and takes its end if that is where it got.
func (x *execution) run() {
	if x.fault == nil {
		x.program.Run()
	}
	if x.fault != nil && x.fault.Kind == failure.Nondeterminism {
		x.evict()
		return
	}
	if x.fault != nil {
		fault := x.fault
		x.fault = nil
		x.conclude(coro.Outcome{Err: fault, Error: fault})
		return
	}
	if out, ended := x.program.Outcome(); ended {
		x.conclude(out)
	}
}

// conclude ends the execution as the code wants it.
func (x *execution) conclude(out coro.Outcome) {
	fact, next := x.ending(out)
	x.evict()
	if x.playback.on {
		if x.interrupt.Load() {
			x.unreadable = errors.New("its replay took too long and was stopped")
			return
		}
		x.matchNext(fact)
		return
	}
	var unread []message
	if next != nil {
		unread = x.ledger.mail.unreadMessages()
	}
	if f, ok := fact.(*events.Failed); ok && brokeDown(f.Error) {
		x.turn.Fault = f.Error
	}
	x.append(fact)
	if next != nil {
		x.continueAsNew(next, unread)
	}
}

// ending picks the fact that ends the execution.
func (x *execution) ending(out coro.Outcome) (events.Fact, *coro.ContinueAsNew) {
	next := out.Next
	if out.Err == nil {
		if err := events.CheckPayload("output of orchestration "+quote(x.ledger.info.Name), out.Output); err != nil {
			//lint:ignore nilerr the fact has the error; a nil ContinueAsNew is not one
			return &events.Failed{Error: err}, nil
		}
	}
	if c := x.ledger.cancel; c != nil && !brokeDown(out.Err) {
		f := &events.Cancelled{Reason: c.Reason, Output: out.Output}
		if out.Error != nil && !out.Cancelled {
			f.Error = events.Bounded(out.Error)
		}
		return f, nil
	}
	switch {
	case out.Err == nil:
		return &events.Completed{Output: out.Output}, nil
	case next != nil:
		if err := events.CheckPayload("input to continue orchestration "+quote(next.Name)+" with",
			next.Input); err != nil {
			//lint:ignore nilerr the fact has the error; a nil ContinueAsNew is not one
			return &events.Failed{Error: err}, nil
		}
		if next.Version == "" {
			version, ok := x.config.Code.Resolve(next.Name)
			if !ok {
				return &events.Failed{Error: &failure.Error{Kind: failure.Unregistered, NonRetryable: true,
					Message: x.config.unknownCode(next.Name, "")}}, nil
			}
			next.Version = version
		}
		return &events.ContinuedAsNew{Name: next.Name, Version: next.Version, Input: next.Input}, next
	}
	return &events.Failed{Error: events.Bounded(out.Error)}, nil
}

// fire answers a timer, or ends an attempt whose time is up.
func (x *execution) fire(id int64) {
	o := x.ledger.calls.open.Get(id)
	if o.kind == openTimer {
		x.happen(&events.TimerFired{Timer: id})
		return
	}
	err := &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutScheduleToClose,
		Message: "it was not done within its time limit from schedule to close"}
	if o.deadline.IsZero() || o.deadline.After(x.now) {
		err = &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutScheduleToStart,
			Message: "no worker took it up in time"}
		if o.tag != "" {
			err.Message += "; is a worker running with tag " + quote(o.tag) + "?"
		}
	}
	x.turn.send(x.withdraw(id, o)...)
	x.happen(&events.ActivityFailed{Schedule: id, Error: err})
}

// stillWanted reports whether a step that this turn would hand out has no result yet: it may have
// got one in this very turn, or one that waits for the code to be resumed.
func (x *execution) stillWanted(s Step) bool {
	return x.program != nil && s.Execution == x.ledger.info.Execution &&
		s.StepRef.Incarnation == x.ledger.info.Incarnation &&
		x.program.Waits(s.StepRef.Number, s.Attempt) && !x.ledger.steps.answered(s.StepRef.Number, s.Attempt)
}

// brokeDown reports whether the engine stopped the code, whatever it was doing.
func brokeDown(err error) bool {
	e, ok := err.(*failure.Error)
	if !ok || e == nil {
		return false
	}
	switch e.Kind {
	case failure.Panicked, failure.Runaway, failure.Deadlock, failure.LimitExceeded, failure.Unregistered:
		return e.Source == ""
	default:
	}
	return false
}

// evict ends the coroutines and frees their memory.
func (x *execution) evict() {
	if x.program != nil {
		x.program.Close()
		x.program = nil
	}
}

// describe writes the instance's row.
func (x *execution) describe() Row {
	return x.newRow(codeState{pending: x.pending, stepping: x.program != nil && x.program.Stepping()})
}
