package guide

import (
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Order      = orchestration.Define[string, string]("order")
	CheckStock = activity.Define[string, bool]("check-stock")
	Pack       = activity.Define[string, string]("pack")
)

// orderAtFirst is what ran when the shop was opened.
func orderAtFirst(ctx *orchestration.Context, goods string) (string, error) {
	if err := ctx.Sleep(time.Hour); err != nil { // it may still be changed
		return "", err
	}
	return Pack.Call(ctx, goods)
}

// order is the same with a small change.
func order(ctx *orchestration.Context, goods string) (string, error) {
	if err := ctx.Sleep(time.Hour); err != nil {
		return "", err
	}
	if ctx.Patched("check-stock") {
		if _, err := CheckStock.Call(ctx, goods); err != nil {
			return "", err
		}
	}
	return Pack.Call(ctx, goods)
}

// orderBySea is another way to do it, beside the one that runs.
func orderBySea(ctx *orchestration.Context, goods string) (string, error) {
	box, err := Pack.Call(ctx, goods)
	return box + " by sea", err
}

// both are what a program is made of while instances of the old version run.
var both = []app.Part{
	Order.Bind(order), // 1.0.0
	Order.Bind(orderBySea, orchestration.Version("2.0.0")),
}
