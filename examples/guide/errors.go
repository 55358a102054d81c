package guide

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Shortage says how many there are.
type Shortage struct{ Left int }

// OutOfStock is a type of error.
const OutOfStock = "out_of_stock"

// The contracts of the chapter.
var (
	Collect = orchestration.Define[int, string]("collect")
	Pick    = activity.Define[int, string]("pick", activity.Retry(5, activity.NonRetryableTypes(OutOfStock)))
)

// pick is the activity.
func pick(_ context.Context, n int) (string, error) {
	if n > 3 {
		return "", activity.WithDetails(activity.Errorf(OutOfStock, "there are not %d chairs", n), Shortage{Left: 3})
	}
	return fmt.Sprintf("%d chairs", n), nil
}

// collect takes what there is.
func collect(ctx *orchestration.Context, n int) (string, error) {
	chairs, err := Pick.Call(ctx, n)
	if errors.Is(err, orchestration.OfType(OutOfStock)) {
		if s, ok := activity.Details[Shortage](err); ok && s.Left > n/2 {
			return Pick.Call(ctx, s.Left)
		}
	}
	if err != nil {
		return "", fmt.Errorf("collect %d chairs: %w", n, err)
	}
	return chairs, nil
}
