package orchestration

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// CallOptions are the settings of one call of an activity or a step. The options of package
// activity set them.
type CallOptions struct {
	Retry            *events.RetryPolicy // nil: one attempt
	StartToClose     time.Duration       // one attempt, from its start
	ScheduleToStart  time.Duration       // one attempt, until its start
	HeartbeatTimeout time.Duration       // between two heartbeats
	ScheduleToClose  time.Duration       // all attempts together
	Tag              string
	Session          string
}

// StartActivity is what the contracts of package activity are made of; use those.
func StartActivity[In, Out any](ctx *Context, name string, in In, o CallOptions) *Future[Out] {
	what := "activity " + quote(name)
	if err := events.CheckName("activity", name); err != nil {
		return failed[Out](ctx, what, err)
	}
	input, err := codecOf(ctx).Encode(in)
	if err != nil {
		return failed[Out](ctx, what, err)
	}
	return decoded[Out](ctx, ctx.s.Activity(name, input, coro.Options(o)), what)
}

// StartBuiltIn has an activity of the engine's own executed, by an orchestrator: workers need no
// database. The contracts that come with Rondo are made of it; use those. The input is JSON,
// whatever the codec is, and there is no result. An error that is given is that of the future, and
// nothing is executed.
func StartBuiltIn(ctx *Context, name string, input codec.Payload, wrong error) *Future[struct{}] {
	what := "activity " + quote(name)
	if wrong == nil && !strings.HasPrefix(name, events.ReservedPrefix) {
		wrong = fmt.Errorf("the engine has no activity of this name: those of its own begin with %q",
			events.ReservedPrefix)
	}
	var e *failure.Error
	switch {
	case errors.As(wrong, &e):
		of := *e
		of.Source = what
		return &Future[struct{}]{t: ctx.p.Failed(&of)}
	case wrong != nil:
		return failed[struct{}](ctx, what, wrong)
	}
	return &Future[struct{}]{
		t:     ctx.s.Activity(name, input, coro.Options{Tag: SystemTag}),
		value: func(*coro.Task) (struct{}, error) { return struct{}{}, nil },
	}
}
