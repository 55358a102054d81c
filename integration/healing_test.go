package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// overdueSweeps counts the pages of overdue instances that were full, and those of them that were
// the last one of a sweep: that sweep has left others to the next one.
type overdueSweeps struct {
	history.Store

	mu          sync.Mutex
	isFull      bool // the last page
	full, ended int
}

func (s *overdueSweeps) LeaseOverdue(ctx context.Context, take history.Lease) ([]history.Overdue, error) {
	list, err := s.Store.LeaseOverdue(ctx, take)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isFull = len(list) == take.Limit; s.isFull {
		s.full++
	}
	return list, err
}

// jitter is called between two sweeps.
func (s *overdueSweeps) jitter(what string, most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == "looking after overdue instances" && s.isFull {
		s.isFull = false
		s.ended++
	}
	return most
}

// TestManyHeal: the orchestrators publish lost messages again, however many instances wait for
// them: each sweep takes all that are overdue. Otherwise most full pages would be the last ones of
// their sweeps.
func TestManyHeal(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	n := racetest.Short(3000, 500)
	sweeps := &overdueSweeps{Store: openSQLite(t)()}
	s := newSystem(t, func() history.Store { return sweeps }, basics...)
	s.orchestrate(func(c *orchestrator.Config) {
		c.Round = round.Config{Patience: patience}
		c.Sweep.Limit = 20
		c.Clocks.Jitter = sweeps.jitter
	})
	ping := broker.TaskQueueName{Activity: "ping"} // no worker takes it
	var starts []events.Message
	for i := range n {
		starts = append(starts, events.Message{ID: fmt.Sprint("s", i), Instance: fmt.Sprint("i", i),
			Content: &events.Start{Orchestration: "once", Input: codec.Payload(`"x"`)}})
	}
	s.say(starts...)
	allWait := func() error {
		b, err := s.bus.TaskBacklog(t.Context(), ping)
		if err == nil && b.Waiting != int64(n) {
			err = errors.New(fmt.Sprint(b.Waiting, " wait"))
		}
		return err
	}
	s.eventually("all work waits", allWait)
	st, err := s.raw().js.Stream(t.Context(), "RONDO_TASKS")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context()); err != nil { // it is lost
		t.Fatal(err)
	}
	s.eventually("all work waits again", allWait)
	sweeps.mu.Lock()
	defer sweeps.mu.Unlock()
	if sweeps.full < n/100 || 2*sweeps.ended >= sweeps.full {
		t.Errorf("of %d full pages of overdue instances, %d were the last ones of their sweeps", sweeps.full,
			sweeps.ended)
	}
}
