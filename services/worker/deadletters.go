package worker

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
)

// deadLetters puts tasks that must not be redelivered into the dead-letter stream.
type deadLetters struct {
	ctx         context.Context
	bus         broker.DeadLetters
	prefix, id  string
	logPayloads bool
	metrics     *telemetry.MessageMetrics
	settler     *settler
}

// deadLetter dead-letters a task, and acknowledges it.
func (l *deadLetters) deadLetter(a *attempt, reason, detail string) {
	logged := detail
	if !l.logPayloads { // it has parts of undecodable or refused data
		logged = events.Digest(detail)
	}
	a.log().Warn("worker: task dead-lettered", "subject", a.d.Subject, "reason", reason, "detail", logged)
	if err := l.store(a, broker.Cause{Reason: reason, Detail: detail, Attempts: a.numDelivered()}); err != nil {
		a.log().Warn("worker: storing a dead letter failed; the task is redelivered", "subject",
			a.d.Subject, "error", err)
		if a.decline() { // otherwise the outcome was recorded before the sending failed
			l.settler.measure(a, telemetry.TaskReturned, nil)
		}
		l.settler.finish(a, returned, time.Second)
		return
	}
	if a.unreadable != nil { // otherwise the outcome was recorded before the sending failed
		l.settler.measure(a, telemetry.TaskUnreadable, nil)
	}
	l.settler.aside(a, acked)
}

// store stores a dead letter.
func (l *deadLetters) store(a *attempt, why broker.Cause) error {
	why.By = l.id
	if err := l.bus.StoreDeadLetter(l.ctx, a.d, why); err != nil {
		return err
	}
	l.metrics.DeadLettered(l.prefix, a.d.Subject, why.Reason)
	return nil
}
