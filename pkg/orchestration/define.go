package orchestration

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/internal/x/datatype"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Definition is the contract of an orchestration: its name and its types. The code that implements
// it and the code that starts it share it.
type Definition[In, Out any] struct{ name string }

// Define makes a contract. Whether the name is good is checked when it is registered or used.
func Define[In, Out any](name string) Definition[In, Out] { return Definition[In, Out]{name: name} }

// Name is the orchestration's name.
func (d Definition[In, Out]) Name() string { return d.name }

// Bind binds the code to the contract, as version 1.0.0 unless told otherwise:
//
//	Fulfil.Bind(fulfil)
//	Fulfil.Bind(fulfilBySea, orchestration.Version("2.0.0"))
func (d Definition[In, Out]) Bind(fn func(ctx *Context, in In) (Out, error), opts ...BindOption) Binding {
	b := Binding{name: d.name, version: "1.0.0", input: inputOf[In]()}
	if fn == nil {
		b.err = errors.New("it has no function")
		return b
	}
	if b.err = errors.Join(datatype.Check[In]("input"), datatype.Check[Out]("result")); b.err != nil {
		return b
	}
	b.code = func(p *coro.Program, s *coro.Scope, input codec.Payload) (codec.Payload, error) {
		ctx := &Context{p: p, s: s}
		enc := codecOf(ctx)
		var in In
		if err := enc.Decode(input, &in); err != nil {
			return nil, &failure.Error{Kind: failure.Application, Type: TypeMismatch, NonRetryable: true,
				Message: "invalid input: " + err.Error()}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return enc.Encode(out)
	}
	for _, o := range opts {
		o.bind(&b)
	}
	return b
}

// Call starts a child and waits for its result.
func (d Definition[In, Out]) Call(ctx *Context, in In, opts ...ChildOption) (Out, error) {
	return d.StartChild(ctx, in, opts...).Get(ctx)
}

// CallAll starts a child for each input, all at the same time, and waits for all results, which
// come in the order of the inputs. If some failed, the error is a [*PartialError] that tells which,
// and the other results are still there.
func (d Definition[In, Out]) CallAll(ctx *Context, inputs []In, opts ...ChildOption) ([]Out, error) {
	futures := make([]*Future[Out], len(inputs))
	for i, in := range inputs {
		futures[i] = d.StartChild(ctx, in, opts...)
	}
	return All(ctx, futures...).Get(ctx)
}

// StartChild starts a child to be waited for later. Unless told otherwise, its id is made from this
// instance's, and it is cancelled when this instance ends or no longer waits for it.
func (d Definition[In, Out]) StartChild(ctx *Context, in In, opts ...ChildOption) *Future[Out] {
	what := "orchestration " + quote(d.name)
	var o childOption
	for _, opt := range opts {
		opt.child(&o)
	}
	input, err := codecOf(ctx).Encode(in)
	if err = errors.Join(err, events.CheckName("orchestration", d.name), o.check(ctx.Now())); err != nil {
		return failed[Out](ctx, what, err)
	}
	return decoded[Out](ctx, ctx.s.StartChild(&events.ChildStarted{
		Name: d.name, Version: o.version, Instance: o.id, Input: input, ParentClose: o.parentClose,
		Attributes: o.attributes,
	}), what)
}

// Detach starts an instance that goes on by itself, and gives its id. No result comes back: by
// default, a start whose id is in use changes nothing, and the code does not learn of that. An
// instance that is due later ([Delay], [At]) starts also if this one has ended by then.
func (d Definition[In, Out]) Detach(ctx *Context, in In, opts ...DetachOption) (string, error) {
	var o childOption
	for _, opt := range opts {
		opt.detach(&o)
	}
	now := ctx.Now()
	input, err := codecOf(ctx).Encode(in)
	with, unfit := o.messages(codecOf(ctx))
	if err = errors.Join(err, unfit, events.CheckName("orchestration", d.name), o.check(now)); err != nil {
		return "", invalidCall("orchestration "+quote(d.name), err)
	}
	fact := &events.Launched{Name: d.name, Version: o.version, Instance: o.id, Input: input, Conflict: o.conflict,
		Attributes: o.attributes, Messages: with}
	if due := o.due(now); due.After(now) {
		fact.NotBefore = events.Instant(due)
	}
	id, refused := ctx.s.Say(fact)
	if refused != nil {
		return "", refused
	}
	if o.id == "" {
		return events.ChildID(ctx.Instance(), ctx.Execution(), id), nil
	}
	return o.id, nil
}

// ContinueAsNew ends this execution and begins the next one with fresh history; the custom status,
// the values and the unread mailbox messages go along. Return what it gives:
//
//	return Counter.ContinueAsNew(ctx, state)
func (d Definition[In, Out]) ContinueAsNew(ctx *Context, in In, opts ...ContinueOption) (Out, error) {
	var zero Out
	var o childOption
	for _, opt := range opts {
		opt.next(&o)
	}
	input, err := codecOf(ctx).Encode(in)
	if err = errors.Join(err, events.CheckName("orchestration", d.name), o.check(ctx.Now())); err != nil {
		return zero, err
	}
	return zero, &coro.ContinueAsNew{Name: d.name, Version: o.version, Input: input}
}

// Start starts an instance from outside. It retries until NATS has stored the message or ctx ends,
// so give ctx a deadline.
func (d Definition[In, Out]) Start(ctx context.Context, c Client, in In, opts ...StartOption) (Handle[Out], error) {
	input, err := c.Codec().Encode(in)
	id, start, err := StartInstance(ctx, c, d.name, input,
		append([]StartOption{failedOption{err}, IgnoreUnknownFields()}, opts...)...)
	return Handle[Out]{ID: id, name: d.name, start: start, client: c}, err
}

// Run starts an instance from outside and waits for its result.
func (d Definition[In, Out]) Run(ctx context.Context, c Client, in In, opts ...StartOption) (Out, error) {
	h, err := d.Start(ctx, c, in, opts...)
	if err != nil {
		var none Out
		return none, err
	}
	return h.Wait(ctx)
}

// Handle gives the handle of an instance that was started elsewhere.
func (d Definition[In, Out]) Handle(c Client, id string) Handle[Out] {
	return Handle[Out]{ID: id, name: d.name, client: c}
}

// failed is a future that fails at once.
func failed[T any](ctx *Context, what string, err error) *Future[T] {
	return &Future[T]{t: ctx.p.Failed(invalidCall(what, err))}
}

// invalidCall is the error of a call with values that cannot be used.
func invalidCall(what string, err error) *failure.Error {
	return &failure.Error{Kind: failure.Application, Type: InvalidCall, NonRetryable: true, Source: what,
		Message: err.Error()}
}

// ---- Options.

// BindOption says how code is registered: [Version], [IgnoreUnknownFields], [Buffered],
// [BufferedLatest].
type BindOption interface{ bind(*Binding) }

// ChildOption configures the start of a child: [ID], [Version], [Attributes], [Abandon]. A child
// always rejects an id that is in use ([ErrConflict]), because its result belongs to its parent.
type ChildOption interface{ child(*childOption) }

// DetachOption configures the start of a detached instance: [ID], [Version], [Attributes], [Delay],
// [At], [WithMessage], [UseExisting], [RestartFinished], [ReplaceRunning]. Each of them is a
// [StartOption], too.
type DetachOption interface{ detach(*childOption) }

// ContinueOption configures the next execution of a continue-as-new.
type ContinueOption interface{ next(*childOption) }

type childOption struct {
	launch
	parentClose events.ParentClose
}

func (o *childOption) check(now time.Time) error {
	var err error
	if o.idSet {
		err = events.CheckChosenInstance(o.id)
	}
	return errors.Join(err, o.launch.check(now))
}

// Version names a version of an orchestration: the one that is registered, or the one that is
// wanted. Without it, the newest (or the one that [Registry.Pin] says) is taken.
func Version(v string) VersionOption { return VersionOption(v) }

// VersionOption is made by [Version].
type VersionOption string

// IgnoreUnknownFields has inputs with fields that their type does not have accepted. At an
// orchestration ([Definition.Bind]) it does so for all its starts, at [StartInstance] for one.
// Otherwise a start by name with such a field fails at once, because the field may be mistyped.
// Starts with a contract need no option: the compiler knows the fields, so an unknown one is from
// newer code.
func IgnoreUnknownFields() IgnoreUnknownFieldsOption { return IgnoreUnknownFieldsOption{} }

// IgnoreUnknownFieldsOption is made by [IgnoreUnknownFields].
type IgnoreUnknownFieldsOption struct{}

func (IgnoreUnknownFieldsOption) bind(b *Binding)       { b.input.lenient = true }
func (IgnoreUnknownFieldsOption) start(o *startOptions) { o.ignoreUnknown = true }

func (v VersionOption) bind(b *Binding)       { b.version = string(v) }
func (v VersionOption) child(o *childOption)  { o.version = string(v) }
func (v VersionOption) detach(o *childOption) { o.version = string(v) }
func (v VersionOption) next(o *childOption)   { o.version = string(v) }
func (v VersionOption) start(o *startOptions) { o.version = string(v) }

// ID chooses the id of an instance.
func ID(id string) IDOption { return IDOption(id) }

// IDOption is made by [ID].
type IDOption string

func (id IDOption) child(o *childOption)  { o.id, o.idSet = string(id), true }
func (id IDOption) detach(o *childOption) { id.child(o) }
func (id IDOption) start(o *startOptions) { o.id, o.idSet = string(id), true }

// Abandon lets a child go on when its parent ends or no longer waits for it.
func Abandon() AbandonOption { return AbandonOption{} }

// AbandonOption is made by [Abandon].
type AbandonOption struct{}

func (AbandonOption) child(o *childOption) { o.parentClose = events.AbandonChild }
