package guide

import (
	"slices"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Cheapest = orchestration.Define[[]string, int]("cheapest")
	Offers   = orchestration.Define[[]string, []int]("offers")
	Price    = activity.Define[string, int]("price", activity.Retry(3))
)

func cheapest(ctx *orchestration.Context, suppliers []string) (int, error) {
	var asked []*orchestration.Future[int]
	for _, s := range suppliers {
		asked = append(asked, Price.Start(ctx, s))
	}
	prices, err := orchestration.All(ctx, asked...).Get(ctx)
	if err != nil {
		return 0, err
	}
	return slices.Min(prices), nil
}

// offers asks any number of suppliers, four at a time.
func offers(ctx *orchestration.Context, suppliers []string) ([]int, error) {
	prices := make([]int, len(suppliers))
	next := 0
	var branches []*orchestration.Future[bool]
	for range 4 {
		branches = append(branches, orchestration.Go(ctx, func(ctx *orchestration.Context) (bool, error) {
			for next < len(suppliers) {
				i := next
				next++
				price, err := Price.Call(ctx, suppliers[i])
				if err != nil {
					return false, err
				}
				prices[i] = price
			}
			return true, nil
		}))
	}
	_, err := orchestration.AllOrNone(ctx, branches...).Get(ctx)
	return prices, err
}
