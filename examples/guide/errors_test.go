package guide

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestCollect(t *testing.T) {
	env := virtual(t, Collect.Bind(collect), Pick.Bind(pick))
	for n, text := range map[int]string{2: "2 chairs", 5: "3 chairs"} {
		out, err := Collect.Run(t.Context(), env, n)
		if out != text || err != nil {
			t.Errorf("%d: %q, %v", n, out, err)
		}
	}
	_, err := Collect.Run(t.Context(), env, 12)
	wantError(t, err, `collect 12 chairs: activity "pick": there are not 12 chairs`)
	wantIs(t, err, orchestration.OfType(OutOfStock))
	s, ok := activity.Details[Shortage](err)
	want(t, "left", s.Left, 3)
	want(t, "there", ok, true)
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != "application" || e.Type != OutOfStock {
		t.Errorf("%+v", e)
	}
}

// TestErrorsTravelThroughChildren has a parent that waits for a child, which collects chairs.
func TestErrorsTravelThroughChildren(t *testing.T) {
	parent := orchestration.Define[int, string]("furnish")
	env := virtual(t, Collect.Bind(collect), Pick.Bind(pick),
		parent.Bind(func(ctx *orchestration.Context, n int) (string, error) {
			return Collect.Call(ctx, n)
		}))
	_, err := parent.Run(t.Context(), env, 12)
	wantError(t, err, `orchestration "collect": collect 12 chairs: activity "pick": there are not 12 chairs`)
	wantIs(t, err, orchestration.OfType(OutOfStock))
	s, ok := activity.Details[Shortage](err)
	want(t, "left", s.Left, 3)
	want(t, "there", ok, true)
}

// TestOwnTypesDoNotTravel asks for a type of Go's behind an error that came from an activity.
func TestOwnTypesDoNotTravel(t *testing.T) {
	sentinel := errors.New("sentinel")
	env := virtual(t, Pick.Bind(func(context.Context, int) (string, error) {
		return "", activity.NonRetryable(fmt.Errorf("pick: %w", sentinel))
	}),
		Collect.Bind(func(ctx *orchestration.Context, n int) (string, error) {
			_, err := Pick.Call(ctx, n)
			if errors.Is(err, sentinel) {
				return "it is the same", nil
			}
			return err.Error(), nil
		}))
	out, err := Collect.Run(t.Context(), env, 1)
	if out != `activity "pick": pick: sentinel` || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

func TestPanicOfAnOrchestration(t *testing.T) {
	env := virtual(t, Collect.Bind(func(ctx *orchestration.Context, n int) (string, error) {
		if err := ctx.Sleep(time.Second); err != nil {
			return "", err
		}
		var shelves []int
		return fmt.Sprint(shelves[n]), nil
	}))
	_, err := Collect.Run(t.Context(), env, 1)
	wantError(t, err, "panic: runtime error: index out of range [1] with length 0")
	var e *failure.Error
	if !errors.As(err, &e) || e.Kind != "panicked" {
		t.Errorf("%+v", e)
	}
	wantIn(t, e.Stack, "errors_test.go")
}
