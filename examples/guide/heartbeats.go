package guide

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Printer prints pages, each of which takes a while.
type Printer struct {
	Page func(ctx context.Context, page int) error
}

func publish(ctx *orchestration.Context, pages int) (int, error) { return Print.Call(ctx, pages) }

// The contracts of the chapter.
var (
	Publish = orchestration.Define[int, int]("publish")
	Print   = activity.Define[int, int]("print", activity.Retry(5), activity.StartToClose(6*time.Hour),
		activity.HeartbeatTimeout(time.Minute))
)

func (p Printer) print(ctx context.Context, pages int) (int, error) {
	done, _, err := activity.LastHeartbeat[int](ctx) // how far the attempt before has got, 0 at first
	if err != nil {
		return 0, err
	}
	for ; done < pages; done++ {
		if err := activity.Heartbeat(ctx, done); err != nil {
			return done, err // no instance waits for it any more, or its time is over
		}
		if err := p.Page(ctx, done); err != nil {
			return done, err
		}
	}
	return done, nil
}
