package orchestrator

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
	// maxQueuesShown bounds the queues that are looked at for one answer.
	maxQueuesShown = 500
	// lookingAtOnce is how many backlogs are looked at the same time.
	lookingAtOnce = 8
)

// system tells who is there, what they take care of, and what waits where.
func (o *Orchestrator) system(ctx context.Context) (s query.System, err error) {
	o.own.mu.Lock()
	partitions := o.own.partitions
	o.own.mu.Unlock()
	members := o.own.members.Members()
	owner := assign(members, partitions.All())
	s = query.System{AnsweredBy: o.config.ID, Now: time.Now().UTC(), Prefix: o.broker.Prefix(),
		Orchestrators: []query.Orchestrator{}, Partitions: []query.Partition{}, Queues: []query.WorkQueue{}}
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
	queues, err := o.broker.Queues(ctx)
	if err != nil {
		return s, err
	}
	slices.SortFunc(queues, func(a, b broker.Queue) int {
		return strings.Compare(a.Activity+"\x00"+a.Tag, b.Activity+"\x00"+b.Tag)
	})
	for i, q := range queues {
		if i == maxQueuesShown {
			s.MoreQueues = len(queues) - i
			break
		}
		s.Queues = append(s.Queues, query.WorkQueue{Activity: q.Activity, Tag: q.Tag})
	}
	return s, o.backlogs(ctx, &s)
}

// backlogs looks what waits in the partitions and queues.
func (o *Orchestrator) backlogs(ctx context.Context, s *query.System) error {
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
		look(&p.Backlog, func() (broker.Backlog, error) { return o.broker.Backlog(ctx, p.Partition) })
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		look(&q.Backlog, func() (broker.Backlog, error) {
			return o.broker.WorkBacklog(ctx, broker.Queue{Tag: q.Tag, Activity: q.Activity})
		})
	}
	all.Wait()
	return failed
}

// recoverSoon lets the orchestrators look, as if the broker were a new one: the next of them that
// sweeps publishes what is missing.
func (o *Orchestrator) recoverSoon(ctx context.Context) (query.Recovery, error) {
	o.log.Info("somebody asks to look whether the broker has all that it should have")
	return query.Recovery{Within: o.config.SweepEvery.String()}, o.broker.ClearMark(ctx, recoveredMark)
}
