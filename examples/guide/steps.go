package guide

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Prize is the result of a raffle.
type Prize struct {
	Number, Winner string
	Euros          float64
	At             time.Time
}

// Raffle is the contract of the chapter.
var Raffle = orchestration.Define[[]string, Prize]("raffle")

// Rates knows what a dollar costs.
type Rates interface {
	Euros(ctx context.Context, dollars float64) (float64, error)
}

// Raffles has what the orchestration needs: main binds Raffle.Bind(raffles.draw).
type Raffles struct{ Rates Rates }

func (r Raffles) draw(ctx *orchestration.Context, tickets []string) (Prize, error) {
	euros, err := orchestration.Step(ctx, "rate", func(ctx context.Context) (float64, error) {
		return r.Rates.Euros(ctx, 100)
	}, activity.Retry(3), activity.StartToClose(5*time.Second))
	if err != nil {
		return Prize{}, err
	}
	return Prize{
		Number: ctx.NewID(),                            // not uuid.New
		Winner: tickets[ctx.Rand().IntN(len(tickets))], // not rand.IntN
		At:     ctx.Now(),                              // not time.Now
		Euros:  euros,
	}, nil
}
