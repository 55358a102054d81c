package integration_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// TestManyHeal: the orchestrators publish lost messages again, however many instances wait for
// them: each sweep takes all that are overdue.
func TestManyHeal(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	n := racetest.Short(3000, 500)
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate(func(c *orchestrator.Config) {
		c.Round = round.Config{Patience: patience}
		c.Sweep.Limit = 100
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
}
