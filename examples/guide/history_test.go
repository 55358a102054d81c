package guide

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestNobodyAnswers(t *testing.T) {
	env := rondotest.New(t, Buy.Bind(buy),
		AskBoss.Bind(func(context.Context, string) (bool, error) { return true, nil }), // in place of the real one
		rondotest.Cold()) // replay the code before each round

	h, err := Buy.Start(t.Context(), env, Purchase{"piano", 900_000}, orchestration.ID("buy-7"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(71 * time.Hour)
	env.Crash() // the orchestrator loses its memory
	env.Advance(time.Hour)

	if _, err := h.Wait(t.Context()); !errors.Is(err, orchestration.OfType("no_answer")) {
		t.Errorf("got %v", err)
	}
}

func TestChaos(t *testing.T) {
	for seed := range uint64(20) {
		env := rondotest.New(t, rondotest.Chaos(seed), Buy.Bind(buy), asked)
		h, err := Buy.Start(t.Context(), env, Purchase{"piano", 900_000})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); !errors.Is(err, orchestration.OfType("no_answer")) {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestOldHistoriesFit(t *testing.T) {
	for _, name := range []string{"order-waiting", "order-ended"} {
		history, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		rondotest.Replay(t, history, Order.Bind(order))
	}
}

// TestAMisfitIsFound replays an old history with code that does not fit.
func TestAMisfitIsFound(t *testing.T) {
	history, err := os.ReadFile("testdata/order-ended.json")
	must(t, err)
	err = rondotest.TryReplay(history, Order.Bind(orderBySea))
	wantIn(t, err.Error(), "history has  a timer\n  the code did activity \"pack\"")
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != "nondeterminism" || e.Event != 2 {
		t.Errorf("%+v", e)
	}
	clever := Order.Bind(func(ctx *orchestration.Context, goods string) (string, error) {
		return order(ctx, goods+" in paper")
	})
	wantIn(t, rondotest.TryReplay(history, clever).Error(),
		`activity "pack" was recorded with "tea", the code now gives "tea in paper"; what was recorded stands`)
	rondotest.Replay(t, history, clever, rondotest.AllowChangedData())
}
