package guide

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// priced says that a price is the length of the supplier's name, and refuses to say it for one.
func priced(_ context.Context, supplier string) (int, error) {
	if supplier == "closed" {
		return 0, errors.New("closed on Mondays")
	}
	return len(supplier), nil
}

func TestCheapest(t *testing.T) {
	env := virtual(t, Cheapest.Bind(cheapest), rondotest.Takes(Price.Bind(priced), time.Hour))
	began := env.Now()
	best, err := Cheapest.Run(t.Context(), env, []string{"carpenter", "joiner", "factory"})
	if best != 6 || err != nil {
		t.Errorf("%d, %v", best, err)
	}
	want(t, "time", env.Now().Sub(began), time.Hour)
	_, err = Cheapest.Run(t.Context(), env, []string{"carpenter", "closed", "joiner"})
	wantError(t, err, `1 of 3 failed; the first was future 1: activity "price": closed on Mondays (after 3 attempts)`)
}

func TestAffordable(t *testing.T) {
	env := virtual(t, Affordable.Bind(affordable), Price.Bind(priced))
	first, err := Affordable.Run(t.Context(), env, []string{"carpenter", "closed", "factory"})
	if first != "factory" || err != nil {
		t.Errorf("%q, %v", first, err)
	}
	_, err = Affordable.Run(t.Context(), env, []string{"carpenter", "closed"})
	wantError(t, err, "nobody offers it for 7")
}

func TestOffers(t *testing.T) {
	var env *rondotest.Env
	running, most := 0, 0
	env = virtual(t, Offers.Bind(func(ctx *orchestration.Context, suppliers []string) ([]int, error) {
		prices, err := offers(ctx, suppliers)
		return prices, err
	}), rondotest.Takes(Price.Bind(priced), time.Minute))
	var suppliers []string
	var prices []int
	for i := range 21 {
		suppliers = append(suppliers, fmt.Sprintf("%*d", i+1, 7))
		prices = append(prices, i+1)
	}
	began := env.Now()
	h := start(t, env, Offers, suppliers, "offers-1")
	for range 6 {
		running = 0
		for _, k := range env.Kinds("offers-1") {
			switch k {
			case "activity_scheduled":
				running++
			case "activity_completed":
				running--
			default:
			}
		}
		most = max(most, running)
		env.Advance(time.Minute)
	}
	got, err := h.Wait(t.Context())
	must(t, err)
	wantList(t, "prices", got, prices...)
	want(t, "at the same time", most, 4)
	want(t, "time", env.Now().Sub(began), 6*time.Minute)
}

// TestWaysToWaitForSeveral checks what the guide says about All, AllOrNone and Race.
func TestWaysToWaitForSeveral(t *testing.T) {
	groups := orchestration.Define[string, string]("groups")
	env := virtual(t, Price.Bind(priced), groups.Bind(func(ctx *orchestration.Context, how string) (string, error) {
		f := []*orchestration.Future[int]{Price.Start(ctx, "carpenter"), Price.Start(ctx, "closed"),
			Price.Start(ctx, "factory")}
		switch how {
		case "all":
			prices, err := orchestration.All(ctx, f...).Get(ctx)
			if len(prices) != 3 || prices[0] != 9 || prices[2] != 7 {
				return "", fmt.Errorf("prices %v, %w", prices, err)
			}
			return "", err
		case "all or none":
			prices, err := orchestration.AllOrNone(ctx, f...).Get(ctx)
			return fmt.Sprint(prices), err
		}
		if how == "as completed" {
			var order []int
			for i := range orchestration.AsCompleted(ctx, f...) {
				order = append(order, i)
			}
			return fmt.Sprint(order), nil
		}
		price, err := orchestration.Race(ctx, f...).Get(ctx)
		return fmt.Sprint(price), err
	}))
	_, err := groups.Run(t.Context(), env, "all")
	wantError(t, err, `1 of 3 failed; the first was future 1: activity "price": closed on Mondays (after 3 attempts)`)
	_, err = groups.Run(t.Context(), env, "all or none")
	wantError(t, err, `activity "price": closed on Mondays (after 3 attempts)`)
	out, err := groups.Run(t.Context(), env, "race")
	if out != "9" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	out, err = groups.Run(t.Context(), env, "as completed")
	if out != "[0 2 1]" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestContextElsewhere uses a context while its code waits, as a goroutine would; only that here
// nothing happens at the same time.
func TestContextElsewhere(t *testing.T) {
	var kept *orchestration.Context
	env := virtual(t, Price.Bind(priced),
		Cheapest.Bind(func(ctx *orchestration.Context, suppliers []string) (int, error) {
			kept = ctx
			return 0, ctx.Sleep(time.Hour)
		}))
	start(t, env, Cheapest, []string{"carpenter"}, "cheapest-1")
	defer func() {
		want(t, "panic", fmt.Sprint(recover()),
			"an orchestration.Context was used outside of its orchestration (from a goroutine of yours, or after it "+
				"ended); use orchestration.Go for concurrency")
	}()
	_, _ = Price.Call(kept, "carpenter")
}
