package report

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
)

const (
	// maxQueuesShown bounds the task queues of one answer.
	maxQueuesShown = 500
	// lookingAtOnce is how many backlogs are read at the same time.
	lookingAtOnce = 8
)

// system returns the members, their partitions, and the backlogs.
func (r *Reporter) system(ctx context.Context) (s query.System, err error) {
	partitions, owner, members := r.config.Members.Layout()
	s = query.System{AnsweredBy: r.config.ID, Now: time.Now().UTC(), Prefix: r.broker.Prefix(),
		Orchestrators: []query.Orchestrator{}, Partitions: []query.Partition{}, TaskQueues: []query.TaskQueue{}}
	for _, m := range members {
		x := query.Orchestrator{ID: m.ID, Host: m.Host, Build: m.Build, Engine: m.Engine, Leaving: m.Leaving,
			Code: m.Code, Partitions: []int{}}
		for p, id := range owner {
			if id == m.ID {
				x.Partitions = append(x.Partitions, p)
			}
		}
		slices.Sort(x.Partitions)
		s.Orchestrators = append(s.Orchestrators, x)
	}
	for _, p := range partitions.All() {
		s.Partitions = append(s.Partitions,
			query.Partition{Partition: p, Owner: owner[p], Draining: slices.Contains(partitions.Draining, p)})
	}
	queues, err := r.broker.ListTaskQueues(ctx)
	if err != nil {
		return s, err
	}
	slices.SortFunc(queues, func(a, b broker.TaskQueueName) int {
		return strings.Compare(a.Activity+"\x00"+a.Tag, b.Activity+"\x00"+b.Tag)
	})
	for i, q := range queues {
		if i == maxQueuesShown {
			s.MoreTaskQueues = len(queues) - i
			break
		}
		s.TaskQueues = append(s.TaskQueues, query.TaskQueue{Activity: q.Activity, Tag: q.Tag})
	}
	return s, r.backlogs(ctx, &s)
}

// backlogs reads the backlogs of the partitions and the task queues.
func (r *Reporter) backlogs(ctx context.Context, s *query.System) error {
	var all sync.WaitGroup
	var once sync.Once
	var failed error
	slots := make(chan struct{}, lookingAtOnce)
	look := func(to *query.Backlog, from func() (broker.Backlog, error)) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			b, err := from()
			if err != nil {
				once.Do(func() { failed = err })
				return
			}
			*to = query.Backlog(b)
		})
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		look(&p.Backlog, func() (broker.Backlog, error) { return r.broker.Backlog(ctx, p.Partition) })
	}
	for i := range s.TaskQueues {
		q := &s.TaskQueues[i]
		look(&q.Backlog, func() (broker.Backlog, error) {
			return r.broker.TaskBacklog(ctx, broker.TaskQueueName{Tag: q.Tag, Activity: q.Activity})
		})
	}
	all.Wait()
	return failed
}

// recoverSoon has the orchestrators check soon whether the broker has everything that it should
// have.
func (r *Reporter) recoverSoon(ctx context.Context) (query.Recovery, error) {
	within, err := r.config.Recover(ctx)
	return query.Recovery{Within: within.String()}, err
}
