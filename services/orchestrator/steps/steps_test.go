package steps

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/round"
)

// Dropping the steps of an instance after all steps were stopped, while the orchestrator's loop
// still turns, does not panic.
func TestStepsDroppedAfterTheEnd(t *testing.T) {
	s := New(Config{Concurrency: 1})
	x := round.Step{}
	x.Attempt, x.NotBefore = 1, time.Now().Add(time.Hour)
	s.Start("i", round.Row{}, x)
	s.Stop()
	s.Drop("i")
	if s.Has("i") {
		t.Error("it has steps still")
	}
}
