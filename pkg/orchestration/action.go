package orchestration

import (
	"context"

	"github.com/rondo-run/rondo/pkg/codec"
)

// Action is the contract of an orchestration without a result. It is a [Definition] whose code
// returns an error only.
type Action[In any] struct{ d Definition[In, codec.None] }

// DefineAction makes the contract of an orchestration without a result. One without input takes
// [codec.None].
func DefineAction[In any](name string) Action[In] { return Action[In]{Define[In, codec.None](name)} }

// Name is the orchestration's name.
func (a Action[In]) Name() string { return a.d.Name() }

// Bind binds the code to the contract: see [Definition.Bind].
func (a Action[In]) Bind(fn func(ctx *Context, in In) error, opts ...BindOption) Binding {
	if fn == nil {
		return a.d.Bind(nil, opts...)
	}
	return a.d.Bind(func(ctx *Context, in In) (none codec.None, err error) { return none, fn(ctx, in) }, opts...)
}

// Call starts a child and waits until it has completed.
func (a Action[In]) Call(ctx *Context, in In, opts ...ChildOption) error {
	_, err := a.d.Call(ctx, in, opts...)
	return err
}

// CallAll starts a child for each input, all at the same time, and waits for all. If some failed,
// the error is a [*PartialError] that tells which.
func (a Action[In]) CallAll(ctx *Context, inputs []In, opts ...ChildOption) error {
	_, err := a.d.CallAll(ctx, inputs, opts...)
	return err
}

// StartChild starts a child to be waited for later: see [Definition.StartChild].
func (a Action[In]) StartChild(ctx *Context, in In, opts ...ChildOption) *Future[codec.None] {
	return a.d.StartChild(ctx, in, opts...)
}

// Detach starts an instance that goes on by itself, and gives its id.
func (a Action[In]) Detach(ctx *Context, in In, opts ...DetachOption) (string, error) {
	return a.d.Detach(ctx, in, opts...)
}

// ContinueAsNew ends this execution and begins the next one: see [Definition.ContinueAsNew]. Return
// what it gives.
func (a Action[In]) ContinueAsNew(ctx *Context, in In, opts ...ContinueOption) error {
	_, err := a.d.ContinueAsNew(ctx, in, opts...)
	return err
}

// Start starts an instance from outside.
func (a Action[In]) Start(ctx context.Context, c Client, in In, opts ...StartOption) (Handle[codec.None], error) {
	return a.d.Start(ctx, c, in, opts...)
}

// Run starts an instance from outside and waits until it has completed.
func (a Action[In]) Run(ctx context.Context, c Client, in In, opts ...StartOption) error {
	_, err := a.d.Run(ctx, c, in, opts...)
	return err
}

// Handle gives the handle of an instance that was started elsewhere.
func (a Action[In]) Handle(c Client, id string) Handle[codec.None] { return a.d.Handle(c, id) }

// Branch is [Go] for a function without a result.
func Branch(ctx *Context, fn func(ctx *Context) error) *Future[codec.None] {
	return Go(ctx, func(ctx *Context) (none codec.None, err error) { return none, fn(ctx) })
}

// Do is [Step] for a side effect without a result.
func Do(ctx *Context, name string, fn func(context.Context) error, opts ...StepOption) error {
	_, err := Step(ctx, name, func(ctx context.Context) (none codec.None, err error) { return none, fn(ctx) }, opts...)
	return err
}
