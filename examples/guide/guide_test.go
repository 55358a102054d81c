package guide

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// Most tests here run in virtual time, and replay the code before each round, as after a crash.

// virtual makes a system in memory.
func virtual(t *testing.T, parts ...rondotest.Part) *rondotest.Env {
	t.Helper()
	return rondotest.New(t, append(parts, rondotest.Cold())...)
}

// onServers runs a system with a NATS server and a database of its own, and gives a client and
// where NATS is.
func onServers(t *testing.T, parts ...app.Part) (*client.Client, string) {
	t.Helper()
	config := app.Defaults(app.Dev)
	config.Dir, config.NATSListen, config.Listen = t.TempDir(), "127.0.0.1:0", "off"
	config.Stdout, config.Stderr = io.Discard, io.Discard
	return run(t, config, parts...)
}

func run(t *testing.T, config app.Config, parts ...app.Part) (*client.Client, string) {
	t.Helper()
	a, err := app.New(config, parts...)
	must(t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-a.Started():
	case err := <-ended:
		ended <- nil
		t.Fatalf("it has not started: %v", err)
	}
	servers := a.Addresses().NATS
	c, err := client.Connect(t.Context(), servers, client.Codec(config.Codec))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c, servers
}

// limited bounds what only takes long if something is broken.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks what docs/guide.md says about an error: its text.
func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("the error is\n\t%v\nwant\n\t%s", err, text)
	}
}

// wantIs checks what a program can ask of an error.
func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func wantList[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func wantIn(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is not in\n%s", part, text)
	}
}

// noting is an activity that notes its inputs, and returns the results of out.
func noting[In, Out any](d activity.Definition[In, Out], notes *[]In, out func(In) (Out, error)) activity.Binding {
	return d.Bind(func(_ context.Context, in In) (Out, error) {
		*notes = append(*notes, in)
		return out(in)
	})
}

func start[In, Out any](t *testing.T, env *rondotest.Env, d orchestration.Definition[In, Out], in In,
	id string) orchestration.Handle[Out] {
	t.Helper()
	h, err := d.Start(t.Context(), env, in, orchestration.ID(id))
	must(t, err)
	env.Settle()
	return h
}
