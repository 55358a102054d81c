package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
)

// attempt is a piece of work that the worker holds. What becomes of it is decided once, by whoever
// comes first: its function, a time limit, somebody who withdraws it, or the end of the worker.
type attempt struct {
	w          *Worker
	q          *queue
	d          broker.Delivery
	m          events.Message
	work       *events.Work
	unreadable error
	since      time.Time
	inSession  bool
	next       *attempt // of the same subject: see held

	mu         sync.Mutex
	holds      []broker.Hold // one for each time it was handed out
	extendedAt time.Time
	extended   int

	cancel  context.CancelCauseFunc // of the function's context
	cause   *events.Error           // why it is to stop
	running bool
	timers  []*time.Timer
	ends    time.Time // when its time is over, zero for never, and
	why     *events.Error
	beating *time.Timer   // fires when there was no heartbeat for too long
	beatAt  time.Duration // when there was one, by the worker's clock

	from string                     // the place in the trace of what is said about it
	tell func(failed *events.Error) // ends its span, if it has one

	called time.Time // when the function was, for metrics

	last     events.Payload // progress, of this attempt or the one before
	begun    int            // how often it was noted that it begins; see recall
	dirty    bool           // there is progress to be noted
	noting   bool
	notedAt  time.Time
	hasNote  bool
	decided  bool
	givenUp  bool
	over     bool // nothing is left to be done
	stored   bool // work that was passed on was seen in the stream
	wasAcked bool
}

// The reasons for which an attempt stops, besides its time limits and the end of the worker.
// Activities find them with context.Cause.
var (
	withdrawn = &events.Error{Kind: events.CancelledError, Message: "nobody waits for the result any more"}
	goexited  = &events.Error{Kind: events.Panicked,
		Message: "it ended its goroutine (runtime.Goexit) instead of returning"}
)

func timeout(typ, message string) *events.Error {
	return &events.Error{Kind: events.Timeout, Type: typ, Message: message}
}

const overallMessage = "it was not done within its overall time limit"

// maxLastMoment bounds how long a function may take to return when its time is over.
const maxLastMoment = time.Second

// incarnation tells work of the same place in different incarnations of an instance apart.
func (a *attempt) incarnation() string { return incarnationOf(a.d) }

func (a *attempt) sameAs(b *attempt) bool { return a.incarnation() == b.incarnation() }

// join adds a further delivery of the same work. It reports false when it is too late for that.
func (a *attempt) join(h broker.Hold) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.wasAcked:
		h.Ack()
	case a.over || a.cause != nil:
		return false
	default:
		a.holds = append(a.holds, h)
	}
	return true
}

// run calls the function.
func (a *attempt) run() (events.Payload, error) {
	w := a.w
	binding, _ := w.code.Lookup(a.work.Activity)
	traced := a.traced()
	ctx, cancel := context.WithCancelCause(traced)
	defer cancel(nil)
	limit, why := a.limit()
	if !limit.IsZero() {
		limited, stop := context.WithDeadlineCause(ctx, limit, why)
		defer stop()
		ctx = limited
	}
	if cause := a.start(cancel, limit, why); cause != nil {
		return nil, cause
	}
	return binding.Run(activity.NewContext(ctx, activity.Environment{
		Info: a.info(), Codec: w.config.Codec, Logger: w.config.Logger, Heartbeat: a.beat, Last: a.last,
		Token: events.Token(a.m.Instance, a.work.Ref),
	}), w.config.Codec, a.work.Input)
}

// traced begins to tell of the attempt. It ends where what becomes of the attempt is decided.
func (a *attempt) traced() context.Context {
	k := a.work
	ctx, from, end := a.w.config.Tracer.Begin(context.Background(), telemetry.Attempt{
		Trace: a.m.Trace, TraceState: a.m.TraceState, Baggage: a.m.Baggage, Name: k.Activity, Instance: a.m.Instance,
		Orchestration: k.Orchestration, Ref: k.Ref, Number: k.Attempt,
		NumDelivered: a.d.NumDelivered, Tag: k.Tag, Session: k.Session, Worker: a.w.config.ID,
	})
	a.mu.Lock()
	a.from, a.tell = from, end
	a.mu.Unlock()
	return ctx
}

func (a *attempt) info() activity.Info {
	k := a.work
	return activity.Info{
		Activity: k.Activity, Instance: a.m.Instance, Execution: k.Ref.Execution, Orchestration: k.Orchestration,
		Version: k.Version, Attempt: k.Attempt,
		IdempotencyKey: k.IdempotencyKey, Tag: k.Tag, Session: k.Session, Worker: a.w.config.ID, Deadline: k.Deadline,
	}
}

// limit is when its time is over, and which time that is; zero for never.
func (a *attempt) limit() (time.Time, *events.Error) {
	at, why := a.work.Deadline, timeout(events.TimeoutOverall, overallMessage)
	if d := a.work.StartToClose; d > 0 {
		if end := time.Now().Add(d); at.IsZero() || end.Before(at) {
			at, why = end, timeout(events.TimeoutStartToClose, "it took longer than "+d.String())
		}
	}
	return at, why
}

// start sets the clocks. The result is why it must not be started after all.
func (a *attempt) start(cancel context.CancelCauseFunc, limit time.Time, why *events.Error) *events.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause != nil {
		return a.cause
	}
	a.running, a.cancel, a.called = true, cancel, time.Now()
	if a.d.NumDelivered == 1 {
		since := a.d.StoredAt
		if a.d.NotBefore.After(since) {
			since = a.d.NotBefore
		}
		a.w.config.Metrics.Begun(a.measured(), a.called.Sub(since))
	}
	moment := min(a.w.config.Grace, maxLastMoment)
	if a.ends, a.why = limit, why; !limit.IsZero() {
		a.timers = append(a.timers, time.AfterFunc(time.Until(limit), func() { a.stop(why, moment) }))
	}
	if d := a.work.HeartbeatTimeout; d > 0 {
		a.beatAt = a.w.awake.Now()
		a.beating = time.AfterFunc(d, func() { a.silent(moment) })
	}
	return nil
}

// beat takes a heartbeat.
func (a *attempt) beat(progress events.Payload) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause != nil || a.decided {
		return context.Canceled
	}
	a.w.config.Metrics.Heartbeat(a.q.name.Activity)
	a.last, a.dirty = progress, true
	if a.beating != nil {
		a.beatAt = a.w.awake.Now()
		a.beating.Reset(a.work.HeartbeatTimeout)
	}
	return nil
}

// silent stops an attempt that gives no heartbeats. While the process stood still it could give
// none, so that time does not count.
func (a *attempt) silent(grace time.Duration) {
	a.mu.Lock()
	d := a.work.HeartbeatTimeout
	rest := d - (a.w.awake.Now() - a.beatAt)
	if rest > 0 && !a.decided {
		a.beating.Reset(rest)
	}
	a.mu.Unlock()
	if rest <= 0 {
		a.stop(timeout(events.TimeoutHeartbeat, "it gave no heartbeat for "+d.String()), grace)
	}
}

// stop ends the function's context; when it has not returned after the grace, it is given up. The
// first reason counts.
func (a *attempt) stop(cause *events.Error, grace time.Duration) {
	a.mu.Lock()
	if a.decided || a.cause != nil {
		a.mu.Unlock()
		return
	}
	a.cause = cause
	cancel := a.cancel
	if a.running {
		a.timers = append(a.timers, time.AfterFunc(grace, a.giveUp))
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// end decides by what the function has returned.
func (a *attempt) end(result events.Payload, err error) {
	a.mu.Lock()
	if a.cause == nil && err != nil && !a.ends.IsZero() && !time.Now().Before(a.ends) {
		a.cause = a.why // its context has ended a moment before the clock
	}
	first, givenUp, cause := !a.decided, a.givenUp, a.cause
	a.decided, a.running = true, false
	a.stopTimers()
	a.mu.Unlock()
	switch {
	case first:
		a.settle(cause, result, err)
	case givenUp:
		a.w.held.returned(a)
		a.log().Info("worker: an activity that was given up has returned", "after", time.Since(a.since))
	}
}

// giveUp decides without waiting for the function any longer.
func (a *attempt) giveUp() {
	a.mu.Lock()
	if a.decided {
		a.mu.Unlock()
		return
	}
	if a.cause == nil {
		a.cause = stopping
	}
	cause, running, cancel := a.cause, a.running, a.cancel
	a.decided, a.givenUp = true, running
	a.stopTimers()
	a.mu.Unlock()
	if running {
		a.w.held.lost(a)
		cancel(cause)
		a.log().Warn("worker: an activity ignores that its context has ended; its slot stays taken until it returns",
			"reason", cause.Message)
	}
	a.settle(cause, nil, cause)
}

func (a *attempt) stopTimers() {
	for _, t := range a.timers {
		t.Stop()
	}
	if a.beating != nil {
		a.beating.Stop()
	}
}

// measured is what metrics say of the work.
func (a *attempt) measured() telemetry.Work {
	m := telemetry.Work{Activity: a.q.name.Activity, Tag: a.q.name.Tag}
	if a.work != nil {
		m.Attempt = a.work.Attempt
	}
	return m
}

// measure records how it ended: an outcome, or an error of the function; nil if it has succeeded.
func (a *attempt) measure(outcome string, failed *events.Error) {
	took := time.Duration(-1)
	if !a.called.IsZero() {
		took = time.Since(a.called)
	}
	a.w.config.Metrics.Finished(a.measured(), outcome, failed, took)
}

// settle does what was decided.
func (a *attempt) settle(cause *events.Error, result events.Payload, err error) {
	if a.tell != nil {
		switch {
		case cause != nil:
			a.tell(cause)
		case err != nil && !errors.Is(err, activity.ErrPending):
			a.tell(events.AsError(err))
		default:
			a.tell(nil)
		}
	}
	switch {
	case cause == withdrawn:
		a.log().Debug("worker: the result of an activity is dropped: nobody waits for it")
		a.measure(telemetry.WorkCancelled, nil)
		a.finish(dropped, 0)
	case cause == stopping && err != nil:
		a.measure(telemetry.WorkReturned, nil)
		a.finish(returned, 0)
	case cause != nil && cause.Kind == events.Timeout:
		a.measure("", cause)
		a.w.fail(a, cause)
	case errors.Is(err, activity.ErrPending):
		a.measure(telemetry.WorkPending, nil)
		a.w.pending(a)
	case err != nil:
		failed := events.AsError(err)
		a.measure("", failed)
		a.w.fail(a, failed)
	default:
		a.measure("", nil)
		a.w.done(a, result)
	}
}

// giveBack returns work that was not begun.
func (a *attempt) giveBack(after time.Duration) {
	a.mu.Lock()
	first := !a.decided
	a.decided = true
	a.mu.Unlock()
	if first {
		a.measure(telemetry.WorkReturned, nil)
		a.finish(returned, after)
	}
}

// outcome is what becomes of a delivery.
type outcome int

const (
	acked outcome = iota
	returned
	dropped // it is gone, or somebody else has it
)

// finish settles all deliveries of the work, and lets it go.
func (a *attempt) finish(o outcome, after time.Duration) {
	if o == returned {
		a.noteReturn()
	}
	a.mu.Lock()
	if a.over {
		a.mu.Unlock()
		return
	}
	a.over, a.wasAcked = true, o == acked
	holds := a.holds
	dropNote := a.hasNote && o != returned
	inSession := a.inSession
	a.inSession = false
	if o == acked && a.d.Passed {
		a.w.lasted.note(keyOf(a.d), time.Now())
	}
	a.mu.Unlock()
	for _, h := range holds {
		switch o {
		case acked:
			a.acknowledge(h)
		case returned:
			h.Nak(after)
		}
	}
	if inSession {
		a.w.sessions.leave(a.work.Session)
	}
	if dropNote {
		a.w.aside(func(ctx context.Context) {
			if err := a.w.bus.DropNote(ctx, a.noteKey()); err != nil {
				a.log().Debug("worker: a note could not be dropped; it goes by itself after a day", "error", err)
			}
		})
	}
	a.w.held.remove(a)
}

// extend keeps it from being handed out to somebody else, and tells whether it was time for that.
func (a *attempt) extend(now time.Time) (running, did bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || now.Sub(a.extendedAt) < a.w.wait/3 {
		return false, false
	}
	a.extendedAt = now
	a.extended++
	for _, h := range a.holds {
		h.InProgress()
	}
	return !a.decided && a.cause == nil, true
}

// lookAfter does what is due from time to time while it is held.
func (a *attempt) lookAfter(now time.Time) {
	if wanted, extended := a.extend(now); extended && wanted && a.extended%2 == 1 {
		a.w.wonder(a)
	}
	a.mu.Lock()
	due := a.dirty && !a.noting && !a.over && now.Sub(a.notedAt) >= noteEvery
	if due {
		a.noting, a.dirty, a.notedAt = true, false, now
	}
	n := a.note()
	a.mu.Unlock()
	if due && !a.w.aside(func(ctx context.Context) { a.writeNote(ctx, n) }) {
		a.mu.Lock()
		a.noting, a.dirty = false, true
		a.mu.Unlock()
	}
}

func (a *attempt) status() process.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := process.Held{Instance: a.m.Instance, Activity: a.q.name.Activity, Tag: a.q.name.Tag, Since: a.since,
		GivenUp: a.givenUp}
	if a.work != nil {
		r.Session, r.Attempt = a.work.Session, a.work.Attempt
	}
	if a.cause != nil {
		r.Stopping = a.cause.Message
	}
	return r
}

// ---- Withdrawn work.

// withdrawnFor is how long a withdrawal is remembered for work that is just arriving.
const withdrawnFor = 2 * time.Second

// recheck is when the broker is asked again whether it has withdrawn what it says it has: a replica
// may be behind.
var recheck = []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}

// withdrawn hears that work was withdrawn.
func (w *Worker) withdrawn(subject string) {
	w.recent.add(subject, time.Now())
	for _, a := range w.held.of(subject) {
		w.doubt(a)
	}
}

// doubt finds out soon whether work is still wanted.
func (w *Worker) doubt(a *attempt) {
	w.aside(func(ctx context.Context) {
		for _, after := range recheck {
			select {
			case <-time.After(after):
			case <-ctx.Done():
				return
			}
			if !w.isWanted(ctx, a, true) {
				return
			}
		}
	})
}

// wonder asks whether work is still wanted, unless many others ask just now.
func (w *Worker) wonder(a *attempt) {
	select {
	case w.asking <- struct{}{}:
	default:
		return
	}
	if !w.aside(func(ctx context.Context) {
		defer func() { <-w.asking }()
		w.isWanted(ctx, a, false)
	}) {
		<-w.asking
	}
}

// isWanted asks the broker, and stops what nobody waits for any more. Only the broker tells this
// piece of work from a later one under the same subject, of an instance that was started again.
// What was passed on and is not stored may be stored later: whoever has passed it on may stand
// still. So that it is not there means something only if it was there before, or if it is told that
// it was withdrawn, which it is after it was stored.
func (w *Worker) isWanted(ctx context.Context, a *attempt, told bool) bool {
	stored, err := w.bus.Stored(ctx, a.d)
	switch {
	case err != nil, stored && time.Since(a.since) < surelyStored:
		return true
	case stored:
		a.mu.Lock()
		a.stored = true
		a.mu.Unlock()
		return true
	case !told && a.d.Passed && !a.wasStored():
		return true
	}
	a.stop(withdrawn, w.config.Grace)
	return false
}

// surelyStored is after how long the broker does not say any more of work that was passed on that
// it is stored, if it may be soon.
const surelyStored = 3 * broker.LastsAfter

// wasStored reports whether work that was passed on was seen in the stream.
func (a *attempt) wasStored() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stored || len(a.holds) > 1
}

// recent remembers what was withdrawn a moment ago: the work may be on its way from the broker to
// here.
type recent struct {
	mu       sync.Mutex
	subjects []string
	at       []time.Time
}

const maxRecent = 1024

func (r *recent) add(subject string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	if len(r.subjects) >= maxRecent {
		r.subjects, r.at = r.subjects[1:], r.at[1:]
	}
	r.subjects, r.at = append(r.subjects, subject), append(r.at, now)
}

func (r *recent) forget(now time.Time) {
	n := 0
	for n < len(r.at) && now.Sub(r.at[n]) > withdrawnFor {
		n++
	}
	r.subjects, r.at = r.subjects[n:], r.at[n:]
}

func (r *recent) has(subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.subjects) == 0 {
		return false
	}
	r.forget(time.Now())
	return slices.Contains(r.subjects, subject)
}
