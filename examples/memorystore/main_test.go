package main

import (
	"context"
	"testing"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestProgram runs a NATS server, an orchestrator and a worker in this process on the store, until
// an orchestration has completed.
func TestProgram(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var greeting string
	c := app.Defaults(app.Dev)
	c.Dir, c.Database.URL, c.Demo = t.TempDir(), "memory:"+t.Name(), true
	c.NATSListen, c.Listen = "127.0.0.1:0", "off"
	c.Stdout, c.Stderr = t.Output(), t.Output()
	a, err := app.New(c, app.Store("memory", open), Hello.Bind(hello), Greet.Bind(greet),
		app.Demo(func(ctx context.Context, s app.System) (err error) {
			defer end()
			greeting, err = Hello.Run(ctx, s.Client, "Ann", orchestration.ID("h-1"))
			return err
		}))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx); err != nil || greeting != "hello Ann" {
		t.Errorf("%q, %v", greeting, err)
	}
	s, err := open(t.Context(), c.Database.URL, app.StoreOptions{}) // what it has stored is still there
	if err != nil {
		t.Fatal(err)
	}
	if info, err := s.Instance(t.Context(), "h-1"); err != nil || !info.Status.Ended() {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestOpenWithoutAName(t *testing.T) {
	if _, err := open(t.Context(), "memory:", app.StoreOptions{}); err == nil {
		t.Error("a database without a name was opened")
	}
}
