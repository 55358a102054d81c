package shop

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Parts is the whole program: the code with its contracts, and a demonstration.
var Parts = []app.Part{
	contract.Fulfil.Bind(Fulfil),
	contract.Reserve.Bind(Reserve),
	contract.Release.Bind(Release),
	contract.Charge.Bind(Charge),
	contract.Refund.Bind(Refund),
	contract.Ship.Bind(Ship),
	app.Demo(demo),
}

// demo sends a large order, approves it, waits for the receipt, and prints each step. The card
// makes the first charge fail.
func demo(ctx context.Context, s app.System) error {
	id := s.NewID("demo")
	s.Print("The order %s is sent; it is large, so it has to be approved.", id)
	order, err := contract.Fulfil.Start(ctx, s.Client,
		contract.Order{SKU: "piano", Cents: 900_000, Card: FlakyCard, ShipTo: "Bremen"}, orchestration.ID(id))
	if err != nil {
		return err
	}
	if err := waiting(ctx, s.Client, id); err != nil {
		return err
	}
	s.Print("It waits for approval; Ann approves it.")
	if err := contract.Approve.Raise(ctx, s.Client, id, contract.Approval{By: "ann", OK: true}); err != nil {
		return err
	}
	receipt, err := order.Wait(ctx)
	if err != nil {
		return err
	}
	s.Print("It is fulfilled: %s, %s. This is what has happened:\n", receipt.Payment, receipt.Tracking)
	if err := s.PrintHistory(ctx, id); err != nil {
		return err
	}
	s.Print("\nWhat runs goes on running. Ctrl-C ends it.")
	return nil
}

// waiting waits until an order waits for approval.
func waiting(ctx context.Context, c *client.Client, id string) error {
	for status, err := range c.WatchStatus(ctx, id) {
		if err != nil {
			return err
		}
		if status.Data.String() == strconv.Quote(contract.Approving) {
			return nil
		}
	}
	return fmt.Errorf("%s has ended before it could be approved", id)
}
