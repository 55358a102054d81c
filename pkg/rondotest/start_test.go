package rondotest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

var (
	greeter = orchestration.Define[string, string]("greeter")
	names   = orchestration.DefineQueue[string]("names")
)

func greet(ctx *orchestration.Context, greeting string) (string, error) {
	name, err := names.Receive(ctx)
	return greeting + " " + name, err
}

func TestStartOptions(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			env := rondotest.New(t, append(mode, greeter.With(greet))...)

			h, err := greeter.Start(ctx, env, "hello", orchestration.ID("x"), orchestration.RejectExisting(),
				orchestration.RequestID("r"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = greeter.Start(ctx, env, "hi", orchestration.ID("x"), orchestration.RejectExisting(),
				orchestration.WithMessage(names, "nobody"))
			var exists *orchestration.ExistsError
			if !errors.As(err, &exists) || exists.Status != "running" {
				t.Errorf("got %v", err)
			}
			if _, err := greeter.Start(ctx, env, "hello", orchestration.ID("x"), orchestration.RejectExisting(),
				orchestration.RequestID("r")); err != nil {
				t.Errorf("the same start again: %v", err)
			}
			if _, err := greeter.Start(ctx, env, "hey", orchestration.ID("x"), orchestration.UseExisting(),
				orchestration.WithMessage(names, "ann")); err != nil {
				t.Error(err)
			}
			if out, err := h.Wait(ctx); out != "hello ann" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
			out, err := greeter.Run(ctx, env, "hey", orchestration.ID("x"), orchestration.RestartFinished(),
				orchestration.WithMessage(names, "bob"))
			if out != "hey bob" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}

			before := env.Now()
			h, err = greeter.Start(ctx, env, "later", orchestration.Delay(time.Hour),
				orchestration.WithMessage(names, "eve"))
			if err != nil {
				t.Fatal(err)
			}
			env.Advance(time.Minute)
			if _, ok := env.Row(h.ID); ok {
				t.Error("it has begun before its time")
			}
			if out, err := h.Wait(ctx); out != "later eve" || err != nil || env.Now().Before(before.Add(time.Hour)) {
				t.Errorf("got %q, %v after %v", out, err, env.Now().Sub(before))
			}
		})
	}
}

func TestDeliverTellsWhatBecameOfIt(t *testing.T) {
	env := rondotest.New(t, greeter.With(greet))
	m := events.Message{ID: "m", Instance: "nobody", Content: &events.EventRaised{Name: "knock"}}
	if r, err := env.Deliver(t.Context(), m); r.Taken || r.Reason != "unknown_instance" || err != nil {
		t.Errorf("got %+v, %v", r, err)
	}
	m.ID = ""
	if _, err := env.Deliver(t.Context(), m); err == nil {
		t.Error("a message without an id was delivered")
	}
}

// The messages of a start are there before the code begins, and no message of a start that restarts
// is lost at the end.
func TestMessagesOfAStart(t *testing.T) {
	look := orchestration.Define[string, string]("look")
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			env := rondotest.New(t,
				append(mode, look.With(func(ctx *orchestration.Context, nap string) (string, error) {
					n := names.Len(ctx)
					name, ok, err := names.TryReceive(ctx)
					if n != 1 || !ok || err != nil {
						return "", orchestration.Errorf("empty", "%d messages, %v", n, err)
					}
					return name, ctx.Sleep(time.Minute) // what comes now, it does not look at
				}))...)
			say := func(name string) orchestration.Handle[string] {
				h, err := look.Start(t.Context(), env, "", orchestration.ID("x"), orchestration.RestartFinished(),
					orchestration.WithMessage(names, name))
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			h := say("ann")
			env.Advance(time.Second)
			say("bob")
			if out, err := h.Wait(t.Context()); out != "ann" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
			env.Advance(2 * time.Minute)
			row, _ := env.Row("x")
			if string(row.Output) != `"bob"` || row.Execution != 2 {
				t.Errorf("execution %d gave %s, %v", row.Execution, row.Output, row.Error)
			}
		})
	}
}
