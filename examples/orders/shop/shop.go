// Package shop is the code behind the contract of orders: the orchestration, and activities that
// pretend to be a warehouse, a bank and a carrier.
package shop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// undoWithin is how long undoing may take, also when the order is cancelled.
const undoWithin = time.Hour

// Fulfil reserves the goods, waits for the approval of a large order, takes the money and ships. If
// a step fails, Fulfil compensates the completed ones.
func Fulfil(ctx *orchestration.Context, o contract.Order) (receipt contract.Receipt, err error) {
	var undo orchestration.Saga
	defer func() {
		if err != nil {
			contract.Progress.Set(ctx, contract.Undoing)
			err = errors.Join(err, undo.Compensate(ctx, undoWithin))
		}
	}()

	contract.Progress.Set(ctx, contract.Reserving)
	reservation, err := contract.Reserve.Call(ctx, o.SKU)
	if err != nil {
		return receipt, err
	}
	undo.Add("release", func(ctx *orchestration.Context) error {
		_, err := contract.Release.Call(ctx, reservation)
		return err
	})

	if o.Cents >= contract.Large {
		if err := approval(ctx, o); err != nil {
			return receipt, err
		}
	}

	contract.Progress.Set(ctx, contract.Charging)
	charged, err := contract.Charge.Call(ctx, contract.Payment{Card: o.Card, Cents: o.Cents})
	if err != nil {
		return receipt, err
	}
	undo.Add("refund", func(ctx *orchestration.Context) error {
		_, err := contract.Refund.Call(ctx, charged.Payment)
		return err
	})

	contract.Progress.Set(ctx, contract.Shipping)
	tracking, err := contract.Ship.Call(ctx, contract.Parcel{SKU: o.SKU, To: o.ShipTo})
	if err != nil {
		return receipt, err
	}
	contract.Progress.Clear(ctx)
	return contract.Receipt{Payment: charged.Payment, Tracking: tracking}, nil
}

// approval waits until the order is approved or refused, or time is over.
func approval(ctx *orchestration.Context, o contract.Order) error {
	contract.Progress.Set(ctx, contract.Approving)
	within := cmp.Or(o.ApproveWithin, 24*time.Hour)
	answer, deadline := contract.Approve.Next(ctx), ctx.Timer(within)
	switch ctx.Race(answer, deadline) {
	case answer:
		a, err := answer.Get(ctx)
		if err == nil && !a.OK {
			err = orchestration.Errorf(contract.NotApproved, "%s does not approve it", a.By)
		}
		return err
	case deadline:
		return orchestration.Errorf(contract.NotApproved, "nobody has approved it within %v", within)
	}
	return ctx.Err() // it was cancelled
}

// ---- The activities. Some values make them fail, so that it can be seen what happens then.

const (
	// FlakyCard fails at the first attempt, DeclinedCard always.
	FlakyCard, DeclinedCard = "flaky", "declined"
	// Nowhere is a place to which nothing can be shipped.
	Nowhere = "nowhere"
)

// Reserve puts goods aside.
func Reserve(ctx context.Context, sku string) (string, error) {
	activity.Logger(ctx).Debug("reserve", "sku", sku)
	return "reservation-" + sku, nil
}

// Release undoes Reserve.
func Release(ctx context.Context, reservation string) (string, error) {
	activity.Logger(ctx).Debug("release", "reservation", reservation)
	return "released", nil
}

// Charge takes money. The key is the same for all attempts, so a bank that knows it does not take
// the money twice.
func Charge(ctx context.Context, p contract.Payment) (contract.Charged, error) {
	info := activity.Info(ctx)
	activity.Logger(ctx).Debug("charge", "cents", p.Cents, "key", info.IdempotencyKey)
	switch {
	case p.Card == DeclinedCard:
		return contract.Charged{}, activity.Errorf(contract.CardDeclined, "the bank declines the card")
	case p.Card == FlakyCard && info.Attempt == 1:
		return contract.Charged{}, errors.New("the bank does not answer")
	}
	return contract.Charged{Payment: "payment-" + info.IdempotencyKey, By: "go"}, nil
}

// Refund undoes Charge.
func Refund(ctx context.Context, payment string) (string, error) {
	activity.Logger(ctx).Debug("refund", "payment", payment)
	return "refunded", nil
}

// Ship sends a parcel.
func Ship(ctx context.Context, p contract.Parcel) (string, error) {
	activity.Logger(ctx).Debug("ship", "sku", p.SKU, "to", p.To)
	if p.To == Nowhere {
		return "", activity.NonRetryable(activity.Errorf(contract.NoSuchPlace, "there is no way to %s", p.To))
	}
	return fmt.Sprintf("parcel-%s-%s", p.SKU, p.To), nil
}
