package guide

import (
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Purchase is what somebody wants to buy for the shop.
type Purchase struct {
	What  string
	Cents int
}

// Verdict is what whoever is asked says.
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
	if _, err := AskBoss.Call(ctx, ctx.Instance()); err != nil {     // then tell whom to answer
		return "", err
	}
	switch ctx.Select(verdict, deadline) {
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
