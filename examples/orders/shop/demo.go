package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// demo sends a large order, approves it, waits for the receipt, and prints what has happened. The card makes the first charge fail.
func demo(ctx context.Context, s app.System) error {
	id := "demo-" + s.Client.NewID()
	s.Print("A large order, %s, is sent; it has to be approved.", id)
	order, err := contract.Fulfil.Start(ctx, s.Client, contract.Order{SKU: "piano", Cents: 900_000, Card: shop.FlakyCard, ShipTo: "Bremen"}, orchestration.ID(id))
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
	if err := timeline(ctx, s, id); err != nil {
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

// timeline prints the history of an order: what came from outside, and what its code did about it.
func timeline(ctx context.Context, s app.System, id string) error {
	x, err := s.Client.History(ctx, id, 0)
	if err != nil {
		return err
	}
	began := x.Events[0].At
	for _, e := range x.Events {
		mark := "  "
		if events.FromOutside(e.Fact) {
			mark = "→ "
		}
		s.Print("  %8.3fs  %3d  %s%s", e.At.Sub(began).Seconds(), e.ID, mark, say(e.Fact, began))
	}
	return nil
}

// say says in words what happened.
func say(f events.Fact, began time.Time) string {
	switch f := f.(type) {
	case *events.Started:
		return fmt.Sprintf("%s %s is started with %s", f.Name, f.Version, f.Input)
	case *events.StatusSet:
		if len(f.Status) == 0 {
			return "its status is removed"
		}
		return "its status is " + f.Status.String()
	case *events.ActivityScheduled:
		if f.Attempt > 1 {
			return fmt.Sprintf("%s is to be tried again, attempt %d, not before %.3fs", f.Name, f.Attempt, f.NotBefore.Sub(began).Seconds())
		}
		return fmt.Sprintf("%s is to be executed with %s", f.Name, f.Input)
	case *events.ActivityCompleted:
		return fmt.Sprintf("the result of %d is %s", f.Schedule, f.Result)
	case *events.ActivityFailed:
		return fmt.Sprintf("%d has failed: %v", f.Schedule, f.Error)
	case *events.EventAwaited:
		return "it waits for the event " + f.Name
	case *events.EventReceived:
		return fmt.Sprintf("the event %s comes: %s", f.Name, f.Data)
	case *events.TimerCreated:
		return fmt.Sprintf("a timer is set to %v from the start", f.FireAt.Sub(began).Round(time.Second))
	case *events.TimerFired:
		return fmt.Sprintf("timer %d is over", f.Timer)
	case *events.Dropped:
		return fmt.Sprintf("what was begun in %v is no longer wanted", f.Schedules)
	case *events.Completed:
		return fmt.Sprintf("it is completed with %s", f.Output)
	case *events.Failed:
		return "it has failed: " + f.Error.Error()
	}
	data, err := json.Marshal(f)
	if err != nil {
		return string(f.Kind())
	}
	return string(f.Kind()) + " " + string(data)
}
