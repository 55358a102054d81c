package worker

import (
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// outcome is how deliveries are settled.
type outcome int

const (
	acked outcome = iota
	returned
	dropped // it is gone, or another worker has it
)

// settler settles the deliveries of attempts whose outcome is decided, and removes the attempts.
type settler struct {
	held     *held
	lasted   *lasted
	sessions *sessions
	notes    *notes
	metrics  *telemetry.TaskMetrics
}

// answered acknowledges a task whose answer is stored, or committed.
func (s *settler) answered(a *attempt, answer events.Wire) { s.settle(a, acked, 0, answer) }

// finish settles all deliveries of a task without an answer, and removes it.
func (s *settler) finish(a *attempt, o outcome, after time.Duration) {
	s.settle(a, o, after, events.Wire{})
}

func (s *settler) settle(a *attempt, o outcome, after time.Duration, answer events.Wire) {
	c := onSettle
	switch o {
	case acked:
		c = onAck
	case returned:
		s.notes.returned(a)
	case dropped:
	}
	a.mu.Lock()
	if !a.life.move(c) {
		a.mu.Unlock()
		return
	}
	holds := a.deliveries.holds
	dropNote := a.progress.noted && o != returned
	inSession := a.inSession
	a.inSession = false
	if o == acked && a.d.Direct {
		s.lasted.note(keyOf(a.d), time.Now(), answer)
	}
	a.mu.Unlock()
	for _, h := range holds {
		switch o {
		case acked:
			s.acknowledge(a.d, h)
		case returned:
			h.Nak(after)
		case dropped:
		}
	}
	if inSession {
		s.sessions.leave(a.work.Session)
	}
	if dropNote {
		s.notes.drop(a)
	}
	s.held.remove(a)
}

// acknowledge acknowledges a delivery. The worker remembers a directly delivered task as done
// before it answers, and as long as it is uncertain whether the publisher has heard the answer in
// time.
func (s *settler) acknowledge(d broker.Delivery, h broker.Hold) {
	passed, ok := h.(broker.DirectHold)
	switch {
	case !ok:
		h.Ack()
	case passed.Finish():
		s.lasted.forget(keyOf(d))
	default:
		s.lasted.keep(keyOf(d), time.Now())
	}
}

// nack nacks a task that has not begun.
func (s *settler) nack(a *attempt, after time.Duration) {
	if a.decline() {
		s.measure(a, telemetry.TaskReturned, nil)
		s.finish(a, returned, after)
	}
}

// noSlot nacks a task that has got no slot. If the task was handed over, it comes back to this
// worker, after a while. Other tasks enter their session when they have a slot.
func (s *settler) noSlot(a *attempt) {
	if a.isInSession() {
		s.nack(a, sessionDelay(a.numDelivered()))
	} else {
		s.nack(a, 0)
	}
}

// limited nacks a task that the rate does not allow to begin.
func (s *settler) limited(a *attempt, after time.Duration) {
	s.metrics.RateLimited(a.q.name.Activity)
	s.nack(a, after)
}

// aside settles a task that this worker does not execute.
func (s *settler) aside(a *attempt, o outcome) {
	a.decline()
	s.finish(a, o, 0)
}

// measure records the outcome, or the error of the function; nil if it has succeeded.
func (s *settler) measure(a *attempt, outcome string, failed *failure.Error) {
	took := time.Duration(-1)
	if !a.call.at.IsZero() {
		took = time.Since(a.call.at)
	}
	s.metrics.Finished(a.measured(), outcome, failed, took)
}
