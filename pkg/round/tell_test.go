package round_test

import (
	"log/slog"
	"time"
)

// The code of the scenarios that look at what is told.
func init() {
	code["traced"] = traced
	code["traced-again"] = tracedAgain
}

// traced waits for everything that there is to wait for, and tells about itself.
func traced(ctx oc, s string) (string, error) {
	ctx.SetAttributes(slog.String("customer", s), slog.Int("parts", 1))
	all := ctx.Span("all", slog.String("of", s))
	defer all.End()
	ctx.Count("orders", 1, slog.String("kind", "large"))
	begun := ctx.Now()
	paid, err := charge.Call(ctx, 5)
	all.Fail(err)
	ctx.MeasureSince("charging", begun)
	child := contract("echo").StartChild(ctx, paid)
	late := ctx.Timer(time.Hour)
	if ctx.Select(child, late) == late {
		return "late", nil
	}
	letter, err := orders.Receive(ctx)
	ctx.SetAttributes(slog.Int("parts", 2))
	return letter, err
}

// tracedAgain goes on in executions of its own.
func tracedAgain(ctx oc, s string) (string, error) {
	if s == "2" {
		return "done", nil
	}
	if _, err := echo.Call(ctx, s); err != nil {
		return "", err
	}
	return contract("traced-again").ContinueAsNew(ctx, "2")
}
