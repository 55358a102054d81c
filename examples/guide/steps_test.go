package guide

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// exchange says the rate, after some failures.
type exchange struct {
	asked, failures int
	keys            []string
}

func (e *exchange) Euros(ctx context.Context, dollars float64) (float64, error) {
	e.asked++
	e.keys = append(e.keys, activity.Info(ctx).IdempotencyKey)
	if e.asked <= e.failures {
		return 0, errors.New("the exchange is closed")
	}
	return dollars * 0.5, nil
}

func TestRaffle(t *testing.T) {
	rates := &exchange{failures: 2}
	after := orchestration.Define[[]string, string]("after")
	env := virtual(t, Raffle.Bind(Raffles{rates}.draw),
		after.Bind(func(ctx *orchestration.Context, tickets []string) (string, error) {
			first, err := Raffles{rates}.draw(ctx, tickets)
			if err != nil {
				return "", err
			}
			if err := ctx.Sleep(time.Hour); err != nil { // after which everything above is replayed
				return "", err
			}
			return fmt.Sprint(first.Winner, ctx.Now().Sub(first.At)), nil
		}))
	tickets := []string{"ann", "bob", "cem"}
	prize, err := Raffle.Run(t.Context(), env, tickets)
	must(t, err)
	want(t, "euros", prize.Euros, 50)
	want(t, "asked", rates.asked, 3)
	want(t, "keys", rates.keys[0] == rates.keys[2], true)
	want(t, "length of a number", len(prize.Number), 36)
	if _, err := after.Run(t.Context(), env, tickets); err != nil {
		t.Error(err)
	}
	want(t, "asked", rates.asked, 4)
}

func TestRaffleWithoutARate(t *testing.T) {
	env := virtual(t, Raffle.Bind(Raffles{&exchange{failures: 9}}.draw))
	_, err := Raffle.Run(t.Context(), env, []string{"ann"})
	wantError(t, err, `step "rate": the exchange is closed (after 3 attempts)`)
}

func TestContextInAStep(t *testing.T) {
	env := virtual(t, Raffle.Bind(func(ctx *orchestration.Context, _ []string) (Prize, error) {
		number, err := orchestration.Step(ctx, "number", func(context.Context) (string, error) {
			return ctx.NewID(), nil
		})
		return Prize{Number: number}, err
	}))
	_, err := Raffle.Run(t.Context(), env, nil)
	wantError(t, err, `step "number": panic: an orchestration.Context was used outside of its orchestration (from a goroutine of yours, or after it ended); use orchestration.Go for concurrency`)
}

// misfit is what the guide shows of code that does not fit its history.
const misfit = `the code of raffle 1.0.0 does not fit the history of instance "raffle-1" at event 2:
  history has  activity "price"
  the code did a timer
If the code was changed: put the change behind ctx.Patched("…"), or register it as a new version and keep the old one until its instances have ended.
If it was not: it reads a clock, a random number, a map's order or something outside; use ctx.Now, ctx.Rand, sorted keys, a step or an activity.`

// TestChanceOfItsOwn decides by something that is different each time.
func TestChanceOfItsOwn(t *testing.T) {
	chance := 0 // one that a test can rely on
	env := virtual(t, Price.Bind(priced), Raffle.Bind(func(ctx *orchestration.Context, _ []string) (Prize, error) {
		chance++
		if chance == 1 {
			if _, err := Price.Call(ctx, "joiner"); err != nil {
				return Prize{}, err
			}
		}
		return Prize{}, ctx.Sleep(time.Hour)
	}))
	_, err := Raffle.Run(t.Context(), env, nil, orchestration.ID("raffle-1"))
	wantError(t, err, `rondotest: instance "raffle-1" is halted, and nothing more will happen: `+misfit)
	want(t, "faults", len(env.Faults()), 1)
}

// failing keeps the errors of a test that is meant to fail.
type failing struct {
	*testing.T
	errors []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

// TestOtherDataFailsATest has a clock in the input of an activity.
func TestOtherDataFailsATest(t *testing.T) {
	clock, f := 0, &failing{T: t}
	env := rondotest.New(f, rondotest.Cold(), Price.Bind(priced),
		Raffle.Bind(func(ctx *orchestration.Context, _ []string) (Prize, error) {
			clock++
			n, err := Price.Call(ctx, fmt.Sprint(clock))
			return Prize{Number: fmt.Sprint(n)}, err
		}))
	if _, err := Raffle.Run(t.Context(), env, nil, orchestration.ID("raffle-1")); err == nil {
		t.Error("it has completed")
	}
	wantList(t, "errors", f.errors, `rondotest: the code of raffle 1.0.0 gives other data than before, and was not changed: instance "raffle-1", event 2:
  history has  activity "price" with "1"
  the code did activity "price" with "2"
It reads a clock, a random number, a map's order or something outside; use ctx.Now, ctx.Rand, sorted keys, a step or an activity.
If that is meant: rondotest.AllowChangedData()`)
}

// TestOtherDataIsAWarning allows it.
func TestOtherDataIsAWarning(t *testing.T) {
	clock := 0
	code := Raffle.Bind(func(ctx *orchestration.Context, _ []string) (Prize, error) {
		clock++
		n, err := Price.Call(ctx, fmt.Sprint(clock))
		return Prize{Number: fmt.Sprint(n)}, err
	})
	env := virtual(t, Price.Bind(priced), code, rondotest.AllowChangedData())
	_, err := Raffle.Run(t.Context(), env, nil, orchestration.ID("raffle-1"))
	must(t, err)
	wantList(t, "warnings", env.Warnings(),
		`raffle-1: event 2: activity "price" was recorded with "1", the code now gives "2"; what was recorded stands`)
	wantError(t, rondotest.TryReplay(env.Export("raffle-1"), code),
		`event 2: activity "price" was recorded with "1", the code now gives "3"; what was recorded stands`)
}

func TestEndlessLoop(t *testing.T) {
	env := virtual(t, Raffle.Bind(func(ctx *orchestration.Context, _ []string) (Prize, error) {
		for ctx.Err() == nil {
		}
		return Prize{}, nil
	}))
	_, err := Raffle.Run(t.Context(), env, nil)
	wantError(t, err, "the code made 1000000 calls without waiting for anything; is there a loop that never waits?")
}
