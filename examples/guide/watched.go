package guide

import (
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Removal is a customer's move to a new home, with the things to carry.
type Removal struct {
	Customer string
	Things   []string
}

// The contracts of the chapter.
var (
	Remove = orchestration.Define[Removal, int]("remove")
	Wrap   = activity.Define[string, string]("wrap", activity.Retry(3))
	Carry  = activity.Define[[]string, string]("carry", activity.Retry(3, activity.Fixed(time.Second)))
)

func removal(ctx *orchestration.Context, p Removal) (int, error) {
	ctx.SetSpanAttributes(slog.String("customer", p.Customer)) // to find the trace by
	wrapping := ctx.Span("wrapping", slog.Int("things", len(p.Things)))
	parcels, err := Wrap.CallAll(ctx, p.Things)
	wrapping.Fail(err)
	wrapping.End()
	if err != nil {
		return 0, err
	}
	begun := ctx.Now()
	_, err = Carry.Call(ctx, parcels)
	ctx.Metrics().MeasureSince("shop.carrying", begun)
	ctx.Metrics().Count("shop.parcels", float64(len(parcels)), slog.Bool("delivered", err == nil))
	return len(parcels), err
}
