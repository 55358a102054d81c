// Command countdown is the program that readers of README.md write.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The definitions: names and types.
var (
	Countdown = orchestration.Define[int, string]("countdown")
	Say       = activity.Define[string, string]("say")
	Left      = orchestration.DefineStatus[int]() // for others to see
)

// The orchestration: it decides.
func countdown(ctx *orchestration.Context, from int) (string, error) {
	for n := from; n > 0; n-- {
		Left.Set(ctx, n)
		if _, err := Say.Call(ctx, fmt.Sprint(n)); err != nil {
			return "", err
		}
		if err := ctx.Sleep(2 * time.Second); err != nil {
			return "", err
		}
	}
	return Say.Call(ctx, "lift-off")
}

// The activity: it touches the world.
func say(_ context.Context, words string) (string, error) {
	fmt.Println(words)
	return words, nil
}

func main() { app.Main(Countdown.Bind(countdown), Say.Bind(say)) }
