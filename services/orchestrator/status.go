package orchestrator

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// Status is the state of an orchestrator, for monitoring.
type Status struct {
	ID    string
	Since time.Time
	// Partitions are those that it receives from.
	Partitions []int
	// Instances are in memory, Hydrated of them with their code; Messages wait for them, are being
	// decided, or wait for their dead letters.
	Instances, Hydrated, Messages int
	// Loading, Deciding and Committing count the instances in these stages.
	Loading, Deciding, Committing int
	// Steps count inline steps that run or wait for their time.
	Steps int
	// Unpublished are messages that were committed and are not published yet, the first of them for
	// UnpublishedFor.
	Unpublished    int
	UnpublishedFor time.Duration
	// Stuck counts goroutines in which the code of an instance has not returned.
	Stuck int
	// CommitFault is the error for which commits fail, or nil.
	CommitFault error
	// Unknown are instances whose messages wait for an orchestrator that can take them.
	Unknown []Unknown
}

// Status returns the state. It waits for the loop, so the context should end soon.
func (o *Orchestrator) Status(ctx context.Context) (Status, error) {
	s := Status{ID: o.config.ID, Since: o.began, Partitions: o.Owned(), Unknown: o.Unknown(),
		CommitFault: o.loop.commits.failing()}
	s.Unpublished, s.UnpublishedFor = o.publisher.Waiting()
	s.Stuck, s.Steps = o.deciders.lostNow(), o.steps.Running()
	counted := o.loop.calls.ask(ctx, func() {
		m := o.loop.count()
		s.Instances, s.Hydrated, s.Messages = m.Instances, m.Hydrated, m.Messages
		s.Loading, s.Deciding, s.Committing = m.Loading, m.Deciding, m.Committing
	})
	if !counted {
		return Status{}, context.Cause(ctx)
	}
	return s, nil
}

// lookAtSelf stores the counts of the loop for the next export of metrics.
func (l *loop) lookAtSelf() {
	if l.config.measured {
		m := l.count()
		l.counted.Store(&m)
	}
}

// count counts the entries and messages in memory.
func (l *loop) count() report.Memory {
	m := l.table.count()
	m.Messages, m.MessageBytes = len(l.held.bySequence), l.held.bytes
	return m
}
