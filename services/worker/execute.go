package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/awake"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// maxLastMoment is the longest time that a function gets to return after a time limit.
const maxLastMoment = time.Second

// executor calls the functions of attempts, stops them, and carries out the decided outcomes.
type executor struct {
	id        string
	grace     time.Duration // after a withdrawal; see maxLastMoment for time limits
	code      *activity.Registry
	codec     codec.Codec
	logger    *slog.Logger
	tracer    *telemetry.Tracer
	metrics   *telemetry.TaskMetrics
	awake     *awake.Clock // does not advance while the process is frozen
	held      *held
	settler   *settler
	completer *completer
}

// run calls the function.
func (x *executor) run(a *attempt) (codec.Payload, error) {
	binding, _ := x.code.Lookup(a.work.Activity)
	traced := x.traced(a)
	ctx, cancel := context.WithCancelCause(traced)
	defer cancel(nil)
	now := time.Now() // the limit and the measured time begin together
	limit, why := timeLimit(a.work, now)
	if !limit.IsZero() {
		limited, stop := context.WithDeadlineCause(ctx, limit, why)
		defer stop()
		ctx = limited
	}
	if cause := x.start(a, cancel, now, limit, why); cause != nil {
		return nil, cause
	}
	return binding.Run(activity.NewContext(ctx, activity.Environment{
		Info: a.info(x.id), Codec: x.codec, Logger: x.logger, Last: a.progress.last,
		Heartbeat: func(progress codec.Payload) error { return x.beat(a, progress) },
		Token:     events.Token(a.m.Instance, a.work.Ref),
	}), x.codec, a.work.Input)
}

// traced begins the span of the attempt, which ends when its outcome is decided.
func (x *executor) traced(a *attempt) context.Context {
	k := a.work
	ctx, from, end := x.tracer.Begin(context.Background(), telemetry.Attempt{
		Trace: a.m.Trace, TraceState: a.m.TraceState, Baggage: a.m.Baggage, Name: k.Activity, Instance: a.m.Instance,
		Orchestration: k.Orchestration, Ref: k.Ref, Number: k.Attempt,
		NumDelivered: a.numDelivered(), Tag: k.Tag, Session: k.Session, Worker: x.id,
	})
	a.mu.Lock()
	a.span = span{from, end}
	a.mu.Unlock()
	return ctx
}

// timeLimit returns the earliest time limit of a task that begins now, and the error for it; zero
// if there is none.
func timeLimit(work *events.Task, now time.Time) (time.Time, *failure.Error) {
	at, why := work.Deadline, timeout(failure.TimeoutScheduleToClose, overallMessage)
	if d := work.StartToClose; d > 0 {
		if end := now.Add(d); at.IsZero() || end.Before(at) {
			at, why = end, timeout(failure.TimeoutStartToClose, "it took longer than "+d.String())
		}
	}
	return at, why
}

// start starts the timers. It returns the reason if the function must not be called after all.
func (x *executor) start(a *attempt, cancel context.CancelCauseFunc, now, limit time.Time,
	why *failure.Error) *failure.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.life.move(onCall) {
		return a.life.cause
	}
	c := &a.call
	c.cancel, c.at = cancel, now
	if a.numDelivered() == 1 {
		since := a.d.StoredAt
		if a.d.NotBefore.After(since) {
			since = a.d.NotBefore
		}
		x.metrics.Begun(a.measured(), c.at.Sub(since))
	}
	moment := min(x.grace, maxLastMoment)
	if c.ends, c.why = limit, why; !limit.IsZero() {
		c.timers = append(c.timers, time.AfterFunc(time.Until(limit), func() { x.stop(a, why, moment) }))
	}
	if d := a.work.HeartbeatTimeout; d > 0 {
		c.beatAt = x.awake.Now()
		c.beating = time.AfterFunc(d, func() { x.silent(a, moment) })
	}
	return nil
}

// beat handles a heartbeat.
func (x *executor) beat(a *attempt, progress codec.Payload) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.life.wanted() {
		return context.Canceled
	}
	x.metrics.Heartbeat(a.q.name.Activity)
	a.progress.beat(progress)
	if a.call.beating != nil {
		a.call.beatAt = x.awake.Now()
		a.call.beating.Reset(a.work.HeartbeatTimeout)
	}
	return nil
}

// silent stops an attempt without heartbeats. While the process is frozen, an attempt can send
// none, so that this time does not count.
func (x *executor) silent(a *attempt, grace time.Duration) {
	a.mu.Lock()
	d := a.work.HeartbeatTimeout
	rest := d - (x.awake.Now() - a.call.beatAt)
	if rest > 0 && a.life.open() {
		a.call.beating.Reset(rest)
	}
	a.mu.Unlock()
	if rest <= 0 {
		x.stop(a, timeout(failure.TimeoutHeartbeat, "it gave no heartbeat for "+d.String()), grace)
	}
}

// withdraw stops an attempt whose result is no longer wanted.
func (x *executor) withdraw(a *attempt) { x.stop(a, withdrawn, x.grace) }

// stop ends the function's context. If the function has not returned after the grace, stop gives it
// up. Only the first reason counts.
func (x *executor) stop(a *attempt, cause *failure.Error, grace time.Duration) {
	a.mu.Lock()
	if !a.life.move(onStop) {
		a.mu.Unlock()
		return
	}
	a.life.cause = cause
	cancel := a.call.cancel
	if a.life.inCall() {
		a.call.timers = append(a.call.timers, time.AfterFunc(grace, func() { x.giveUp(a) }))
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// end decides the outcome by the result of the function.
func (x *executor) end(a *attempt, result codec.Payload, err error) {
	a.mu.Lock()
	if l, c := &a.life, &a.call; l.cause == nil && err != nil && !c.ends.IsZero() && !time.Now().Before(c.ends) {
		l.cause = c.why // its context has ended a moment before the clock
	}
	first := a.life.move(onReturn)
	givenUp, cause := a.life.givenUp, a.life.cause
	a.call.stopTimers()
	a.mu.Unlock()
	switch {
	case first:
		x.settle(a, cause, result, err)
	case givenUp:
		x.held.returned(a)
		a.log().Info("worker: an activity that was given up has returned", "after", time.Since(a.since))
	}
}

// giveUp decides the outcome without waiting for the function any longer.
func (x *executor) giveUp(a *attempt) {
	a.mu.Lock()
	if !a.life.move(onGiveUp) {
		a.mu.Unlock()
		return
	}
	if a.life.cause == nil {
		a.life.cause = stopping
	}
	cause, givenUp, cancel := a.life.cause, a.life.givenUp, a.call.cancel
	if givenUp { // BEFORE the function can return, which removes it again
		x.held.lost(a)
	}
	a.call.stopTimers()
	a.mu.Unlock()
	if givenUp {
		cancel(cause)
		a.log().Warn("worker: an activity ignores that its context has ended; its slot stays taken until it returns",
			"reason", cause.Message)
	}
	x.settle(a, cause, nil, cause)
}

// settle carries out the decision.
func (x *executor) settle(a *attempt, cause *failure.Error, result codec.Payload, err error) {
	if a.span.end != nil {
		switch {
		case cause != nil:
			a.span.end(cause)
		case err != nil && !errors.Is(err, activity.ErrResultPending):
			a.span.end(failure.From(err))
		default:
			a.span.end(nil)
		}
	}
	switch {
	case cause == withdrawn:
		a.log().Debug("worker: the result of an activity is dropped: nobody waits for it")
		x.settler.measure(a, telemetry.TaskCancelled, nil)
		x.settler.finish(a, dropped, 0)
	case cause == stopping && err != nil:
		x.settler.measure(a, telemetry.TaskReturned, nil)
		x.settler.finish(a, returned, 0)
	case cause != nil && cause.Kind == failure.Timeout:
		x.settler.measure(a, "", cause)
		x.completer.fail(a, cause)
	case errors.Is(err, activity.ErrResultPending):
		x.settler.measure(a, telemetry.TaskPending, nil)
		x.completer.pending(a)
	case err != nil:
		failed := failure.From(err)
		x.settler.measure(a, "", failed)
		x.completer.fail(a, failed)
	default:
		x.settler.measure(a, "", nil)
		x.completer.done(a, result)
	}
}
