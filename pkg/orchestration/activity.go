package orchestration

import (
	"github.com/rondo-run/rondo/internal/program"
	"github.com/rondo-run/rondo/pkg/events"
)

// StartActivity is what the contracts of package activity are made of; use those.
func StartActivity[In, Out any](ctx *Context, name string, in In, o program.Options) *Future[Out] {
	what := "activity " + quote(name)
	if err := events.CheckName("activity", name); err != nil {
		return failed[Out](ctx, what, err)
	}
	input, err := ctx.codec().Encode(in)
	if err != nil {
		return failed[Out](ctx, what, err)
	}
	return decoded[Out](ctx, ctx.p.Activity(ctx.s, name, input, o), what)
}
