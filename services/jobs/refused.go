package jobserver

import (
	"fmt"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/jobs"
)

// This file ends locks whose starts the broker refuses.

// prevented returns the first reason of a refusal that is a setting of the broker; nil if there is
// none.
func prevented(refused *broker.Refused) error {
	if refused != nil {
		if waits, _ := refused.Misconfigured(); waits != nil {
			return waits.Reasons[0]
		}
	}
	return nil
}

// later returns the operation that ends a lock of which a setting of the broker prevents some jobs.
// Those that can never be started wait with them.
func (s *Starter) later(name string, b *batch, bad []jobs.Job, why error) jobs.Return {
	b.prevented = len(bad) == len(b.items)
	s.counts.failed.Add(1)
	s.warns.Do(func() {
		s.log.Warn("queues: a setting of NATS prevents starts; their items wait", "queue", name, "items", len(bad),
			"after", longWait, "error", why)
	})
	return jobs.Return{LockID: b.lock, Delay: longWait, Uncounted: true, Only: ids(bad),
		Reason: "the broker did not take the start: " + why.Error()}
}

// ids are the ids of jobs.
func ids(items []jobs.Job) (list []int64) {
	for _, item := range items {
		list = append(list, item.ID)
	}
	return list
}

// never returns the operation that ends a lock of which some jobs cannot be started.
func (s *Starter) never(name string, b *batch, bad []jobs.Job, why error) jobs.Return {
	r := jobs.Return{LockID: b.lock, Reason: fmt.Sprintf("orchestration %q cannot be started with it: %v",
		b.Start.Orchestration, why), Delay: longestWait, Only: ids(bad)}
	for _, item := range bad {
		r.Delay = min(r.Delay, growing(item.Attempts-1, longestWait))
	}
	s.log.Warn("queues: items cannot be started", "queue", name, "items", len(bad), "after", r.Delay, "error", why)
	return r
}
