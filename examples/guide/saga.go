package guide

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Sale is one purchase of a customer.
type Sale struct {
	Goods string
	Bill  Bill
	To    string
}

// The contracts of the chapter.
var (
	Sell    = orchestration.Define[Sale, string]("sell")
	Reserve = activity.Define[Reservation, bool]("reserve", activity.Retry(5), activity.StartToClose(10*time.Second))
	Release = activity.Define[string, bool]("release", activity.Retry(20))
	Refund  = activity.Define[string, bool]("refund", activity.Retry(20))
	Ship    = activity.Define[string, string]("ship", activity.Retry(3))
)

// Reservation is a piece of furniture that is reserved, under an id.
type Reservation struct{ ID, Goods string }

func sell(ctx *orchestration.Context, s Sale) (parcel string, err error) {
	var undo orchestration.Saga
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Compensate(ctx, time.Hour))
		}
	}()

	id := ctx.Instance()
	undo.Add("release", func(ctx *orchestration.Context) error {
		// before: a call that fails may have reserved all the same
		_, err := Release.Call(ctx, id)
		return err
	})
	if _, err := Reserve.Call(ctx, Reservation{id, s.Goods}); err != nil {
		return "", err
	}
	receipt, err := Charge.Call(ctx, s.Bill)
	if err != nil {
		return "", err
	}
	undo.Add("refund", func(ctx *orchestration.Context) error { // after: it needs the receipt
		_, err := Refund.Call(ctx, receipt)
		return err
	})
	return Ship.Call(ctx, s.To)
}

// ship pretends to be a carrier.
func ship(_ context.Context, to string) (string, error) {
	if to == "nowhere" {
		return "", activity.NonRetryable(activity.Errorf("no_such_place", "there is no way to %s", to))
	}
	return "parcel to " + to, nil
}
