package orchestrator

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// noSteps is a runner whose steps are done.
type noSteps struct{}

func (noSteps) Start(string, round.Row, round.Step) {}
func (noSteps) Cancel(string, round.StepRef)        {}
func (noSteps) Drop(string)                         {}
func (noSteps) Has(string) bool                     { return false }

// TestAStepWhoseResultIsDroppedRunsAgain: the partition of an instance moves while the store checks
// a turn of it, and is back before the check ends. The result of its step was dropped, so the code
// must not stay in memory: it would wait for that result for ever.
func TestAStepWhoseResultIsDroppedRunsAgain(t *testing.T) {
	code, err := orchestration.NewRegistry(orchestration.Define[int, int]("o").Bind(
		func(ctx *orchestration.Context, n int) (int, error) {
			return orchestration.Step(ctx, "step", func(context.Context) (int, error) { return n, nil })
		}))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	var woken []string
	wake := func(instance string) { woken = append(woken, instance) }
	metrics := new(telemetry.Metrics)
	l := &loop{steps: noSteps{}, wake: wake, log: log}
	l.table = newInstances(instanceLimits{most: 10, mostBytes: 1 << 20, runawayAfter: time.Minute},
		&round.Config{Code: code, Codec: codec.JSON{}}, noSteps{}, wake, metrics.Rounds(), log)
	l.table.owned = map[int]bool{0: true}
	l.marks = &watermarks{held: newHeldMessages(10, 1<<20)}

	e := l.table.obtain("i")
	l.table.hydrate(e, round.Known{Instance: "i"})
	turn := e.live.Decide([]round.Delivery{{NumDelivered: 1, Message: events.Message{ID: "m", Instance: "i",
		Content: &events.Start{Orchestration: "o", Input: codec.Payload("1")}}}}, time.Now())
	if len(turn.Steps) != 1 {
		t.Fatalf("the turn has %d steps", len(turn.Steps))
	}
	e.stage = checking
	e.waiting = []*item{{message: turn.Steps[0].Done("i", codec.Payload("1"), nil)}}

	l.giveUp(l.table.setOwned(nil))
	l.table.setOwned(map[int]bool{0: true})
	e.move(rest)
	l.advance(e)
	if e.live != nil || l.table.entries["i"] != nil {
		t.Error("the instance stays in memory, and its step never ends")
	}
	if !slices.Equal(woken, []string{"i"}) {
		t.Errorf("woken are %q, want the instance once", woken)
	}
}
