package orchestrator

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/round"
)

// What is forgotten after the steps were stopped, while the loop still turns, is no reason to
// panic.
func TestStepsDroppedAfterTheEnd(t *testing.T) {
	s := newSteps(&Orchestrator{config: Config{}.withDefaults()})
	x := round.Step{}
	x.Attempt, x.NotBefore = 1, time.Now().Add(time.Hour)
	s.start("i", round.Row{}, x)
	s.stop()
	s.drop("i")
	if s.has("i") {
		t.Error("it has steps still")
	}
}
