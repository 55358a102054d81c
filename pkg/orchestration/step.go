package orchestration

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// StepOption says how an inline step is run. Package activity has them: Retry, Timeout,
// TimeoutOverall.
type StepOption = coro.StepOption

// Step runs a short side effect right here, in the orchestrator's process: no worker is needed, and
// it costs one commit. Its result is remembered, so a replay does not run it again; a crash before
// the result was stored does. For what takes long, needs other machines or must be visible while it
// runs, use an activity.
func Step[T any](ctx *Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	return StartStep(ctx, name, fn, opts...).Get(ctx)
}

// StartStep starts an inline step to be waited for later.
func StartStep[T any](ctx *Context, name string, fn func(context.Context) (T, error), opts ...StepOption) *Future[T] {
	what := "step " + quote(name)
	if err := events.CheckName("step", name); err != nil {
		return failed[T](ctx, what, err)
	}
	var o coro.Options
	for _, opt := range opts {
		opt.ApplyStep(&o)
	}
	codec := ctx.codec()
	run := func(c context.Context) (p events.Payload, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = (&events.Error{Kind: events.Panicked, Message: fmt.Sprint("panic: ", r),
					Stack: string(debug.Stack())}).Bounded()
			}
		}()
		v, err := fn(c)
		if err != nil {
			return nil, err
		}
		return codec.Encode(v)
	}
	return decoded[T](ctx, ctx.p.Step(ctx.s, name, run, o), what)
}
