package round_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// cleanup waits, and when it is cancelled, cleans up under a shield.
func cleanup(ctx oc, s string) (string, error) {
	_, err := echo.Call(ctx, "work")
	if errors.Is(err, orchestration.ErrCancelled) {
		shielded, done := ctx.Shield(time.Minute)
		defer done()
		_, undoErr := echo.Call(shielded, "undo")
		return "", errors.Join(err, undoErr)
	}
	return "worked", err
}

func shieldedOnly(ctx oc, s string) (string, error) {
	shielded, done := ctx.Shield(time.Minute)
	v, err := echo.Call(shielded, "careful")
	done()
	if err != nil {
		return "", err
	}
	return v, ctx.Err()
}

func stubborn(ctx oc, s string) (string, error) {
	for i := range 3 {
		if _, err := echo.Call(ctx, fmt.Sprint("try", i)); err == nil {
			return "worked", nil
		}
	}
	return "gave up", nil
}

func compensates(ctx oc, s string) (string, error) {
	var undo orchestration.Saga
	for _, name := range []string{"flight", "hotel"} {
		if _, err := echo.Call(ctx, "book "+name); err != nil {
			return "", errors.Join(err, undo.Compensate(ctx, time.Hour))
		}
		undo.Add(name, func(ctx oc) error { _, err := echo.Call(ctx, "cancel "+name); return err })
	}
	if _, err := echo.Call(ctx, "pay"); err != nil {
		return "", errors.Join(err, undo.Compensate(ctx, time.Hour))
	}
	undo.Forget()
	return "booked", undo.Compensate(ctx, time.Hour)
}

// swallows hides that it was cancelled.
func swallows(ctx oc, s string) (string, error) {
	_, _ = echo.Call(ctx, "work")
	return "as if nothing had happened", nil
}

func threeSteps(ctx oc, s string) (string, error) {
	out := ""
	for _, name := range []string{"one", "two", "three"} {
		v, err := orchestration.Step(ctx, name, func(context.Context) (string, error) { return name, nil })
		if err != nil {
			return "", err
		}
		out += v
	}
	return out, nil
}

func flakyStep(ctx oc, s string) (string, error) {
	return orchestration.Step(ctx, "flaky", func(context.Context) (string, error) { return "", errors.New("no") },
		activity.Retry(3, activity.Fixed(time.Second), activity.Jitter(0)), activity.StartToClose(time.Second))
}

func stepOrTimer(ctx oc, s string) (string, error) {
	step := orchestration.StartStep(ctx, "slow", func(context.Context) (string, error) { return "step", nil })
	timer := ctx.Timer(time.Second)
	if ctx.Race(step, timer) == orchestration.Awaitable(timer) {
		return approve.Wait(ctx)
	}
	return step.Get(ctx)
}

func busy(ctx oc, s string) (string, error) {
	for {
		ctx.Now()
	}
}

func deadlocked(ctx oc, s string) (string, error) {
	var a, b *orchestration.Future[string]
	a = orchestration.Go(ctx, func(ctx oc) (string, error) { return b.Get(ctx) })
	b = orchestration.Go(ctx, func(ctx oc) (string, error) { return a.Get(ctx) })
	return a.Get(ctx)
}

func bigValue(ctx oc, s string) (string, error) {
	return "kept", note.Set(ctx, string(make([]byte, 70_000)))
}

func manyKeys(ctx oc, s string) (string, error) {
	for i := range 257 {
		key := orchestration.DefineValue[int](fmt.Sprint("k", i))
		if err := key.Set(ctx, i); err != nil {
			ctx.Values().Clear()
			return fmt.Sprint("begins again at ", key.Name()), key.Set(ctx, i)
		}
	}
	return "kept", nil
}

func badCalls(ctx oc, s string) (string, error) {
	_, a := activity.Define[string, string]("").Call(ctx, "x")
	_, b := activity.Define[string, string]("rondo.x").Call(ctx, "x")
	_, c := echo.Call(ctx, "x", activity.Retry(0))
	_, d := echo.Call(ctx, "x", activity.StartToClose(-1))
	_, e := contract("echo").Call(ctx, "x", orchestration.ID("a~1.2"))
	_, f := contract("echo").Call(ctx, "x", orchestration.Version("one"))
	return errors.Join(a, b, c, d, e, f).Error(), nil
}

// wide starts more than one round may.
func wide(ctx oc, s string) (string, error) {
	for range 30_000 {
		ctx.Timer(time.Hour) // the code does not look whether that was refused
	}
	return "wide", nil
}
