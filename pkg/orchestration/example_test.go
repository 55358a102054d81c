package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// The types and contracts. In a real program they are a package of their own, which those who start
// orders import, too.

type Order struct {
	Card  string
	Cents int
}

type Approval struct{ By string }

var (
	Fulfil  = orchestration.Define[Order, string]("fulfil")
	Approve = orchestration.DefineEvent[Approval]("approve")
	Charge  = activity.Define[Order, string]("charge", activity.Retry(5), activity.Timeout(time.Minute))
	Ship    = activity.Define[string, string]("ship", activity.Retry(3))
	Refund  = activity.Define[string, bool]("refund", activity.Retry(10))
)

// fulfil is the orchestration. It may wait for a day, and it survives whatever happens to the
// machine meanwhile.
func fulfil(ctx *orchestration.Context, order Order) (parcel string, err error) {
	if order.Cents > 100_00 {
		approval, deadline := Approve.Next(ctx), ctx.Timer(24*time.Hour)
		switch ctx.Select(approval, deadline) {
		case approval:
			if _, err := approval.Get(ctx); err != nil {
				return "", err
			}
		case deadline:
			return "", orchestration.Errorf("not_approved", "nobody approved it within a day")
		}
	}
	receipt, err := Charge.Call(ctx, order)
	if err != nil {
		return "", err
	}
	var undo orchestration.Saga
	undo.Add("refund", func(ctx *orchestration.Context) error {
		_, err := Refund.Call(ctx, receipt)
		return err
	})
	parcel, err = Ship.Call(ctx, receipt)
	if err != nil {
		return "", errors.Join(err, undo.Compensate(ctx, time.Hour))
	}
	return parcel, nil
}

// charge is an activity. A worker executes it, perhaps more than once, but always with the same
// key, by which the bank knows that it has taken this money already.
func charge(ctx context.Context, order Order) (receipt string, err error) {
	if order.Card == "" {
		return "", activity.Final(activity.Errorf("no_card", "the order has no card"))
	}
	return askBank(order, activity.InfoOf(ctx).IdempotencyKey)
}

func askBank(Order, string) (string, error) { return "receipt 1", nil }

func ship(context.Context, string) (string, error) { return "parcel 1", nil }

func refund(context.Context, string) (bool, error) { return true, nil }

func Example() {
	t := newT()
	defer t.end()

	// A test has the whole system in memory. What the world does, the test does.
	env := rondotest.New(t, Fulfil.With(fulfil), Charge.With(charge), Ship.With(ship), Refund.With(refund))
	order, err := Fulfil.Start(t.Context(), env, Order{Card: "visa", Cents: 250_00}, orchestration.ID("order-7"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(3 * time.Hour)
	if err := Approve.Raise(t.Context(), env, "order-7", Approval{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(order.Wait(t.Context()))

	// Nobody approves this one: the day passes in no time.
	order, err = Fulfil.Start(t.Context(), env, Order{Card: "visa", Cents: 999_00}, orchestration.ID("order-8"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = order.Wait(t.Context())
	fmt.Println(err)
	// Output:
	// parcel 1 <nil>
	// nobody approved it within a day
}
