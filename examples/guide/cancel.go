package guide

import (
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Rent        = orchestration.Define[time.Duration, string]("rent")
	FetchVan    = activity.Define[string, bool]("fetch-van", activity.Retry(5))
	GiveVanBack = activity.Define[string, bool]("give-van-back", activity.Retry(20))
)

func rent(ctx *orchestration.Context, long time.Duration) (string, error) {
	id := ctx.Instance()
	_, err := FetchVan.Call(ctx, id)
	if err == nil {
		err = ctx.Sleep(long) // ErrCancelled, as soon as the instance is cancelled
	}
	shielded, done := ctx.Shield(time.Hour)
	defer done()
	if _, err := GiveVanBack.Call(shielded, id); err != nil {
		return "", fmt.Errorf("the van of %s is not back: %w", id, err)
	}
	return "the van is back", err
}
