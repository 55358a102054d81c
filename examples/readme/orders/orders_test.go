package orders

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// shop is the program with a carrier and a bank that refunds, each round replayed.
func shop(t *testing.T, ship error, refunded *int) *rondotest.Env {
	return rondotest.New(t, rondotest.Cold(), Checkout.Bind(checkout), Charge.Bind(charge),
		Ship.Bind(func(_ context.Context, r Receipt) (string, error) { return "parcel " + r.Number, ship }),
		Refund.Bind(func(context.Context, Receipt) (string, error) {
			*refunded++
			return "refunded", nil
		}))
}

// TestParts runs an order with exactly the code that the README shows: nothing waits for code that
// is not there.
func TestParts(t *testing.T) {
	env := rondotest.New(t, Parts...)
	if _, err := Checkout.Run(t.Context(), env, Order{Card: "1111", Amount: 45},
		orchestration.ID("order-1")); err != nil {
		t.Error(err)
	}
}

func TestSmallOrder(t *testing.T) {
	refunded := 0
	r, err := Checkout.Run(t.Context(), shop(t, nil, &refunded), Order{Card: "1111", Amount: 45},
		orchestration.ID("order-1"))
	if err != nil || !strings.HasPrefix(r.Number, "R-order-1/") || refunded != 0 {
		t.Errorf("%+v, %v, %d", r, err, refunded)
	}
}

func TestLargeOrder(t *testing.T) {
	refunded := 0
	env := shop(t, nil, &refunded)
	h, err := Checkout.Start(t.Context(), env, Order{Card: "1111", Amount: 9000}, orchestration.ID("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(23 * time.Hour)
	if err := Approvals.Send(t.Context(), env, h.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Wait(t.Context()); err != nil || r.Number == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Checkout.Run(t.Context(), env, Order{Card: "1111", Amount: 9000}); !errors.Is(err,
		orchestration.ErrTimeout) {
		t.Errorf("got %v", err)
	}
}

func TestOrderThatCannotBeCharged(t *testing.T) {
	refunded := 0
	if _, err := Checkout.Run(t.Context(), shop(t, nil, &refunded), Order{Amount: 45}); !errors.Is(err,
		orchestration.OfType("no_card")) {
		t.Errorf("got %v", err)
	}
}

func TestOrderThatCannotBeShipped(t *testing.T) {
	refunded := 0
	_, err := Checkout.Run(t.Context(), shop(t, activity.NonRetryable(errors.New("the carrier is closed")), &refunded),
		Order{Card: "1111", Amount: 45})
	if err == nil || !strings.HasPrefix(err.Error(), "not shipped: ") || refunded != 1 {
		t.Errorf("%v, %d", err, refunded)
	}
}
