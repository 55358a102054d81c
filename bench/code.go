package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file is the code that the services run: what a user would have written.

// job is the input of every orchestration here.
type job struct {
	// Count is how many activities or steps there are, where that is not one.
	Count int `json:"count,omitempty"`
	// Data goes through all of them.
	Data string `json:"data"`
	// For is how long a timer waits.
	For time.Duration `json:"for,omitempty"`
}

// echoed is the output: how many activities or steps have answered, and the last answer.
type echoed struct {
	Count int    `json:"count"`
	Data  string `json:"data"`
}

var (
	echo = activity.Define[string, string]("echo")
	nap  = activity.Define[string, string]("nap")

	once         = orchestration.Define[job, echoed]("once")
	onceStep     = orchestration.Define[job, echoed]("once-step")
	sequence     = orchestration.Define[job, echoed]("sequence")
	sequenceStep = orchestration.Define[job, echoed]("sequence-step")
	fan          = orchestration.Define[job, echoed]("fan")
	fanStep      = orchestration.Define[job, echoed]("fan-step")
	napFan       = orchestration.Define[job, echoed]("nap-fan")
	wait         = orchestration.Define[job, echoed]("wait")
	parked       = orchestration.Define[job, echoed]("parked")

	wake = orchestration.DefineEvent[string]("wake")
)

// napTime is how long the activity nap takes.
const napTime = 10 * time.Millisecond

// parts is the program.
func parts() []app.Part {
	return []app.Part{
		echo.Bind(func(_ context.Context, s string) (string, error) { return s, nil }),
		nap.Bind(func(ctx context.Context, s string) (string, error) {
			select {
			case <-time.After(napTime):
				return s, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}),
		once.Bind(oneAfterTheOther(callEcho)), onceStep.Bind(oneAfterTheOther(stepEcho)),
		sequence.Bind(oneAfterTheOther(callEcho)), sequenceStep.Bind(oneAfterTheOther(stepEcho)),
		fan.Bind(allAtOnce(func(ctx *orchestration.Context, s string) *orchestration.Future[string] {
			return echo.Start(ctx, s)
		})),
		fanStep.Bind(allAtOnce(startStepEcho)),
		napFan.Bind(allAtOnce(func(ctx *orchestration.Context, s string) *orchestration.Future[string] {
			return nap.Start(ctx, s)
		})),
		wait.Bind(func(ctx *orchestration.Context, j job) (echoed, error) {
			if err := ctx.Sleep(j.For); err != nil {
				return echoed{}, err
			}
			return echoed{1, j.Data}, nil
		}),
		parked.Bind(park),
	}
}

func callEcho(ctx *orchestration.Context, s string) (string, error) { return echo.Call(ctx, s) }

func stepEcho(ctx *orchestration.Context, s string) (string, error) {
	return orchestration.Step(ctx, "echo", func(context.Context) (string, error) { return s, nil })
}

func startStepEcho(ctx *orchestration.Context, s string) *orchestration.Future[string] {
	return orchestration.StartStep(ctx, "echo", func(context.Context) (string, error) { return s, nil })
}

// oneAfterTheOther makes an orchestration of an echo: each call gets the result of the call before.
func oneAfterTheOther(do func(*orchestration.Context, string) (string, error)) func(*orchestration.Context,
	job) (echoed, error) {
	return func(ctx *orchestration.Context, j job) (echoed, error) {
		out := echoed{Data: j.Data}
		for range max(1, j.Count) {
			var err error
			if out.Data, err = do(ctx, out.Data); err != nil {
				return out, err
			}
			out.Count++
		}
		return out, nil
	}
}

// allAtOnce makes an orchestration of something that echoes, all of them at once.
func allAtOnce(start func(*orchestration.Context, string) *orchestration.Future[string]) func(*orchestration.Context,
	job) (echoed, error) {
	return func(ctx *orchestration.Context, j job) (echoed, error) {
		futures := make([]*orchestration.Future[string], j.Count)
		for i := range futures {
			futures[i] = start(ctx, fmt.Sprint(i, " ", j.Data))
		}
		answers, err := orchestration.All(ctx, futures...).Get(ctx)
		out := echoed{Data: j.Data}
		for i, a := range answers {
			if a == fmt.Sprint(i, " ", j.Data) {
				out.Count++
			}
		}
		return out, err
	}
}

// park waits for an event and for a timer, whichever comes first.
func park(ctx *orchestration.Context, j job) (echoed, error) {
	woken, late := wake.Next(ctx), ctx.Timer(j.For)
	if ctx.Race(woken, late) == woken {
		data, err := woken.Get(ctx)
		return echoed{1, data}, err
	}
	return echoed{0, j.Data}, nil
}

// hundredBytes is data of about the size that references to orders, users and files have, different
// for each number.
func hundredBytes(n int) string {
	s := fmt.Sprintf("item-%08d ", n)
	return s + strings.Repeat("x", 100-len(s))
}
