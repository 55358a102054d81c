package guide

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// sells notes the activities of a sale.
func sells(t *testing.T, did *[]string, shipping rondotest.Part) *rondotest.Env {
	done := func(s string) (bool, error) { return true, nil }
	return virtual(t, Sell.Bind(sell), shipping,
		noting(Charge, new([]Bill), func(b Bill) (string, error) {
			*did = append(*did, "charge")
			return "receipt", nil
		}),
		noting(Reserve, new([]Reservation), func(r Reservation) (bool, error) {
			*did = append(*did, "reserve "+r.ID)
			return true, nil
		}),
		noting(Release, did, func(id string) (bool, error) {
			if id == "stuck" {
				return false, activity.NonRetryable(activity.Errorf("stuck", "the store does not answer"))
			}
			return done(id)
		}),
		noting(Refund, did, done),
	)
}

func TestSell(t *testing.T) {
	var did []string
	env := sells(t, &did, Ship.Bind(ship))
	parcel, err := Sell.Run(t.Context(), env, Sale{"chair", Bill{"1111", 4500}, "Bremen"}, orchestration.ID("sale-1"))
	if parcel != "parcel to Bremen" || err != nil {
		t.Errorf("%q, %v", parcel, err)
	}
	wantList(t, "done", did, "reserve sale-1", "charge")
}

func TestSaleIsUndone(t *testing.T) {
	var did []string
	env := sells(t, &did, Ship.Bind(ship))
	_, err := Sell.Run(t.Context(), env, Sale{"chair", Bill{"1111", 4500}, "nowhere"}, orchestration.ID("sale-1"))
	wantError(t, err, `activity "ship": there is no way to nowhere`)
	wantList(t, "done", did, "reserve sale-1", "charge", "receipt", "sale-1")
}

func TestSaleCannotBeUndone(t *testing.T) {
	var did []string
	env := sells(t, &did, Ship.Bind(ship))
	_, err := Sell.Run(t.Context(), env, Sale{"chair", Bill{"1111", 4500}, "nowhere"}, orchestration.ID("stuck"))
	wantError(t, err, `activity "ship": there is no way to nowhere`+"\n"+
		`compensation "release" failed: activity "release": the store does not answer`)
	wantList(t, "done", did, "reserve stuck", "charge", "receipt", "stuck")
}

// TestSaleIsEnded ends a sale from outside while the carrier takes its time.
func TestSaleIsEnded(t *testing.T) {
	for how, undone := range map[events.How][]string{events.Cancel: {"receipt", "sale-1"}, events.Terminate: nil} {
		var did []string
		env := sells(t, &did, rondotest.Takes(Ship.Bind(ship), time.Hour))
		h := start(t, env, Sell, Sale{"chair", Bill{"1111", 4500}, "Bremen"}, "sale-1")
		must(t, orchestration.Control(t.Context(), env, h.ID, how, "no longer wanted"))
		_, _ = h.Wait(t.Context())
		wantList(t, string(how), did, append([]string{"reserve sale-1", "charge"}, undone...)...)
	}
}

// TestAPanicUndoesNothing has code that does not return an error, but panics.
func TestAPanicUndoesNothing(t *testing.T) {
	var did []string
	env := virtual(t, noting(Release, &did, func(string) (bool, error) {
		return true, nil
	}), Sell.Bind(func(ctx *orchestration.Context, s Sale) (_ string, err error) {
		var undo orchestration.Saga
		defer func() {
			if err != nil {
				err = undo.Compensate(ctx, time.Hour)
			}
		}()
		undo.Add("release", func(ctx *orchestration.Context) error {
			_, err := Release.Call(ctx, "x")
			return err
		})
		panic("no")
	}))
	_, err := Sell.Run(t.Context(), env, Sale{})
	wantError(t, err, "panic: no")
	wantList(t, "undone", did)
}
