package guide

import (
	"errors"
	"slices"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Cheapest   = orchestration.Define[[]string, int]("cheapest")
	Affordable = orchestration.Define[[]string, string]("affordable")
	Offers     = orchestration.Define[[]string, []int]("offers")
	Price      = activity.Define[string, int]("price", activity.Retry(3))
)

func cheapest(ctx *orchestration.Context, suppliers []string) (int, error) {
	prices, err := Price.CallAll(ctx, suppliers)
	if err != nil {
		return 0, err
	}
	return slices.Min(prices), nil
}

// affordable takes the first offer that is good enough, and needs the others no more.
func affordable(ctx *orchestration.Context, suppliers []string) (string, error) {
	var asked []*orchestration.Future[int]
	for _, s := range suppliers {
		asked = append(asked, Price.Start(ctx, s))
	}
	for i, price := range orchestration.AsCompleted(ctx, asked...) {
		if p, err := price.Get(ctx); err == nil && p <= 7 {
			return suppliers[i], nil
		}
	}
	return "", errors.Join(ctx.Err(), orchestration.Errorf("too_expensive", "nobody offers it for 7"))
}

// offers asks any number of suppliers, four at a time.
func offers(ctx *orchestration.Context, suppliers []string) ([]int, error) {
	prices := make([]int, len(suppliers))
	next := 0
	var branches []*orchestration.Future[codec.None]
	for range 4 {
		branches = append(branches, orchestration.Branch(ctx, func(ctx *orchestration.Context) error {
			for next < len(suppliers) {
				i := next
				next++
				price, err := Price.Call(ctx, suppliers[i])
				if err != nil {
					return err
				}
				prices[i] = price
			}
			return nil
		}))
	}
	_, err := orchestration.AllOrNone(ctx, branches...).Get(ctx)
	return prices, err
}
