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
	names   = orchestration.DefineMailbox[string]("names")
)

func greet(ctx *orchestration.Context, greeting string) (string, error) {
	name, err := names.Receive(ctx)
	return greeting + " " + name, err
}

func TestStartOptions(t *testing.T) {
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			env := rondotest.New(t, append(mode, greeter.Bind(greet))...)

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
			if _, ok := env.Instance(h.ID); ok {
				t.Error("it has begun before its time")
			}
			if out, err := h.Wait(ctx); out != "later eve" || err != nil || env.Now().Before(before.Add(time.Hour)) {
				t.Errorf("got %q, %v after %v", out, err, env.Now().Sub(before))
			}
		})
	}
}

func TestWaitRefusesAnotherOrchestration(t *testing.T) {
	env := rondotest.New(t, greeter.Bind(greet))
	_, err := greeter.Start(t.Context(), env, "hello", orchestration.ID("x"), orchestration.WithMessage(names, "ann"))
	if err != nil {
		t.Fatal(err)
	}
	other := orchestration.Define[string, string]("other")
	if out, err := other.Run(t.Context(), env, "", orchestration.ID("x")); out != "" ||
		!errors.Is(err, orchestration.ErrOtherOrchestration) {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestDeliverTellsWhatBecameOfIt(t *testing.T) {
	env := rondotest.New(t, greeter.Bind(greet))
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
				append(mode, look.Bind(func(ctx *orchestration.Context, nap string) (string, error) {
					n := names.Len(ctx)
					name, ok, err := names.TryReceive(ctx)
					if n != 1 || !ok || err != nil {
						return "", orchestration.Errorf("empty", "%d messages, %v", n, err)
					}
					return name, ctx.Sleep(time.Minute) // it does not look at messages from here on
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
			row, _ := env.Instance("x")
			if string(row.Output) != `"bob"` || row.Execution != 2 {
				t.Errorf("execution %d gave %s, %v", row.Execution, row.Output, row.Error)
			}
		})
	}
}

// TestFieldsOfANewerTypeRestart: the start of a newer program reaches an instance that ends without
// looking at its message. The instance that is started for the message ignores the new field, too.
func TestFieldsOfANewerTypeRestart(t *testing.T) {
	type newer struct{ Room, Floor string }
	type older struct{ Room string }
	clean := orchestration.Define[older, string]("clean")
	fromNewer := orchestration.Define[newer, string]("clean")
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			env := rondotest.New(t, append(mode, clean.Bind(func(ctx *orchestration.Context, in older) (string, error) {
				if _, _, err := names.TryReceive(ctx); err != nil {
					return "", err
				}
				return in.Room, ctx.Sleep(time.Minute)
			}))...)
			for _, name := range []string{"ann", "bob"} {
				if _, err := fromNewer.Start(t.Context(), env, newer{"hall", "2"}, orchestration.ID("c"),
					orchestration.RestartFinished(), orchestration.WithMessage(names, name)); err != nil {
					t.Fatal(err)
				}
				env.Advance(time.Second)
			}
			env.Advance(5 * time.Minute)
			in, _ := env.Instance("c")
			if string(in.Output) != `"hall"` || in.Execution != 2 {
				t.Errorf("execution %d gave %s, %v", in.Execution, in.Output, in.Error)
			}
		})
	}
}

// TestDetachedStarts has starts of instances that the code detaches: none is before its time, none
// is taken twice, and the messages that they bring reach an instance.
func TestDetachedStarts(t *testing.T) {
	launcher := orchestration.Define[string, time.Time]("launcher")
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			env := rondotest.New(t, append(mode, greeter.Bind(greet),
				launcher.Bind(func(ctx *orchestration.Context, in string) (time.Time, error) {
					due := ctx.Now().Add(time.Hour)
					if _, err := greeter.Detach(ctx, "later", orchestration.ID("later"), orchestration.At(due),
						orchestration.WithMessage(names, "eve"), orchestration.RestartFinished(),
						orchestration.Attributes(map[string]string{"by": ctx.Instance()})); err != nil {
						return due, err
					}
					for _, name := range []string{"ann", "bob"} { // bob meets an instance that has ended
						if _, err := greeter.Detach(ctx, "hello", orchestration.ID("x"),
							orchestration.RestartFinished(), orchestration.WithMessage(names, name)); err != nil {
							return due, err
						}
						if err := ctx.Sleep(10 * time.Minute); err != nil {
							return due, err
						}
					}
					return due, nil
				}))...)
			due, err := launcher.Run(t.Context(), env, "", orchestration.ID("l"))
			if err != nil {
				t.Fatal(err)
			}
			env.Crash()
			if _, ok := env.Instance("later"); ok {
				t.Error("it has begun before its time")
			}
			if row, _ := env.Instance("x"); string(row.Output) != `"hello bob"` || row.Execution != 2 {
				t.Errorf("execution %d of x gave %s, %v", row.Execution, row.Output, row.Error)
			}
			env.Advance(2 * time.Hour)
			row, _ := env.Instance("later")
			if string(row.Output) != `"later eve"` || row.Execution != 1 || row.StartedAt.Before(due) ||
				row.Attributes["by"] != "l" {
				t.Errorf("execution %d gave %s, %v; started %v after its time with %v", row.Execution, row.Output,
					row.Error, row.StartedAt.Sub(due), row.Attributes)
			}
		})
	}
}

// TestDetachedStartIsReplaced detaches an instance again before it is due: the last one counts.
func TestDetachedStartIsReplaced(t *testing.T) {
	idle := orchestration.Define[string, string]("idle")
	busy := orchestration.Define[string, string]("busy")
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			env := rondotest.New(t, append(mode,
				idle.Bind(func(_ *orchestration.Context, in string) (string, error) { return in, nil }),
				busy.Bind(func(ctx *orchestration.Context, _ string) (string, error) {
					for _, in := range []string{"first", "second", "third"} {
						if _, err := idle.Detach(ctx, in, orchestration.ID("idle"),
							orchestration.Delay(time.Hour)); err != nil {
							return "", err
						}
						if err := ctx.Sleep(30 * time.Minute); err != nil {
							return "", err
						}
					}
					return "", nil
				}))...)
			began := env.Now()
			if _, err := busy.Run(t.Context(), env, "", orchestration.ID("busy")); err != nil {
				t.Fatal(err)
			}
			env.Advance(3 * time.Hour)
			row, _ := env.Instance("idle")
			if string(row.Output) != `"third"` || row.Execution != 1 || row.StartedAt.Sub(began) < 2*time.Hour {
				t.Errorf("execution %d gave %s after %v", row.Execution, row.Output, row.StartedAt.Sub(began))
			}
		})
	}
}
