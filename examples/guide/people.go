package guide

import (
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Purchase is something that an employee wants to buy for the shop.
type Purchase struct {
	What  string
	Cents int
}

// Verdict is the answer of the boss.
type Verdict struct {
	By string
	OK bool
}

// The contracts of the chapter.
var (
	Buy      = orchestration.Define[Purchase, string]("buy")
	Verdicts = orchestration.DefineEvent[Verdict]("verdict")
	AskBoss  = activity.Define[string, bool]("ask-boss", activity.Retry(5))
)

func buy(ctx *orchestration.Context, p Purchase) (string, error) {
	verdict, deadline := Verdicts.Next(ctx), ctx.Timer(72*time.Hour) // first begin to wait,
	if _, err := AskBoss.Call(ctx, ctx.Instance()); err != nil {     // then ask the boss
		return "", err
	}
	switch ctx.Race(verdict, deadline) {
	case verdict:
		v, err := verdict.Get(ctx)
		if err != nil {
			return "", err
		}
		if !v.OK {
			return "", orchestration.Errorf("refused", "%s does not want it", v.By)
		}
		return p.What + ", approved by " + v.By, nil
	case deadline:
		return "", orchestration.Errorf("no_answer", "nobody has answered within three days")
	}
	return "", ctx.Err() // it was cancelled
}
