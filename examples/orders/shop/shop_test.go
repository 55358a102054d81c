package shop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/examples/orders/shop"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// world is a shop in virtual time that notes the executed activities, in order.
type world struct {
	*rondotest.Env
	did []string
}

func newWorld(t *testing.T) *world {
	w := &world{}
	w.Env = rondotest.New(t,
		contract.Fulfil.Bind(shop.Fulfil), contract.Reserve.Bind(noting(w, "reserve", shop.Reserve)),
		contract.Release.Bind(noting(w, "release", shop.Release)),
		contract.Charge.Bind(noting(w, "charge", shop.Charge)), contract.Refund.Bind(noting(w, "refund", shop.Refund)),
		contract.Ship.Bind(noting(w, "ship", shop.Ship)),
		rondotest.Cold(), // every round replays, as after a restart
	)
	return w
}

func noting[In, Out any](w *world, name string, fn func(context.Context, In) (Out, error)) func(context.Context,
	In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		w.did = append(w.did, name)
		return fn(ctx, in)
	}
}

func (w *world) start(t *testing.T, o contract.Order) orchestration.Handle[contract.Receipt] {
	t.Helper()
	h, err := contract.Fulfil.Start(t.Context(), w, o, orchestration.ID("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	w.Settle()
	return h
}

func (w *world) wantDone(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.did, want) {
		t.Errorf("done was %q, want %q", w.did, want)
	}
}

var (
	chair = contract.Order{SKU: "chair", Cents: 4500, Card: "1111", ShipTo: "Bremen"}
	piano = contract.Order{SKU: "piano", Cents: 900_000, Card: "1111", ShipTo: "Bremen"}
)

func TestSmallOrder(t *testing.T) {
	w := newWorld(t)
	receipt, err := w.start(t, chair).Wait(t.Context())
	if err != nil || receipt.Tracking != "parcel-chair-Bremen" || receipt.Payment == "" {
		t.Errorf("%+v, %v", receipt, err)
	}
	w.wantDone(t, "reserve", "charge", "ship")
}

func TestApproval(t *testing.T) {
	for _, c := range []struct {
		name     string
		approval *contract.Approval
		want     error
		done     []string
	}{
		{"yes", &contract.Approval{By: "ann", OK: true}, nil, []string{"reserve", "charge", "ship"}},
		{"no", &contract.Approval{By: "ann"}, orchestration.OfType(contract.NotApproved),
			[]string{"reserve", "release"}},
		{"silence", nil, orchestration.OfType(contract.NotApproved), []string{"reserve", "release"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			h := w.start(t, piano)
			w.Advance(23 * time.Hour)
			w.wantDone(t, "reserve")
			if c.approval != nil {
				if err := contract.Approve.Raise(t.Context(), w, h.ID, *c.approval); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.Wait(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			w.wantDone(t, c.done...)
		})
	}
}

func TestWhatFailsIsTriedAgainOrUndone(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*contract.Order)
		want   error
		done   []string
	}{
		{"the bank does not answer once", func(o *contract.Order) {
			o.Card = shop.FlakyCard
		}, nil, []string{"reserve", "charge", "charge", "ship"}},
		{"the card is declined", func(o *contract.Order) {
			o.Card = shop.DeclinedCard
		}, orchestration.OfType(contract.CardDeclined), []string{"reserve", "charge", "release"}},
		{"it cannot be shipped", func(o *contract.Order) {
			o.ShipTo = shop.Nowhere
		}, orchestration.OfType(contract.NoSuchPlace),
			[]string{"reserve", "charge", "ship", "refund", "release"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			o := chair
			c.change(&o)
			if _, err := w.start(t, o).Wait(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			w.wantDone(t, c.done...)
		})
	}
}

func TestCancelledOrderIsUndone(t *testing.T) {
	w := newWorld(t)
	h := w.start(t, piano)
	if err := h.Cancel(t.Context(), "no longer wanted"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(t.Context()); !errors.Is(err, orchestration.ErrCancelled) {
		t.Error(err)
	}
	w.wantDone(t, "reserve", "release")
}

func TestProgress(t *testing.T) {
	w := newWorld(t)
	h := w.start(t, piano)
	row, _ := w.Instance(h.ID)
	if got, want := row.CustomStatus.String(), fmt.Sprintf("%q", contract.Approving); got != want {
		t.Errorf("its status is %s, want %s", got, want)
	}
}
