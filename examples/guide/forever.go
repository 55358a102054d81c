package guide

import (
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Account = orchestration.Define[int, int]("account")
	Points  = orchestration.DefineMailbox[int]("points")
	Balance = orchestration.DefineValue[int]("balance")
)

func account(ctx *orchestration.Context, balance int) (int, error) {
	for !ctx.ShouldContinueAsNew() {
		points, err := Points.Receive(ctx)
		if err != nil {
			return balance, err
		}
		balance += points
		if err := Balance.Set(ctx, balance); err != nil {
			return balance, err
		}
	}
	return Account.ContinueAsNew(ctx, balance)
}
