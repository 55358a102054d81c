package guide

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Subscription has the customer that pays each month, and from when on.
type Subscription struct {
	Customer string
	From     time.Time
	Months   int
}

// The contracts of the chapter.
var (
	Subscribe   = orchestration.Define[Subscription, int]("subscribe")
	Stocktaking = orchestration.Define[string, string]("stocktaking")
	Invoice     = activity.Define[string, string]("invoice", activity.Retry(10))
)

func subscribe(ctx *orchestration.Context, s Subscription) (int, error) {
	for month := range s.Months {
		if err := ctx.SleepUntil(s.From.AddDate(0, month, 0)); err != nil {
			return month, err
		}
		if _, err := Invoice.Call(ctx, fmt.Sprintf("%s, month %d", s.Customer, month+1)); err != nil {
			return month, err
		}
	}
	return s.Months, nil
}

func stocktaking(_ *orchestration.Context, place string) (string, error) {
	return "counted in " + place, nil
}

func begin(ctx context.Context, c *client.Client, s Subscription) error {
	_, err := Subscribe.Start(ctx, c, s, orchestration.ID("subscription-"+s.Customer), orchestration.At(s.From))
	if err != nil {
		return err
	}
	_, err = c.Schedules().Put(ctx, client.Schedule{
		ID: "stocktaking-bremen", Orchestration: Stocktaking.Name(), Input: []byte(`"Bremen"`),
		Cron: "30 2 * * MON-FRI", Zone: "Europe/Berlin", Overlap: client.OverlapBufferOne,
	})
	return err
}
