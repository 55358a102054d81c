package guide

import (
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Account = orchestration.Define[int, int]("account")
	Points  = orchestration.DefineQueue[int]("points")
	Balance = orchestration.DefineKey[int]("balance")
)

func account(ctx *orchestration.Context, balance int) (int, error) {
	for !ctx.ShouldContinueAsNew() {
		points, err := Points.Receive(ctx)
		if err != nil {
			return balance, err
		}
		balance += points
		Balance.Set(ctx, balance)
	}
	return Account.ContinueAsNew(ctx, balance)
}
