package orchestration

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// StepOption configures an inline step. Package activity has them: Retry, StartToClose,
// ScheduleToClose.
type StepOption interface {
	// ApplyStep changes the settings of a call.
	ApplyStep(o *CallOptions)
}

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
	var o CallOptions
	for _, opt := range opts {
		opt.ApplyStep(&o)
	}
	enc := codecOf(ctx)
	run := func(c context.Context) (p codec.Payload, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = events.Bounded(&failure.Error{Kind: failure.Panicked, Message: fmt.Sprint("panic: ", r),
					Stack: string(debug.Stack())})
			}
		}()
		v, err := fn(c)
		if err != nil {
			return nil, err
		}
		return enc.Encode(v)
	}
	return decoded[T](ctx, ctx.s.Step(name, run, coro.Options(o)), what)
}
