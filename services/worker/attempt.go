package worker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// attempt is an activity task that the worker holds. Its outcome is decided once, by the first of
// these: its function, a time limit, a withdrawal, or the shutdown of the worker.
type attempt struct {
	q          *queue
	d          broker.Delivery
	m          events.Message
	work       *events.Task
	unreadable error
	since      time.Time
	logger     *slog.Logger
	next       *attempt    // of the same subject: see held
	elsewhere  atomic.Bool // another process has begun it; d does not tell, and others may be reading d

	mu         sync.Mutex // guards what follows
	life       lifecycle
	deliveries deliveries
	call       call
	span       span
	progress   progress
	inSession  bool
}

// The reasons for which an attempt stops, besides its time limits and the shutdown of the worker.
// Activities find them with context.Cause.
var (
	withdrawn = &failure.Error{Kind: failure.Cancelled, Message: "nobody waits for the result any more"}
	goexited  = &failure.Error{Kind: failure.Panicked,
		Message: "it ended its goroutine (runtime.Goexit) instead of returning"}
)

// stopping is the cause of contexts that end because the worker shuts down.
var stopping = &failure.Error{Kind: failure.Infrastructure,
	Message: "the worker is ending; the activity will be executed again elsewhere"}

func timeout(typ, message string) *failure.Error {
	return &failure.Error{Kind: failure.Timeout, Type: typ, Message: message}
}

const overallMessage = "it was not done within its time limit from schedule to close"

// newAttempt returns an attempt of a delivery that is not decoded yet.
func newAttempt(q *queue, d broker.Delivery, logger *slog.Logger) *attempt {
	now := time.Now()
	return &attempt{q: q, d: d, since: now, logger: logger,
		deliveries: deliveries{holds: []broker.Hold{d.Hold}, extendedAt: now}}
}

// numDelivered counts the deliveries of the task, with one that another process had directly.
func (a *attempt) numDelivered() int {
	if a.elsewhere.Load() {
		return a.d.NumDelivered + 1
	}
	return a.d.NumDelivered
}

// decoded sets the content of the task.
func (a *attempt) decoded(m events.Message, work *events.Task) {
	a.m, a.work, a.progress.last = m, work, work.Heartbeat
}

// incarnation distinguishes tasks with one event reference in different incarnations of an
// instance.
func (a *attempt) incarnation() string { return incarnationOf(a.d) }

func (a *attempt) sameAs(b *attempt) bool { return a.incarnation() == b.incarnation() }

func (a *attempt) info(worker string) activity.ExecutionInfo {
	k := a.work
	return activity.ExecutionInfo{
		Activity: k.Activity, Instance: a.m.Instance, Execution: k.Ref.Execution, Orchestration: k.Orchestration,
		Version: k.Version, Attempt: k.Attempt,
		IdempotencyKey: k.IdempotencyKey, Tag: k.Tag, Session: k.Session, Worker: worker, Deadline: k.Deadline,
	}
}

// measured returns the labels of the task for metrics.
func (a *attempt) measured() telemetry.Task {
	m := telemetry.Task{Activity: a.q.name.Activity, Tag: a.q.name.Tag}
	if a.work != nil {
		m.Attempt = a.work.Attempt
	}
	return m
}

// log returns the logger of an attempt. Its records belong to the attempt's span, or, before there
// is one, to the span of the task's publisher.
func (a *attempt) log() *slog.Logger {
	var of []any
	if a.m.Instance != "" { // the task was decoded
		of = append(of, "instance", a.m.Instance)
	}
	if k := a.work; k != nil {
		of = append(of, "execution", k.Ref.Execution, "orchestration", k.Orchestration)
	}
	of = append(of, "activity", a.q.name.Activity)
	if k := a.work; k != nil {
		of = append(of, "attempt", k.Attempt)
	}
	a.mu.Lock()
	from := a.span.from
	a.mu.Unlock()
	if from == "" {
		from = a.m.Trace
	}
	at, _ := events.ParseTrace(from)
	return telemetry.LogAt(a.logger.With(of...), at)
}

func (a *attempt) status() process.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := process.Held{Instance: a.m.Instance, Activity: a.q.name.Activity, Tag: a.q.name.Tag, Since: a.since,
		GivenUp: a.life.givenUp}
	if a.work != nil {
		r.Session, r.Attempt = a.work.Session, a.work.Attempt
	}
	if a.life.cause != nil {
		r.Stopping = a.life.cause.Message
	}
	return r
}

// decline decides that the worker does not execute the task. It reports false if the outcome was
// decided before.
func (a *attempt) decline() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.life.move(onDecline)
}

// isInSession reports whether the task runs in its session, and enter notes that it does.
func (a *attempt) isInSession() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inSession
}

func (a *attempt) enter() {
	a.mu.Lock()
	a.inSession = true
	a.mu.Unlock()
}

// join adds a further delivery of the same task. It returns false if it is too late for that.
func (a *attempt) join(h broker.Hold) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.life.state == acknowledged:
		h.Ack()
	case a.life.over() || a.life.cause != nil:
		return false
	default:
		a.deliveries.holds = append(a.deliveries.holds, h)
	}
	return true
}

// extend extends the ack wait of the deliveries once in so long. It reports whether it is time to
// ask whether the task is still wanted.
func (a *attempt) extend(now time.Time, every time.Duration) (ask bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life.over() || now.Sub(a.deliveries.extendedAt) < every {
		return false
	}
	return a.deliveries.extend(now) && a.life.wanted()
}

// isStored notes that a directly delivered task is in the stream, and wasStored reports that.
func (a *attempt) isStored() {
	a.mu.Lock()
	a.deliveries.stored = true
	a.mu.Unlock()
}

func (a *attempt) wasStored() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deliveries.stored || len(a.deliveries.holds) > 1
}

// deliveries are the deliveries of one task.
type deliveries struct {
	holds      []broker.Hold
	extendedAt time.Time
	extended   int
	stored     bool // a directly delivered task was seen in the stream
}

// extend extends the ack waits, and reports true every second time, beginning with the first.
func (d *deliveries) extend(now time.Time) bool {
	d.extendedAt = now
	d.extended++
	for _, h := range d.holds {
		h.InProgress()
	}
	return d.extended%2 == 1
}

// call is the call of an attempt's function: its context, and the timers that end it.
type call struct {
	cancel  context.CancelCauseFunc
	at      time.Time // when the function was called, for metrics
	timers  []*time.Timer
	ends    time.Time // when its time is over, zero for never, and
	why     *failure.Error
	beating *time.Timer   // fires when there was no heartbeat for too long
	beatAt  time.Duration // when the last one was, by the worker's clock
}

func (c *call) stopTimers() {
	for _, t := range c.timers {
		t.Stop()
	}
	if c.beating != nil {
		c.beating.Stop()
	}
}

// span is the span of an attempt, to which its messages and logs belong.
type span struct {
	from string
	end  func(failed *failure.Error) // nil: the function was not called
}
