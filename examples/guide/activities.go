package guide

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Bill is an amount that a customer has to pay.
type Bill struct {
	Card  string
	Cents int
}

// The contracts of the chapter.
var (
	Pay    = orchestration.Define[Bill, string]("pay")
	Charge = activity.Define[Bill, string]("charge",
		activity.Retry(5, activity.Exponential(time.Second, 2, time.Minute),
			activity.NonRetryableTypes("card_declined")),
		activity.StartToClose(10*time.Second))
)

func pay(ctx *orchestration.Context, bill Bill) (string, error) {
	receipt, err := Charge.Call(ctx, bill, activity.ScheduleToClose(time.Hour))
	switch {
	case errors.Is(err, orchestration.OfType("card_declined")):
		return "", orchestration.Errorf("not_paid", "ask for another card: %w", err)
	case errors.Is(err, orchestration.ErrTimeout):
		return "", orchestration.Errorf("not_paid", "the bank is too slow today: %w", err)
	case err != nil:
		return "", err
	}
	return receipt, nil
}

// charge pretends to be a bank.
func charge(ctx context.Context, bill Bill) (string, error) {
	switch bill.Card {
	case "":
		return "", activity.NonRetryable(errors.New("the bill has no card"))
	case "expired":
		return "", activity.Errorf("card_declined", "the card has expired")
	}
	return "receipt-" + activity.Info(ctx).IdempotencyKey, nil
}
