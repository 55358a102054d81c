package orchestration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestStepIsRunOnce(t *testing.T) {
	runs := 0
	gives(t, "ran", func(ctx *oc, _ string) (string, error) {
		out, err := orchestration.Step(ctx, "s", func(context.Context) (string, error) { runs++; return "ran", nil })
		if err != nil {
			return "", err
		}
		return out, ctx.Sleep(time.Hour)
	}, nil)
	if runs != 2 {
		t.Errorf("two instances ran it %d times", runs)
	}
}

func TestStepIsTriedAgain(t *testing.T) {
	var keys []string
	gives(t, "attempt 3 of s", func(ctx *oc, _ string) (string, error) {
		return orchestration.Step(ctx, "s", func(c context.Context) (string, error) {
			info := activity.Info(c)
			keys = append(keys, info.IdempotencyKey)
			if info.Attempt < 3 {
				return "", errors.New("not yet")
			}
			return fmt.Sprint("attempt ", info.Attempt, " of ", info.Activity), nil
		}, activity.Retry(5))
	}, nil)
	for _, k := range keys {
		if k != keys[0] || k == "" {
			t.Errorf("idempotency keys %q", keys)
		}
	}
}

func TestStepsHaveKeysOfTheirOwn(t *testing.T) {
	gives(t, "true", func(ctx *oc, _ string) (string, error) {
		key := func(c context.Context) (string, error) { return activity.Info(c).IdempotencyKey, nil }
		keys, err := orchestration.All(ctx, orchestration.StartStep(ctx, "s", key),
			orchestration.StartStep(ctx, "s", key)).Get(ctx)
		return fmt.Sprint(len(keys) == 2 && keys[0] != keys[1]), err
	}, nil)
}

func TestStepFails(t *testing.T) {
	for name, c := range map[string]struct {
		step   string
		fn     func(context.Context) (any, error)
		opts   []orchestration.StepOption
		target error
		says   []string
	}{
		"error": {"s", func(context.Context) (any, error) { return nil, activity.Errorf("busy", "later") },
			[]orchestration.StepOption{activity.Retry(2)}, orchestration.OfType("busy"),
			[]string{`step "s": later (after 2 attempts)`}},
		"final": {"s", func(context.Context) (any, error) { return nil, activity.NonRetryable(errors.New("never")) },
			[]orchestration.StepOption{activity.Retry(2)}, &failure.Error{Kind: failure.Application},
			[]string{`step "s": never`}},
		"panic": {"s", func(context.Context) (any, error) { panic("out of cheese") }, nil,
			&failure.Error{Kind: failure.Panicked}, []string{`step "s": panic: out of cheese`}},
		"result that cannot be encoded": {"s", func(context.Context) (any, error) { return func() {}, nil }, nil,
			&failure.Error{Kind: failure.Application}, []string{`step "s": encode func()`}},
		"result that is too large": {"s", func(context.Context) (any, error) {
			return strings.Repeat("x", events.MaxPayload), nil
		}, nil,
			&failure.Error{Kind: failure.LimitExceeded}, []string{`result of step "s"`}},
		"name": {"", nil, nil, orchestration.OfType("invalid_call"), []string{"step name: it is empty"}},
		"options": {"s", nil, []orchestration.StepOption{activity.StartToClose(-1)},
			orchestration.OfType("invalid_options"),
			[]string{`step "s": StartToClose: -1ns is not between`}},
	} {
		t.Run(name, func(t *testing.T) {
			fails(t, c.target, func(ctx *oc, _ string) (string, error) {
				_, err := orchestration.Step(ctx, c.step, c.fn, c.opts...)
				return "", err
			}, nil, c.says...)
		})
	}
}

func TestStepOfACancelledInstance(t *testing.T) {
	fails(t, orchestration.ErrCancelled, func(ctx *oc, _ string) (string, error) {
		_ = ctx.Sleep(time.Hour)
		_, err := orchestration.Step(ctx, "s", func(context.Context) (string, error) {
			t.Error("it ran")
			return "", nil
		})
		return "", err
	}, func(_ *rondotest.Env, h orchestration.Handle[string]) { must(t, h.Cancel(t.Context(), "")) })
}
