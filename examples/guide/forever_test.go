package guide

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestAccount(t *testing.T) {
	env := rondotest.New(t, Account.Bind(account))
	h := start(t, env, Account, 0, "account-ann")
	const many = 5000
	for range many {
		must(t, Points.Send(t.Context(), env, "account-ann", 3))
		env.Settle()
	}
	balance, _, err := Balance.Read(t.Context(), env, "account-ann")
	must(t, err)
	want(t, "balance", balance, 3*many)
	row, _ := env.Instance("account-ann")
	want(t, "execution", row.Execution, 2)
	want(t, "events of the first", row.LastEvent < events.HintHistoryEvents, true)

	must(t, h.Cancel(t.Context(), "she has left"))
	balance, err = h.Wait(t.Context())
	wantError(t, err, "cancelled: she has left")
	want(t, "what the code has returned with an error", balance, 0)
}

// TestWhatGoesAlong checks what an execution takes over from the one before.
func TestWhatGoesAlong(t *testing.T) {
	var ended []string
	env := virtual(t, rondotest.Takes(noting(Load, &ended, func(string) (int, error) { return 1, nil }), time.Hour),
		Account.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			if n == 0 {
				Load.Start(ctx, "left behind")
				Balance.Set(ctx, 7)
				Progress.Set(ctx, "first")
				if err := ctx.Sleep(time.Minute); err != nil {
					return 0, err
				}
				return Account.ContinueAsNew(ctx, 1)
			}
			balance, _, err := Balance.Get(ctx)
			if err != nil {
				return 0, err
			}
			status, _, err := Progress.Get(ctx)
			if status != "first" || err != nil {
				return 0, err
			}
			return balance + Points.Len(ctx), nil
		}))
	h, err := Account.Start(t.Context(), env, 0, orchestration.WithMessage(Points, 1))
	must(t, err)
	n, err := h.Wait(t.Context())
	if n != 8 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	env.Advance(2 * time.Hour)
	wantList(t, "what was left behind", ended)
}

// TestContinueAsNewMustBeReturned forgets to return what it gives.
func TestContinueAsNewMustBeReturned(t *testing.T) {
	env := virtual(t, Account.Bind(func(ctx *orchestration.Context, n int) (int, error) {
		_, _ = Account.ContinueAsNew(ctx, n+1)
		return n, nil
	}))
	n, err := Account.Run(t.Context(), env, 7)
	if n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
