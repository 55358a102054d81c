package rondotest

import (
	"context"
	"fmt"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/jobpush"
)

// jobQueues are the job queues to which orchestrations push. A push counts once, by its key.
type jobQueues struct {
	digests map[string]string           // of the pushes, by their keys
	items   map[string][]jobpush.Pushed // by queue, in the order of the pushes
}

// push is what becomes of a push to a queue, unless the test has said something else with
// [jobpush.Bind]: a queue has as much room as it needs, and as many priorities as queues usually
// have.
func (q *jobQueues) push(_ context.Context, name string, p jobs.Push) error {
	switch digest, again := q.digests[p.Key]; {
	case again && digest != p.Digest:
		return jobs.ErrKeyReused
	case again:
		return nil
	}
	for _, i := range p.Jobs {
		if i.Priority >= jobs.DefaultPriorities {
			return &jobs.InvalidError{Problem: fmt.Sprintf("priority: %d; want 0 to %d", i.Priority,
				jobs.DefaultPriorities-1)}
		}
	}
	q.digests[p.Key] = p.Digest
	for _, i := range p.Jobs {
		q.items[name] = append(q.items[name], jobpush.Pushed{Data: i.Data, Priority: i.Priority, Delay: i.Delay})
	}
	return nil
}
