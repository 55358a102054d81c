package activity

import (
	"context"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Action is the contract of an activity without a result. It is a [Definition] whose code returns
// an error only.
type Action[In any] struct{ d Definition[In, codec.None] }

// DefineAction makes the contract of an activity without a result. One without input takes
// [codec.None]. The options hold for every call, before the call's own.
func DefineAction[In any](name string, defaults ...Option) Action[In] {
	return Action[In]{Define[In, codec.None](name, defaults...)}
}

// Name is the activity's name.
func (a Action[In]) Name() string { return a.d.Name() }

// Bind binds the code to the contract.
func (a Action[In]) Bind(fn func(ctx context.Context, in In) error) Binding {
	if fn == nil {
		return a.d.Bind(nil)
	}
	return a.d.Bind(func(ctx context.Context, in In) (none codec.None, err error) { return none, fn(ctx, in) })
}

// Call has the activity executed and waits until it has completed.
func (a Action[In]) Call(ctx *orchestration.Context, in In, opts ...Option) error {
	_, err := a.d.Call(ctx, in, opts...)
	return err
}

// CallAll has the activity executed for each input, all at the same time, and waits for all. If
// some failed, the error is an [orchestration.PartialError] that tells which.
func (a Action[In]) CallAll(ctx *orchestration.Context, inputs []In, opts ...Option) error {
	_, err := a.d.CallAll(ctx, inputs, opts...)
	return err
}

// Start schedules the activity and returns a future: see [Definition.Start].
func (a Action[In]) Start(ctx *orchestration.Context, in In, opts ...Option) *orchestration.Future[codec.None] {
	return a.d.Start(ctx, in, opts...)
}
