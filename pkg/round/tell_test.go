package round_test

import (
	"log/slog"
	"time"
)

// The code of the scenarios of logs, spans and metrics.
func init() {
	code["traced"] = traced
	code["traced-again"] = tracedAgain
}

// traced waits for everything that there is to wait for, and tells about itself.
func traced(ctx oc, s string) (string, error) {
	ctx.SetSpanAttributes(slog.String("customer", s), slog.Int("parts", 1))
	all := ctx.Span("all", slog.String("of", s))
	defer all.End()
	ctx.Metrics().Count("orders", 1, slog.String("kind", "large"))
	begun := ctx.Now()
	paid, err := charge.Call(ctx, 5)
	all.Fail(err)
	ctx.Metrics().MeasureSince("charging", begun)
	child := contract("echo").StartChild(ctx, paid)
	late := ctx.Timer(time.Hour)
	if ctx.Race(child, late) == late {
		return "late", nil
	}
	letter, err := orders.Receive(ctx)
	ctx.SetSpanAttributes(slog.Int("parts", 2))
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
