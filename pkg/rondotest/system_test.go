package rondotest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// This file tests what an environment does as a system does it.

// TestBaggageTravels: activities and steps have the baggage of who started the instance, also below
// children.
func TestBaggageTravels(t *testing.T) {
	parent, child := orchestration.Define[string, string]("parent"), orchestration.Define[string, string]("child")
	look := activity.Define[string, string]("look")
	env := rondotest.New(t, rondotest.Cold(),
		parent.With(func(ctx *orchestration.Context, in string) (string, error) { return child.Call(ctx, in) }),
		child.With(func(ctx *orchestration.Context, in string) (string, error) {
			a, err := look.Call(ctx, in)
			if err != nil {
				return "", err
			}
			b, err := orchestration.Step(ctx, "step", func(ctx context.Context) (string, error) {
				return baggage.FromContext(ctx).String(), nil
			})
			return a + " " + b, err
		}),
		look.With(func(ctx context.Context, _ string) (string, error) {
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
	calls := parent.With(func(ctx *orchestration.Context, in string) (string, error) {
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
	env.Deploy(calls, child.With(func(_ *orchestration.Context, in string) (string, error) { return in + " out", nil }))
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
			debounced.With(func(ctx *orchestration.Context, in string) (string, error) { return note.Call(ctx, in) }),
			note.With(func(_ context.Context, in string) (string, error) {
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
