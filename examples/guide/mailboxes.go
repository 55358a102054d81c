package guide

import (
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Basket   = orchestration.Define[string, []string]("basket")
	Items    = orchestration.DefineMailbox[string]("items")
	CheckOut = orchestration.DefineEvent[bool]("check-out")
)

func basket(ctx *orchestration.Context, customer string) ([]string, error) {
	var items []string
	for {
		item, checkOut, idle := Items.Next(ctx), CheckOut.Next(ctx), ctx.Timer(30*time.Minute)
		switch ctx.Race(item, checkOut, idle) {
		case item:
			name, err := item.Get(ctx)
			if err != nil {
				return nil, err
			}
			items = append(items, name)
		case checkOut:
			return items, nil
		case idle:
			return nil, orchestration.Errorf("abandoned", "%s has gone away", customer)
		default:
			return nil, ctx.Err()
		}
	}
}
