package orchestration

import (
	"fmt"
	"iter"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Future is a result that may not be there yet.
type Future[T any] struct {
	t     *coro.Task
	value func(*coro.Task) (T, error) // nil: the result is a T already
}

// Awaitable is any future, whatever its type.
type Awaitable interface {
	// Done tells whether the result is there.
	Done() bool
	task() *coro.Task
}

func (f *Future[T]) task() *coro.Task { return f.t }

// Done tells whether the result is there.
func (f *Future[T]) Done() bool { return f.t.Done() }

// Get waits for the result. When ctx is cancelled, or its time limit reached, while it waits, the
// error says so; the future itself goes on unless it belongs to the same context.
func (f *Future[T]) Get(ctx *Context) (T, error) {
	if !ctx.s.Await(f.t) {
		var none T
		return none, ctx.s.Err()
	}
	return f.result()
}

// Cancel discards the result. The engine stops the activity or asks the child to stop; Get gives
// ErrCancelled.
func (f *Future[T]) Cancel(ctx *Context) { ctx.p.Drop(f.t) }

func (f *Future[T]) result() (T, error) {
	var zero T
	if err := f.t.Err(); err != nil && f.value == nil {
		if v, ok := f.t.Value().(T); ok {
			return v, err
		}
		return zero, err
	} else if err != nil {
		return zero, err
	}
	if f.value != nil {
		return f.value(f.t)
	}
	v, _ := f.t.Value().(T)
	return v, nil
}

// decoded gives a future whose result comes as a payload.
func decoded[T any](ctx *Context, t *coro.Task, what string) *Future[T] {
	enc := codecOf(ctx)
	return &Future[T]{t: t, value: func(t *coro.Task) (T, error) {
		var v T
		if err := enc.Decode(t.Payload(), &v); err != nil {
			return v, &failure.Error{Kind: failure.Application, Type: TypeMismatch, NonRetryable: true, Source: what,
				Message: err.Error()}
		}
		return v, nil
	}}
}

// The types of the errors for code that asks for the impossible.
const (
	TypeMismatch   = "type_mismatch"   // data is not what the contract says
	InvalidCall    = "invalid_call"    // a name, an id or a version cannot be
	InvalidOptions = "invalid_options" // a retry policy, a timeout or a tag cannot be
)

// Map gives a future of what fn makes of another future's result. It is the same future for Race.
// fn runs each time the result is looked at.
func Map[A, B any](f *Future[A], fn func(A) (B, error)) *Future[B] {
	return &Future[B]{t: f.t, value: func(*coro.Task) (B, error) {
		a, err := f.result()
		if err != nil {
			var none B
			return none, err
		}
		return fn(a)
	}}
}

// Race waits for the first of several futures and cancels the others. It gives the future that
// came first:
//
//	approval, deadline := Approve.Next(ctx), ctx.Timer(24*time.Hour)
//	switch ctx.Race(approval, deadline) {
//	case approval:
//		a, err := approval.Get(ctx)
//		…
//	case deadline:
//		…
//	}
//	return none, ctx.Err()
//
// When several are there already, the one that came first in history wins. When ctx is cancelled
// while it waits, or there are no futures, it gives nil, and so none of the cases is taken.
func (ctx *Context) Race(futures ...Awaitable) Awaitable {
	tasks := tasksOf(futures)
	i := ctx.s.AwaitAny(tasks)
	if i < 0 {
		return nil
	}
	ctx.p.Drop(without(tasks, tasks[i])...)
	return futures[i]
}

// Select is Race that cancels nothing: the other futures can be waited for again.
func (ctx *Context) Select(futures ...Awaitable) Awaitable {
	i := ctx.s.AwaitAny(tasksOf(futures))
	if i < 0 {
		return nil
	}
	return futures[i]
}

// WaitAll waits until all futures are there, of whatever types. Their results are then got without
// waiting. The error is that of ctx, if that ended first.
func (ctx *Context) WaitAll(futures ...Awaitable) error {
	if !ctx.s.AwaitAll(tasksOf(futures)) {
		return ctx.s.Err()
	}
	return nil
}

func tasksOf(futures []Awaitable) []*coro.Task {
	tasks := make([]*coro.Task, len(futures))
	for i, f := range futures {
		tasks[i] = f.task()
	}
	return tasks
}

func without(tasks []*coro.Task, t *coro.Task) []*coro.Task {
	rest := make([]*coro.Task, 0, len(tasks))
	for _, x := range tasks {
		if x != t {
			rest = append(rest, x)
		}
	}
	return rest
}

// All gives a future of all results, in the order of the futures, ready when every one of them is.
// If some failed, the error is a [*PartialError] that tells which, and the other results are still
// there.
func All[T any](ctx *Context, futures ...*Future[T]) *Future[[]T] {
	return group(ctx, coro.AllSettled, futures, func(*coro.Task) ([]T, error) {
		results := make([]T, len(futures))
		failed := &PartialError{total: len(futures)}
		for i, f := range futures {
			v, err := f.result()
			if results[i] = v; err != nil {
				failed.failures = append(failed.failures, failedFuture{i, err})
			}
		}
		if len(failed.failures) > 0 {
			return results, failed
		}
		return results, nil
	})
}

// AllOrNone is All that ends with the first failure: it cancels the other futures and gives that
// error.
func AllOrNone[T any](ctx *Context, futures ...*Future[T]) *Future[[]T] {
	return group(ctx, coro.FirstFailure, futures, func(t *coro.Task) ([]T, error) {
		if i := t.Winner(); i >= 0 {
			_, err := futures[i].result()
			return nil, err
		}
		results := make([]T, len(futures))
		for i, f := range futures {
			v, err := f.result()
			if err != nil {
				return nil, err
			}
			results[i] = v
		}
		return results, nil
	})
}

// Race gives a future of the first result, be it a failure; the other futures are cancelled.
func Race[T any](ctx *Context, futures ...*Future[T]) *Future[T] {
	return group(ctx, coro.FirstSettled, futures, func(t *coro.Task) (T, error) {
		if i := t.Winner(); i >= 0 {
			return futures[i].result()
		}
		var zero T
		return zero, ErrCancelled
	})
}

func group[T, R any](ctx *Context, mode coro.GroupMode, futures []*Future[T],
	value func(*coro.Task) (R, error)) *Future[R] {
	tasks := make([]*coro.Task, len(futures))
	for i, f := range futures {
		tasks[i] = f.t
	}
	return &Future[R]{t: ctx.s.Group(mode, tasks), value: value}
}

// AsCompleted gives futures in the order in which they come, with their place among the arguments.
// Leaving the loop early cancels nothing. When ctx is cancelled, the loop ends.
func AsCompleted[T any](ctx *Context, futures ...*Future[T]) iter.Seq2[int, *Future[T]] {
	return func(yield func(int, *Future[T]) bool) {
		tasks := make([]*coro.Task, len(futures))
		place := make(map[*coro.Task][]int, len(futures))
		for i, f := range futures {
			tasks[i] = f.t
			place[f.t] = append(place[f.t], i)
		}
		stream := ctx.p.NewStream(tasks)
		for t := stream.Next(ctx.s); t != nil; t = stream.Next(ctx.s) {
			i := place[t][0]
			place[t] = place[t][1:]
			if !yield(i, futures[i]) {
				return
			}
		}
	}
}

// Go runs fn on a branch of its own, at the same time as the code after it. Branches are not
// goroutines: only one runs at a time, and they switch only where they wait, so they may share
// variables without locks. What a branch has started is cancelled when it returns.
func Go[T any](ctx *Context, fn func(ctx *Context) (T, error)) *Future[T] {
	return &Future[T]{t: ctx.s.Go(func(inner *coro.Scope) (any, error) {
		return fn(&Context{p: ctx.p, s: inner})
	})}
}

// PartialError is the error of [All] when some of its futures failed. errors.Is and errors.As look
// into all their errors.
type PartialError struct {
	failures []failedFuture
	total    int
}

type failedFuture struct {
	index int
	err   error
}

// Failures gives the errors of the futures that failed, with their places among the arguments.
func (e *PartialError) Failures() iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for _, f := range e.failures {
			if !yield(f.index, f.err) {
				return
			}
		}
	}
}

// Error implements error.
func (e *PartialError) Error() string {
	return fmt.Sprintf("%d of %d failed; the first was future %d: %v", len(e.failures), e.total, e.failures[0].index,
		e.failures[0].err)
}

// Unwrap gives the errors of the futures that failed.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.failures))
	for i, f := range e.failures {
		errs[i] = f.err
	}
	return errs
}
