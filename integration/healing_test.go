package integration_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// What many instances wait for is sent again when it was lost, however many there are: each look
// takes all that are overdue.
func TestManyHeal(t *testing.T) {
	const n, patience = 3000, 10 * time.Second
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate(func(c *orchestrator.Config) {
		c.Round = round.Config{Patience: patience}
		c.SweepLimit = 100
	})
	ping := broker.Queue{Activity: "ping"} // no worker takes it
	var starts []events.Message
	for i := range n {
		starts = append(starts, events.Message{ID: fmt.Sprint("s", i), Instance: fmt.Sprint("i", i),
			Content: &events.Start{Orchestration: "once", Input: events.Payload(`"x"`)}})
	}
	s.say(starts...)
	allWait := func() error {
		b, err := s.bus.WorkBacklog(t.Context(), ping)
		if err == nil && b.Waiting != n {
			err = errors.New(fmt.Sprint(b.Waiting, " wait"))
		}
		return err
	}
	s.eventually("all work waits", allWait)
	st, err := s.raw().js.Stream(t.Context(), "RONDO_WORK")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context()); err != nil { // it is lost
		t.Fatal(err)
	}
	s.eventually("all work waits again", allWait)
}
