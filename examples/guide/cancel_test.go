package guide

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// vans notes which vans are returned.
func vans(back *[]string) []rondotest.Part {
	return []rondotest.Part{
		noting(FetchVan, new([]string), func(string) (bool, error) { return true, nil }),
		noting(GiveVanBack, back, func(id string) (bool, error) {
			if id == "lost" {
				return false, activity.NonRetryable(errors.New("nobody is there to take it"))
			}
			return true, nil
		}),
	}
}

func TestRent(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	out, err := Rent.Run(t.Context(), env, 24*time.Hour, orchestration.ID("rent-1"))
	if out != "the van is back" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	wantList(t, "back", back, "rent-1")
}

func TestRentIsCancelled(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Cancel(t.Context(), "it rains"))
	_, err := h.Wait(t.Context())
	wantError(t, err, "cancelled: it rains")
	wantList(t, "back", back, "rent-1")
	row, _ := env.Instance("rent-1")
	want(t, "status", string(row.Status), "cancelled")
}

// TestRentIsCancelledEarly cancels while the van is fetched.
func TestRentIsCancelledEarly(t *testing.T) {
	var back []string
	parts := vans(&back)
	env := virtual(t, Rent.Bind(rent), parts[1],
		rondotest.Takes(FetchVan.Bind(func(context.Context, string) (bool, error) {
			return true, nil
		}), time.Minute))
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Cancel(t.Context(), "it rains"))
	_, err := h.Wait(t.Context())
	wantError(t, err, "cancelled: it rains")
	wantList(t, "back", back, "rent-1")
}

// TestCleaningUpFails lets the compensation fail: the van cannot be returned.
func TestCleaningUpFails(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "lost")
	must(t, h.Cancel(t.Context(), "it rains"))
	_, err := h.Wait(t.Context())
	wantError(t, err, "cancelled: it rains")
	wantError(t, errors.Unwrap(err),
		`the van of lost is not back: activity "give-van-back": nobody is there to take it`)
}

// TestCleaningUpWithoutAShield forgets the shield.
func TestCleaningUpWithoutAShield(t *testing.T) {
	var back []string
	var after error
	env := virtual(t, append(vans(&back),
		Rent.Bind(func(ctx *orchestration.Context, long time.Duration) (string, error) {
			err := ctx.Sleep(long)
			_, after = GiveVanBack.Call(ctx, "the van")
			return "", err
		}))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Cancel(t.Context(), "it rains"))
	env.Settle()
	wantError(t, after, "cancelled: it rains")
	wantList(t, "back", back)
}

func TestRentIsTerminated(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Terminate(t.Context(), "the shop has burned down"))
	_, err := h.Wait(t.Context())
	wantError(t, err, "terminated: the shop has burned down")
	wantIs(t, err, orchestration.ErrTerminated)
	wantList(t, "back", back)
}

// TestRentIsSuspended halts it while its time comes.
func TestRentIsSuspended(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Suspend(t.Context(), "stocktaking"))
	env.Advance(48 * time.Hour)
	row, _ := env.Instance("rent-1")
	want(t, "status", string(row.Status), "suspended")
	wantList(t, "back", back)
	must(t, h.Resume(t.Context(), ""))
	env.Settle()
	wantList(t, "back", back, "rent-1")
}

// TestSuspendedIsCancelled cancels a suspended instance.
func TestSuspendedIsCancelled(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Suspend(t.Context(), "stocktaking"))
	must(t, h.Cancel(t.Context(), "it rains"))
	env.Settle()
	row, _ := env.Instance("rent-1")
	want(t, "status", string(row.Status), "suspended")
	must(t, h.Resume(t.Context(), ""))
	_, err := h.Wait(t.Context())
	wantError(t, err, "cancelled: it rains")
	wantList(t, "back", back, "rent-1")
}

// TestSuspendedIsTerminated terminates a suspended instance.
func TestSuspendedIsTerminated(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	must(t, h.Suspend(t.Context(), "stocktaking"))
	must(t, h.Terminate(t.Context(), "enough"))
	_, err := h.Wait(t.Context())
	wantError(t, err, "terminated: enough")
}

// TestCancellingAPart limits the time of several calls, and cancels one.
func TestCancellingAPart(t *testing.T) {
	env := virtual(t, rondotest.Takes(Price.Bind(priced), time.Hour),
		Cheapest.Bind(func(ctx *orchestration.Context, s []string) (int, error) {
			limited, done := ctx.WithTimeout(time.Minute)
			defer done()
			_, err := Price.Call(limited, s[0])
			if !errors.Is(err, orchestration.ErrTimeout) {
				return 0, err
			}
			asked := Price.Start(ctx, s[0])
			asked.Cancel(ctx)
			_, gone := asked.Get(ctx)
			if !errors.Is(gone, orchestration.ErrCancelled) || ctx.Err() != nil {
				return 0, gone
			}
			return 1, err
		}))
	_, err := Cheapest.Run(t.Context(), env, []string{"joiner"})
	wantError(t, err, "the time limit of 1m0s was reached")
}

// TestCancelledTwice does nothing the second time.
func TestCancelledTwice(t *testing.T) {
	var back []string
	env := virtual(t, append(vans(&back), Rent.Bind(rent))...)
	h := start(t, env, Rent, 24*time.Hour, "rent-1")
	for range 2 {
		must(t, orchestration.Control(t.Context(), env, h.ID, events.Cancel, "it rains"))
	}
	_, err := h.Wait(t.Context())
	wantError(t, err, "cancelled: it rains")
	must(t, h.Cancel(t.Context(), "once more"))
	env.Settle()
	ignored := env.Ignored()
	want(t, "after the end", string(ignored[len(ignored)-1].Reason), "has_ended")
}
