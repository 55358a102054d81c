package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// admission decides whether the worker calls the function of an attempt that has a slot. If not, it
// settles the task.
type admission struct {
	ctx         context.Context
	id          string // of the worker
	paused      func() error
	maxCrashes  int
	bus         broker.Handovers
	lasted      *lasted
	sessions    *sessions
	notes       *notes
	withdrawals *withdrawals
	settler     *settler
	dead        *deadLetters
	completer   *completer
	executor    *executor
}

// admit reports whether the worker calls the function now.
func (m *admission) admit(a *attempt) bool {
	switch {
	case a.unreadable != nil:
		m.dead.deadLetter(a, "unreadable", a.unreadable.Error())
		return false
	case m.elsewhere(a), m.isPaused(a), !m.mayBegin(a), m.tooLate(a), !m.inSession(a):
		return false
	case a.numDelivered() > 1 && !m.recall(a):
		return false
	}
	if !a.work.StartBy.IsZero() {
		m.completer.begun(a)
	}
	if m.withdrawals.recent.has(a.d.Subject) {
		m.withdrawals.doubt(a)
	}
	return true
}

// isPaused nacks a task while the worker takes none.
func (m *admission) isPaused(a *attempt) bool {
	if m.paused() == nil {
		return false
	}
	m.settler.nack(a, pausedFor)
	return true
}

// mayBegin reports whether a directly delivered task may be executed: not if it has waited for so
// long that another worker may have it.
func (m *admission) mayBegin(a *attempt) bool {
	passed, ok := a.d.Hold.(broker.DirectHold)
	if !ok || passed.Begin() {
		return true
	}
	m.settler.aside(a, returned)
	return false
}

// tooLate fails a task whose time limit was over before it arrived. A redelivered task may have
// begun in time. Then the instance knows, and if it did not, the instance withdraws the task.
func (m *admission) tooLate(a *attempt) bool {
	now := time.Now()
	k := a.work
	switch {
	case !k.Deadline.IsZero() && !now.Before(k.Deadline):
		m.executor.end(a, nil, timeout(failure.TimeoutScheduleToClose, overallMessage))
	case a.numDelivered() == 1 && !k.StartBy.IsZero() && !now.Before(k.StartBy):
		m.executor.end(a, nil, timeout(failure.TimeoutScheduleToStart, "no worker took it up in time"))
	default:
		return false
	}
	return true
}

// inSession hands a task over to the worker that has its session. It returns false if that is
// another worker, or if no worker can have the session now. It fails a task with an invalid
// session.
func (m *admission) inSession(a *attempt) bool {
	id := a.work.Session
	if id == "" || a.isInSession() {
		return true
	}
	if err := events.CheckSessionOfTask(id); err != nil {
		m.executor.end(a, nil, &failure.Error{Kind: failure.Application, NonRetryable: true, Message: err.Error()})
		return false
	}
	owner, err := m.sessions.enter(m.ctx, id)
	switch {
	case err != nil:
		a.log().Debug("worker: work waits for its session", "session", id, "error", err)
		m.settler.nack(a, sessionDelay(a.numDelivered()))
		return false
	case owner == m.id:
		a.enter()
		return true
	}
	if err := m.bus.Handover(m.ctx, owner, a.d); err != nil {
		a.log().Debug("worker: work could not be handed over", "session", id, "to", owner, "error", err)
		m.sessions.forget(id)
		m.settler.nack(a, sessionDelay(a.numDelivered()))
		return false
	}
	m.settler.aside(a, dropped)
	return false
}

// recall reads the note about a redelivered task, and notes that it begins once more. It returns
// false if that was too often.
func (m *admission) recall(a *attempt) bool {
	ctx, cancel := context.WithTimeout(m.ctx, noteTimeout)
	defer cancel()
	n := m.notes.read(ctx, a)
	if before := n.Begun + 1; before >= m.maxCrashes {
		m.poison(a, before)
		return false
	}
	m.notes.begin(ctx, a, n)
	return true
}

// poison dead-letters a task that no worker survives, and fails it.
func (m *admission) poison(a *attempt, attempts int) {
	err := &failure.Error{Kind: failure.Poison, NonRetryable: true, Attempts: attempts,
		Message: fmt.Sprintf("dead-lettered: %s crashed while executing it", plural.Count(attempts, "worker"))}
	a.log().Error("worker: task crashed too many workers; see rondo deadletters", "attempts", attempts)
	if e := m.dead.store(a, broker.Cause{Reason: "poison", Detail: err.Message, Attempts: attempts}); e != nil {
		a.log().Warn("worker: storing a poisoned task as a dead letter failed; it is redelivered", "error", e)
		m.settler.nack(a, time.Second)
		return
	}
	m.notes.mark(a)
	m.executor.end(a, nil, err)
}
