package guide

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The contracts of the chapter.
var (
	Send    = orchestration.Define[string, string]("send")
	Carrier = activity.Define[string, string]("carrier", activity.Retry(3), activity.ScheduleToClose(14*24*time.Hour))
)

func send(ctx *orchestration.Context, parcel string) (string, error) {
	return Carrier.Call(ctx, parcel)
}

// Desk hands parcels to a carrier, which calls back when they have arrived.
type Desk struct {
	Order func(ctx context.Context, parcel, token string) error
}

func (d Desk) carrier(ctx context.Context, parcel string) (string, error) {
	if err := d.Order(ctx, parcel, activity.Token(ctx)); err != nil {
		return "", err
	}
	return "", activity.ErrResultPending // the worker is done with it; the call is not
}

// arrived is what the carrier calls, days later. An error makes it call again.
func arrived(ctx context.Context, c *client.Client, token, signedBy string) error {
	if signedBy == "" {
		return c.Fail(ctx, token, activity.Errorf("lost", "the parcel is lost"))
	}
	return c.Complete(ctx, token, signedBy)
}
