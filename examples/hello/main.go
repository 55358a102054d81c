// Command hello is the smallest program: one orchestration and one activity in one binary.
//
// It teaches what a durable wait is. Start it:
//
//	go run ./examples/hello dev
//
// and in another terminal, with the nats command or any other NATS client:
//
//	nats pub rondo.start.hello.h-1 '"Ann"'
//
// It greets, waits for ten seconds, and greets again. End it with Ctrl-C while it waits, and start
// it again: it says the second greeting, and not the first one. The wait goes on while nothing
// runs, and completed activities are not executed again. Send the same message again: nothing
// happens, because there is an instance h-1 already.
//
// This one process runs in production as several, from the same binary: `hello orchestrator` and
// `hello worker`.
package main

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The definitions: names and types.
var (
	Hello = orchestration.Define[string, string]("hello")
	Greet = activity.Define[string, string]("greet", activity.Retry(3))
)

// pause is between the two greetings.
const pause = 10 * time.Second

// hello is the orchestration. It may be run again from its beginning at any time; calls that were
// made before then give at once what they gave before.
func hello(ctx *orchestration.Context, name string) (string, error) {
	first, err := Greet.Call(ctx, "hello "+name)
	if err != nil {
		return "", err
	}
	if err := ctx.Sleep(pause); err != nil {
		return "", err
	}
	second, err := Greet.Call(ctx, "hello again "+name)
	if err != nil {
		return "", err
	}
	return first + " " + second, nil
}

// greet is the activity. It is where the world is touched.
func greet(ctx context.Context, words string) (string, error) {
	activity.Logger(ctx).Info(words)
	return words + "!", nil
}

func main() {
	app.Main(Hello.Bind(hello), Greet.Bind(greet))
}
