// Command memorystore is a store of one's own, which keeps everything in memory, and the program of
// examples/hello on it. docs/write-a-store.md explains it step by step. Start it:
//
//	go run ./examples/memorystore dev --database memory:demo --dir $(mktemp -d)
//
// It passes the suite that every store must pass. What it has is lost when the process ends, so it
// is for tests and for reading, and not for production.
package main

import (
	"context"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The definitions: names and types.
var (
	Hello = orchestration.Define[string, string]("hello")
	Greet = activity.Define[string, string]("greet", activity.Retry(3))
)

func hello(ctx *orchestration.Context, name string) (string, error) { return Greet.Call(ctx, name) }

func greet(_ context.Context, name string) (string, error) { return "hello " + name, nil }

func main() {
	app.Main(
		app.Store("memory", open),
		Hello.Bind(hello), Greet.Bind(greet))
}
