// Package orders is the example of README.md, as it stands there.
package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

type Order struct {
	Card   string
	Amount int
}

type Receipt struct{ Number string }

// The definitions.
var (
	Checkout  = orchestration.Define[Order, Receipt]("checkout")
	Approvals = orchestration.DefineMailbox[string]("approvals") // a mailbox: each message is the name of an approver
	Charge    = activity.Define[Order, Receipt]("charge", activity.Retry(5), activity.StartToClose(time.Minute))
	Ship      = activity.Define[Receipt, string]("ship", activity.Retry(3))
	Refund    = activity.Define[Receipt, string]("refund", activity.Retry(20))
)

// An orchestration is an ordinary function. It may wait for a day, and it costs nothing meanwhile.
func checkout(ctx *orchestration.Context, order Order) (Receipt, error) {
	if order.Amount > 1000 {
		if _, err := Approvals.ReceiveWithin(ctx, 24*time.Hour); err != nil {
			return Receipt{}, fmt.Errorf("not approved: %w", err)
		}
	}

	receipt, err := Charge.Call(ctx, order)
	if err != nil {
		return Receipt{}, err
	}

	var undo orchestration.Saga
	undo.Add("refund", func(ctx *orchestration.Context) error {
		_, err := Refund.Call(ctx, receipt)
		return err
	})
	if _, err := Ship.Call(ctx, receipt); err != nil {
		return Receipt{}, fmt.Errorf("not shipped: %w", errors.Join(err, undo.Compensate(ctx, time.Hour)))
	}
	return receipt, nil
}

// An activity does something in the world. It may be executed more than once, always with the same
// key.
func charge(ctx context.Context, order Order) (Receipt, error) {
	key := activity.Info(ctx).IdempotencyKey
	if order.Card == "" {
		return Receipt{}, activity.NonRetryable(activity.Errorf("no_card", "the order has no card"))
	}
	return Receipt{Number: "R-" + key}, nil
}

func ship(_ context.Context, receipt Receipt) (string, error) {
	return "parcel for " + receipt.Number, nil
}

func refund(_ context.Context, receipt Receipt) (string, error) {
	return "refund of " + receipt.Number, nil
}

// Parts is the code with its definitions; `app.Main(orders.Parts...)` makes a program of it.
var Parts = []app.Part{Checkout.Bind(checkout), Charge.Bind(charge), Ship.Bind(ship), Refund.Bind(refund)}
