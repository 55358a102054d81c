package rondotest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file tests what an environment does as a system does it.

// TestBaggageTravels: activities and steps have the baggage of the starter of the instance, also
// below children.
func TestBaggageTravels(t *testing.T) {
	parent, child := orchestration.Define[string, string]("parent"), orchestration.Define[string, string]("child")
	look := activity.Define[string, string]("look")
	env := rondotest.New(t, rondotest.Cold(),
		parent.Bind(func(ctx *orchestration.Context, in string) (string, error) { return child.Call(ctx, in) }),
		child.Bind(func(ctx *orchestration.Context, in string) (string, error) {
			a, err := look.Call(ctx, in)
			if err != nil {
				return "", err
			}
			b, err := orchestration.Step(ctx, "step", func(ctx context.Context) (string, error) {
				return baggage.FromContext(ctx).String(), nil
			})
			return a + " " + b, err
		}),
		look.Bind(func(ctx context.Context, _ string) (string, error) {
			return baggage.FromContext(ctx).String(), nil
		}),
	)
	member, err := baggage.NewMember("tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	b, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	out, err := parent.Run(baggage.ContextWithBaggage(t.Context(), b), env, "")
	if out != "tenant=acme tenant=acme" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestChildWithoutCodeWaits: it does not fail, and goes on once its code is there.
func TestChildWithoutCodeWaits(t *testing.T) {
	parent, child := orchestration.Define[string, string]("parent"), orchestration.Define[string, string]("child")
	calls := parent.Bind(func(ctx *orchestration.Context, in string) (string, error) {
		return child.Call(ctx, in, orchestration.ID("kid"))
	})
	env := rondotest.New(t, calls)
	h, err := parent.Start(t.Context(), env, "in", orchestration.ID("p"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(),
		`it waits for orchestration "child" as "kid" (event 2), whose start waits: orchestration "child" is not registered here; registered are parent`) {
		t.Errorf("got %v", err)
	}
	_, err = child.Start(t.Context(), env, "in", orchestration.ID("alone"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Handle(env, "alone").Wait(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `the start of "alone" waits: orchestration "child" is not registered here`) {
		t.Errorf("got %v", err)
	}
	env.Advance(30 * 24 * time.Hour)
	env.Deploy(calls, child.Bind(func(_ *orchestration.Context, in string) (string, error) { return in + " out", nil }))
	if out, err := h.Wait(t.Context()); out != "in out" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestLastDelayedStartCounts: until it is due, a delayed start is replaced by a later one of the
// same ID, to the last moment.
func TestLastDelayedStartCounts(t *testing.T) {
	debounced := orchestration.Define[string, string]("debounced")
	note := activity.Define[string, string]("note")
	for _, after := range []time.Duration{0, time.Second, 3500 * time.Millisecond, 4*time.Second - 1} {
		var ran []string
		env := rondotest.New(t,
			debounced.Bind(func(ctx *orchestration.Context, in string) (string, error) { return note.Call(ctx, in) }),
			note.Bind(func(_ context.Context, in string) (string, error) {
				ran = append(ran, in)
				return in, nil
			}))
		start := func(in string) {
			_, err := debounced.Start(t.Context(), env, in, orchestration.ID("d"), orchestration.Delay(4*time.Second),
				orchestration.RestartFinished())
			if err != nil {
				t.Fatal(err)
			}
		}
		start("a")
		env.Advance(after)
		start("b")
		env.Advance(3 * time.Second)
		if after < time.Second && len(ran) > 0 {
			t.Errorf("after %v: %q ran too early", after, ran)
		}
		env.Advance(5 * time.Second)
		if !slices.Equal(ran, []string{"b"}) {
			t.Errorf("after %v: %q ran", after, ran)
		}
		start("c")
		env.Advance(5 * time.Second)
		if !slices.Equal(ran, []string{"b", "c"}) {
			t.Errorf("%q ran", ran)
		}
	}
}

// logT keeps logged lines and errors.
type logT struct {
	*testing.T
	lines, errors []string
}

func (t *logT) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

func (t *logT) Logf(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// TestLogsAreInTheLogOfTheTest: those of orchestrations, of activities and of steps, with the
// virtual time, once each.
func TestLogsAreInTheLogOfTheTest(t *testing.T) {
	shout := activity.DefineAction[string]("shout")
	o := orchestration.DefineAction[string]("o")
	for name, mode := range modes() {
		t.Run(name, func(t *testing.T) {
			log := &logT{T: t}
			env := rondotest.New(log, append(mode,
				o.Bind(func(ctx *orchestration.Context, s string) error {
					if err := ctx.Sleep(time.Hour); err != nil {
						return err
					}
					ctx.Logger().Info("orchestration", "s", s)
					return errors.Join(shout.Call(ctx, s), orchestration.Do(ctx, "whisper",
						func(ctx context.Context) error {
							activity.Logger(ctx).With("volume", 1).WithGroup("g").Warn("step", "s", s)
							return nil
						}))
				}),
				shout.Bind(func(ctx context.Context, s string) error {
					activity.Logger(ctx).Debug("activity", "s", s)
					return nil
				}))...)
			if err := o.Run(t.Context(), env, "x", orchestration.ID("i")); err != nil {
				t.Fatal(err)
			}
			const at = "time=2026-01-01T01:00:00.000Z level="
			want := []string{
				at + "INFO msg=orchestration instance=i s=x",
				at + `DEBUG msg=activity instance=i execution=1 orchestration=o activity=shout attempt=1 s=x`,
				at + `WARN msg=step instance=i execution=1 orchestration=o step=whisper attempt=1 volume=1 g.s=x`,
			}
			var got []string
			for _, l := range log.lines {
				if strings.HasPrefix(l, "time=") {
					got = append(got, l)
				}
			}
			if !strings.HasPrefix(name, "chaos") && !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestWarningsComeOnce: each replay finds that an input has changed, and one says so.
func TestWarningsComeOnce(t *testing.T) {
	step := activity.Define[int, int]("step")
	o := orchestration.Define[int, int]("o")
	inc := step.Bind(func(_ context.Context, n int) (int, error) { return n + 1, nil })
	code := func(add int) rondotest.Part {
		return o.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			for range 3 {
				if _, err := step.Call(ctx, n+add); err != nil {
					return 0, err
				}
				if err := ctx.Sleep(time.Hour); err != nil {
					return 0, err
				}
			}
			return n, nil
		})
	}
	env := rondotest.New(t, code(0), inc, rondotest.Cold())
	h, err := o.Start(t.Context(), env, 1, orchestration.ID("i"))
	if err != nil {
		t.Fatal(err)
	}
	env.Settle()
	env.Deploy(code(1), inc, rondotest.Cold())
	if _, err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := env.Warnings(); len(w) != 1 || !strings.Contains(w[0], "was recorded with") {
		t.Errorf("the warnings are %q", w)
	}
}

// TestSameCodeWithOtherDataFails: without a deployment between the two, an input that changes from
// replay to replay is a fault of the code. It fails the test once, unless the test allows it.
func TestSameCodeWithOtherDataFails(t *testing.T) {
	step := activity.Define[string, string]("step")
	o := orchestration.Define[int, []string]("o")
	echo := step.Bind(func(_ context.Context, s string) (string, error) { return s, nil })
	odd := func(runs *int) rondotest.Part { // stands for the order of a map
		return o.Bind(func(ctx *orchestration.Context, calls int) (all []string, err error) {
			*runs++
			run := *runs
			for i := range calls {
				s, err := step.Call(ctx, fmt.Sprintf("run %d, call %d", run, i))
				if err != nil {
					return nil, err
				}
				all = append(all, s)
				if err := ctx.Sleep(time.Hour); err != nil {
					return nil, err
				}
			}
			return all, nil
		})
	}
	want := `rondotest: the code of o 1.0.0 gives other data than before, and was not changed: instance "i", event 2:
  history has  activity "step" with "run 1, call 0"
  the code did activity "step" with "run 2, call 0"
It reads a clock, a random number, a map's order or something outside; use ctx.Now, ctx.Rand, sorted keys, a step or an activity.
If that is meant: rondotest.AllowChangedData()`
	t.Run("halted", func(t *testing.T) {
		log, runs := &logT{T: t}, 0
		env := rondotest.New(log, odd(&runs), echo, rondotest.Cold())
		h, err := o.Start(t.Context(), env, 2, orchestration.ID("i"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		for range 3 { // each replay finds it
			if err := h.Cancel(t.Context(), "enough"); err != nil {
				t.Fatal(err)
			}
			env.Settle()
		}
		if !slices.Equal(log.errors, []string{want}) {
			t.Errorf("the errors are %q", log.errors)
		}
		if in, _ := env.Instance("i"); in.Status != string(round.Halted) {
			t.Errorf("it is %s", in.Status)
		}
	})
	t.Run("allowed", func(t *testing.T) {
		runs := 0
		env := rondotest.New(t, odd(&runs), echo, rondotest.Cold(), rondotest.AllowChangedData())
		if _, err := o.Run(t.Context(), env, 2); err != nil {
			t.Fatal(err)
		}
		if w := env.Warnings(); len(w) == 0 || !strings.Contains(w[0], "was recorded with") {
			t.Errorf("the warnings are %q", w)
		}
	})
	t.Run("after a deployment", func(t *testing.T) {
		log, runs := &logT{T: t}, 0
		env := rondotest.New(log, odd(&runs), echo)
		h, err := o.Start(t.Context(), env, 1, orchestration.ID("i"))
		if err != nil {
			t.Fatal(err)
		}
		env.Settle()
		env.Deploy(odd(&runs), echo, rondotest.Cold())
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := env.Warnings(); len(w) != 1 || len(log.errors) > 0 {
			t.Errorf("the warnings are %q, the errors %q", w, log.errors)
		}
	})
	t.Run("recorded after a deployment", func(t *testing.T) {
		log, runs := &logT{T: t}, 0
		env := rondotest.New(log, odd(&runs), echo)
		if _, err := o.Start(t.Context(), env, 2, orchestration.ID("i")); err != nil {
			t.Fatal(err)
		}
		env.Settle()
		env.Deploy(odd(&runs), echo, rondotest.Cold())
		env.Advance(time.Hour)
		if len(log.errors) != 1 || !strings.Contains(log.errors[0], `history has  activity "step" with "run 2, call 1"`) {
			t.Errorf("the errors are %q", log.errors)
		}
	})
}
