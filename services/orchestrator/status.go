package orchestrator

import (
	"context"
	"time"
)

// Status is how an orchestrator stands, for those who watch it.
type Status struct {
	ID    string
	Since time.Time
	// Partitions are those that it receives from.
	Partitions []int
	// Instances are in memory, Hydrated of them with their code; Messages wait for them or are
	// being decided.
	Instances, Hydrated, Messages int
	// Loading, Deciding and Committing count the instances that are just there.
	Loading, Deciding, Committing int
	// Steps count inline steps that run or wait for their time.
	Steps int
	// Unpublished are messages that were committed and are not published yet, the first of them for
	// UnpublishedFor.
	Unpublished    int
	UnpublishedFor time.Duration
	// Stuck counts goroutines that have not come back from the code of an instance.
	Stuck int
	// CommitFault is why nothing can be committed, if so.
	CommitFault error
	// Unknown are instances whose messages wait for an orchestrator that can take them.
	Unknown []Unknown
}

// Status tells how it stands. It waits for the loop, so the context should end soon.
func (o *Orchestrator) Status(ctx context.Context) (Status, error) {
	s := Status{ID: o.config.ID, Since: o.began, Partitions: o.Owned(), Unknown: o.Unknown(),
		CommitFault: o.loop.committing()}
	s.Unpublished, s.UnpublishedFor = o.publisher.Waiting()
	o.deciders.mu.Lock()
	s.Stuck = o.deciders.lost
	o.deciders.mu.Unlock()
	o.steps.mu.Lock()
	s.Steps = len(o.steps.running)
	o.steps.mu.Unlock()
	counted := o.loop.ask(ctx, func(l *loop) {
		h := l.count()
		s.Instances, s.Hydrated, s.Messages = h.entries, h.hydrated, h.messages
		s.Loading, s.Deciding, s.Committing = h.loading, h.deciding, h.committing
	})
	if !counted {
		return Status{}, context.Cause(ctx)
	}
	return s, nil
}
