// Command comparison is the flow that docs/comparison.md shows in several products, here in Rondo.
//
// An order reserves all its items at the same time, waits up to a day for an approval if it is
// large, takes the money, and ships. If it cannot be shipped, the money is refunded. See it work:
//
//	go run ./examples/comparison dev
//
// and in another terminal:
//
//	nats pub rondo.start.fulfil.order-1 \
//	    '{"Items":[{"SKU":"piano","Count":1}],"Cents":900000,"Card":"1111","Address":"Bremen"}'
//	nats pub rondo.mailbox.approvals.order-1 ann
//
// Nothing can be shipped to "nowhere", and the card "declined" is declined.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The definitions: clients that start and approve orders need them, too.
var (
	Fulfil    = orchestration.Define[Order, Receipt]("fulfil")
	Approvals = orchestration.DefineMailbox[string]("approvals") // name of the approver
	Progress  = orchestration.DefineStatus[string]()

	Reserve = activity.Define[Item, string]("reserve", activity.Retry(5))
	Charge  = activity.Define[Order, string]("charge",
		activity.Retry(5, activity.Exponential(time.Second, 2, time.Minute)))
	Ship   = activity.Define[Order, string]("ship", activity.Retry(3))
	Refund = activity.Define[string, string]("refund", activity.Retry(20))
)

func fulfil(ctx *orchestration.Context, o Order) (Receipt, error) {
	Progress.Set(ctx, "reserving")
	if _, err := Reserve.CallAll(ctx, o.Items); err != nil {
		return Receipt{}, err
	}

	if o.Cents >= large {
		Progress.Set(ctx, "waiting for approval")
		if _, err := Approvals.ReceiveWithin(ctx, 24*time.Hour); err != nil {
			return Receipt{}, fmt.Errorf("not approved: %w", err)
		}
	}

	Progress.Set(ctx, "charging")
	payment, err := Charge.Call(ctx, o)
	if err != nil {
		return Receipt{}, err
	}

	Progress.Set(ctx, "shipping")
	tracking, err := Ship.Call(ctx, o)
	if err != nil {
		shielded, done := ctx.Shield(time.Hour) // also when the order was cancelled meanwhile
		defer done()
		_, failed := Refund.Call(shielded, payment)
		return Receipt{}, errors.Join(err, failed)
	}
	return Receipt{Payment: payment, Tracking: tracking}, nil
}

// parts is the code with its definitions. The orchestrator runs fulfil, workers run the others.
var parts = []app.Part{
	Fulfil.Bind(fulfil),
	Reserve.Bind(func(ctx context.Context, item Item) (string, error) { return reserve(ctx, key(ctx), item) }),
	Charge.Bind(func(ctx context.Context, o Order) (string, error) {
		payment, err := charge(ctx, key(ctx), o.Card, o.Cents)
		if errors.Is(err, errDeclined) {
			err = activity.NonRetryable(err)
		}
		return payment, err
	}),
	Ship.Bind(func(ctx context.Context, o Order) (string, error) { return ship(ctx, key(ctx), o) }),
	Refund.Bind(func(ctx context.Context, payment string) (string, error) { return refund(ctx, key(ctx), payment) }),
}

func key(ctx context.Context) string { return activity.Info(ctx).IdempotencyKey }

func main() { app.Main(parts...) }
