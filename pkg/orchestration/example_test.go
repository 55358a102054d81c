package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// The types and contracts. In a real program they are a package of their own, which clients that
// start orders import, too.

type Order struct {
	Card  string
	Cents int
}

type Approval struct{ By string }

var (
	Fulfil  = orchestration.Define[Order, string]("fulfil")
	Approve = orchestration.DefineEvent[Approval]("approve")
	Charge  = activity.Define[Order, string]("charge", activity.Retry(5), activity.StartToClose(time.Minute))
	Ship    = activity.Define[string, string]("ship", activity.Retry(3))
	Refund  = activity.Define[string, bool]("refund", activity.Retry(10))
)

// fulfil is the orchestration. It may wait for a day, and it survives whatever happens to the
// machine meanwhile.
func fulfil(ctx *orchestration.Context, order Order) (parcel string, err error) {
	if order.Cents > 100_00 {
		approval, deadline := Approve.Next(ctx), ctx.Timer(24*time.Hour)
		switch ctx.Race(approval, deadline) {
		case approval:
			if _, err := approval.Get(ctx); err != nil {
				return "", err
			}
		case deadline:
			return "", orchestration.Errorf("not_approved", "not approved within a day")
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
		return "", activity.NonRetryable(activity.Errorf("no_card", "the order has no card"))
	}
	return askBank(order, activity.Info(ctx).IdempotencyKey)
}

func askBank(Order, string) (string, error) { return "receipt 1", nil }

func ship(context.Context, string) (string, error) { return "parcel 1", nil }

func refund(context.Context, string) (bool, error) { return true, nil }

func Example() {
	t := newT()
	defer t.end()

	// A test has the whole system in memory. What the world does, the test does.
	env := rondotest.New(t, Fulfil.Bind(fulfil), Charge.Bind(charge), Ship.Bind(ship), Refund.Bind(refund))
	order, err := Fulfil.Start(t.Context(), env, Order{Card: "visa", Cents: 250_00}, orchestration.ID("order-7"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(3 * time.Hour)
	if err := Approve.Raise(t.Context(), env, "order-7", Approval{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(order.Wait(t.Context()))

	// The approval never comes: the day passes in no time.
	order, err = Fulfil.Start(t.Context(), env, Order{Card: "visa", Cents: 999_00}, orchestration.ID("order-8"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = order.Wait(t.Context())
	fmt.Println(err)
	// Output:
	// parcel 1 <nil>
	// not approved within a day
}

// An action has no result, and its code returns an error only. [codec.None] is no input.
func ExampleDefineAction() {
	t := newT()
	defer t.end()

	var (
		nightly = orchestration.DefineAction[codec.None]("nightly")
		clear   = activity.DefineAction[string]("clear", activity.Retry(3))
	)
	env := rondotest.New(t,
		nightly.Bind(func(ctx *orchestration.Context, _ codec.None) error {
			return clear.CallAll(ctx, []string{"cache", "uploads"})
		}),
		clear.Bind(func(_ context.Context, what string) error {
			fmt.Println("clearing", what)
			return nil
		}),
	)
	fmt.Println(nightly.Run(t.Context(), env, codec.None{}))
	// Output:
	// clearing cache
	// clearing uploads
	// <nil>
}
