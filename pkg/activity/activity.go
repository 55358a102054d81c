// Package activity is for code that implements activities, and for orchestrations that call them.
//
// An activity is an ordinary function with a side effect: it charges a card, sends an email,
// resizes an image. It runs on a worker, and runs again when it fails or when its worker dies. So
// it must stand being run twice; [Info].IdempotencyKey helps with that.
//
// The contract is shared by both sides:
//
//	var Charge = activity.Define[ChargeRequest, Receipt]("charge")
//
// A worker binds the code to it:
//
//	Charge.Bind(func(ctx context.Context, r ChargeRequest) (Receipt, error) {
//		return bank.Charge(ctx, r.Card, r.Amount, activity.Info(ctx).IdempotencyKey)
//	})
//
// An orchestration calls it, and says how patient it is:
//
//	receipt, err := Charge.Call(ctx, request, activity.Retry(5), activity.StartToClose(time.Minute))
//
// What an activity returns as an error is what the orchestration gets: an application error, tried
// again as the retry policy says. [Errorf] gives it a type that programs can tell apart.
// [NonRetryable] marks it as non-retryable.
package activity

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rondo-run/rondo/internal/x/datatype"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Definition is the contract of an activity: its name, its types, and how it is usually called.
type Definition[In, Out any] struct {
	name     string
	defaults []Option
}

// Define makes a contract. The options hold for every call, before the call's own.
func Define[In, Out any](name string, defaults ...Option) Definition[In, Out] {
	return Definition[In, Out]{name: name, defaults: defaults}
}

// Name is the activity's name.
func (d Definition[In, Out]) Name() string { return d.name }

// Call has the activity executed and waits for its result.
func (d Definition[In, Out]) Call(ctx *orchestration.Context, in In, opts ...Option) (Out, error) {
	return d.Start(ctx, in, opts...).Get(ctx)
}

// CallAll has the activity executed for each input, all at the same time, and waits for all
// results, which come in the order of the inputs. If some failed, the error is an
// [orchestration.PartialError] that tells which, and the other results are still there.
func (d Definition[In, Out]) CallAll(ctx *orchestration.Context, inputs []In, opts ...Option) ([]Out, error) {
	futures := make([]*orchestration.Future[Out], len(inputs))
	for i, in := range inputs {
		futures[i] = d.Start(ctx, in, opts...)
	}
	return orchestration.All(ctx, futures...).Get(ctx)
}

// Start schedules the activity and returns a future. If the code stops waiting (it lost a select,
// its scope was cancelled, the instance ended), the worker is asked to stop.
func (d Definition[In, Out]) Start(ctx *orchestration.Context, in In, opts ...Option) *orchestration.Future[Out] {
	var o orchestration.CallOptions
	for _, opt := range slices.Concat(d.defaults, opts) {
		opt.ApplyActivity(&o)
	}
	return orchestration.StartActivity[In, Out](ctx, d.name, in, o)
}

// Bind binds the code to the contract.
func (d Definition[In, Out]) Bind(fn func(ctx context.Context, in In) (Out, error)) Binding {
	b := Binding{name: d.name}
	if fn == nil {
		return b
	}
	b.err = errors.Join(datatype.Check[In]("input"), datatype.Check[Out]("result"))
	b.run = func(ctx context.Context, enc codec.Codec, input codec.Payload) (codec.Payload, error) {
		var in In
		if err := enc.Decode(input, &in); err != nil {
			return nil, &failure.Error{Kind: failure.Application, Type: orchestration.TypeMismatch, NonRetryable: true,
				Message: "its input is not what it takes: " + err.Error()}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return enc.Encode(out)
	}
	return b
}

// Binding is the code of an activity, made by [Definition.Bind].
type Binding struct {
	name string
	run  func(ctx context.Context, enc codec.Codec, input codec.Payload) (codec.Payload, error)
	err  error // its types cannot be stored
}

// Name is the name of the activity.
func (b Binding) Name() string { return b.name }

// Run executes the activity once. A panic becomes an error with its stack; a result that is too
// large becomes an error, too.
func (b Binding) Run(ctx context.Context, enc codec.Codec, input codec.Payload) (result codec.Payload, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = events.Bounded(&failure.Error{Kind: failure.Panicked, Message: fmt.Sprint("panic: ", r),
				Stack: string(debug.Stack())})
		}
	}()
	result, err = b.run(ctx, enc, input)
	if err != nil {
		return nil, err
	}
	if e := events.CheckPayload(fmt.Sprintf("result of activity %q", b.name), result); e != nil {
		return nil, e
	}
	return result, nil
}

// Registry holds the activities that this process can execute. It is safe for concurrent use.
type Registry struct{ bindings map[string]Binding }

// NewRegistry makes a registry. The error lists everything that is wrong with the bindings, not
// just the first thing.
func NewRegistry(bindings ...Binding) (*Registry, error) {
	return newRegistry(bindings, func(name string) error { return events.CheckName("activity", name) })
}

// NewBuiltInRegistry is NewRegistry for the activities of the engine. Their names begin with
// [events.ReservedPrefix], which users must not use.
func NewBuiltInRegistry(bindings ...Binding) (*Registry, error) {
	return newRegistry(bindings, func(name string) error {
		own, is := strings.CutPrefix(name, events.ReservedPrefix)
		if !is {
			return fmt.Errorf("activity %q is none of the engine's own: their names begin with %q", name,
				events.ReservedPrefix)
		}
		return events.CheckName("activity", own)
	})
}

func newRegistry(bindings []Binding, check func(name string) error) (*Registry, error) {
	r := &Registry{bindings: make(map[string]Binding, len(bindings))}
	var errs []error
	for _, b := range bindings {
		switch err := check(b.name); {
		case err != nil:
			errs = append(errs, err)
		case b.run == nil:
			errs = append(errs, fmt.Errorf("activity %q: it has no function", b.name))
		case b.err != nil:
			errs = append(errs, fmt.Errorf("activity %q: %w", b.name, b.err))
		case r.bindings[b.name].run != nil:
			errs = append(errs, fmt.Errorf("activity %q is registered twice", b.name))
		default:
			r.bindings[b.name] = b
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("activities cannot be registered:\n%w", errors.Join(errs...))
	}
	return r, nil
}

// Lookup finds an activity.
func (r *Registry) Lookup(name string) (Binding, bool) {
	b, ok := r.bindings[name]
	return b, ok
}

// Names lists all activities, sorted.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.bindings))
	for n := range r.bindings {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// RondoPart marks what a program is made of.
func (Binding) RondoPart() {}
