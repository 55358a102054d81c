package orchestration

import (
	"context"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Event is the contract of a named event: something that is told to whoever waits for it at that
// moment. When nobody does, it is dropped and counted; for messages that must not be lost use a
// [Queue]. What cannot be decoded as a T is refused: the sender is told, and the instance goes on
// waiting.
type Event[T any] struct{ name string }

// DefineEvent makes the contract of an event.
func DefineEvent[T any](name string) Event[T] { return Event[T]{name} }

// Name is the event's name.
func (e Event[T]) Name() string { return e.name }

// Wait waits for the next event of the name.
func (e Event[T]) Wait(ctx *Context) (T, error) { return e.Next(ctx).Get(ctx) }

// WaitWithin is Wait with a time limit: when it is reached, the error is ErrTimeout.
func (e Event[T]) WaitWithin(ctx *Context, d time.Duration) (T, error) {
	limited, done := ctx.WithTimeout(d)
	defer done()
	return e.Wait(limited)
}

// Next gives a future of the next event of the name. Of several waits, the oldest gets it.
func (e Event[T]) Next(ctx *Context) *Future[T] {
	what := "event " + quote(e.name)
	if err := events.CheckName("event", e.name); err != nil {
		return failed[T](ctx, what, err)
	}
	return decoded[T](ctx, ctx.p.WaitEvent(ctx.s, e.name, acceptor[T](ctx.codec())), what)
}

// Send raises the event for another instance.
func (e Event[T]) Send(ctx *Context, instance string, v T) error {
	return send(ctx, instance, events.ToEvent, e.name, v)
}

// Raise raises the event from outside.
func (e Event[T]) Raise(ctx context.Context, c Client, instance string, v T) error {
	return publish(ctx, c, instance, "event", e.name, v, func(p events.Payload) events.Content {
		return &events.EventRaised{Name: e.name, Data: p}
	})
}

// Queue is the contract of a mailbox: its messages are kept in order until they are read, also
// while nobody reads, and across continue-as-new. A message that cannot be decoded as a T is
// skipped: it becomes a dead letter if the instance waits for one when it comes.
type Queue[T any] struct{ name string }

// DefineQueue makes the contract of a queue.
func DefineQueue[T any](name string) Queue[T] { return Queue[T]{name} }

// Name is the queue's name.
func (q Queue[T]) Name() string { return q.name }

// Receive takes the oldest message, or waits for one.
func (q Queue[T]) Receive(ctx *Context) (T, error) { return q.Next(ctx).Get(ctx) }

// ReceiveWithin is Receive with a time limit: when it is reached, the error is ErrTimeout.
func (q Queue[T]) ReceiveWithin(ctx *Context, d time.Duration) (T, error) {
	limited, done := ctx.WithTimeout(d)
	defer done()
	return q.Receive(limited)
}

// Next gives a future of the oldest message, or of the next one to come. A message that was taken
// by a future that is cancelled before it was looked at goes back to the front.
func (q Queue[T]) Next(ctx *Context) *Future[T] {
	what := "queue " + quote(q.name)
	if err := events.CheckName("queue", q.name); err != nil {
		return failed[T](ctx, what, err)
	}
	return decoded[T](ctx, ctx.p.ReadQueue(ctx.s, q.name, acceptor[T](ctx.codec())), what)
}

// TryReceive takes the oldest message if there is one.
func (q Queue[T]) TryReceive(ctx *Context) (v T, ok bool, err error) {
	if err := ctx.Err(); err != nil || q.Len(ctx) == 0 {
		return v, false, err
	}
	next := q.Next(ctx)
	if !next.Done() { // what there was is of another type, and was skipped
		next.Cancel(ctx)
		return v, false, nil
	}
	v, err = next.Get(ctx)
	return v, true, err
}

// Len counts the unread messages.
func (q Queue[T]) Len(ctx *Context) int { return ctx.p.Host().Unread(q.name) }

// Send puts a message into another instance's queue.
func (q Queue[T]) Send(ctx *Context, instance string, v T) error {
	return send(ctx, instance, events.ToQueue, q.name, v)
}

// Push puts a message into an instance's queue from outside.
func (q Queue[T]) Push(ctx context.Context, c Client, instance string, v T) error {
	return publish(ctx, c, instance, "queue", q.name, v, func(p events.Payload) events.Content {
		return &events.QueueSent{Queue: q.name, Data: p}
	})
}

func send[T any](ctx *Context, instance string, to events.SentTo, name string, v T) error {
	if err := events.CheckName(string(to), name); err != nil {
		return err
	}
	if err := events.CheckInstance(instance); err != nil {
		return err
	}
	data, err := ctx.codec().Encode(v)
	if err != nil {
		return err
	}
	if _, refused := ctx.p.Say(ctx.s,
		&events.Sent{Instance: instance, To: to, Name: name, Data: data}); refused != nil {
		return refused
	}
	return nil
}

// Status is the contract of the custom status: one value that says how far the instance is, for
// people to look at.
type Status[T any] struct{}

// DefineStatus makes the contract of a custom status.
func DefineStatus[T any]() Status[T] { return Status[T]{} }

// Set replaces the status. It is visible outside when the round is committed. The error says that
// it is too large; then the status stays as it was.
func (Status[T]) Set(ctx *Context, v T) error {
	data, err := ctx.codec().Encode(v)
	ctx.must(err)
	return ctx.note(&events.StatusSet{Status: data})
}

// Clear removes the status.
func (Status[T]) Clear(ctx *Context) { _ = ctx.note(&events.StatusSet{}) } // no limit is in its way

// Get reads the status.
func (Status[T]) Get(ctx *Context) (v T, ok bool, err error) {
	data := ctx.p.Host().Status()
	if len(data) == 0 {
		return v, false, nil
	}
	return v, true, ctx.codec().Decode(data, &v)
}

// Key is the contract of a value that an instance keeps, readable from outside and across
// continue-as-new.
type Key[T any] struct{ name string }

// DefineKey makes the contract of a value.
func DefineKey[T any](name string) Key[T] { return Key[T]{name} }

// Name is the value's key.
func (k Key[T]) Name() string { return k.name }

// Set sets the value. The error says that it is too large, or that the instance has as many values
// as it may have; then the value stays as it was.
func (k Key[T]) Set(ctx *Context, v T) error {
	data, err := ctx.codec().Encode(v)
	ctx.must(err)
	if k.name == "" {
		ctx.p.Stop(&events.Error{Kind: events.Application, Type: InvalidCall, Final: true,
			Message: "a value needs a key"})
	}
	return ctx.note(&events.ValueSet{Key: k.name, Value: data, Set: ctx.Now()})
}

// note records what a cancelled scope may do, too.
func (ctx *Context) note(f events.Fact) error {
	if _, refused := ctx.p.Note(f); refused != nil {
		return refused
	}
	return nil
}

// Get reads the value.
func (k Key[T]) Get(ctx *Context) (v T, ok bool, err error) {
	data, ok := ctx.p.Host().Value(k.name)
	if !ok {
		return v, false, nil
	}
	return v, true, ctx.codec().Decode(data, &v)
}

// Clear removes the value.
func (k Key[T]) Clear(ctx *Context) {
	if _, ok := ctx.p.Host().Value(k.name); ok {
		_ = ctx.note(&events.ValuesCleared{Keys: []string{k.name}}) // no limit is in its way
	}
}

// ReadFrom reads the value of another instance, as it stands at some moment between the call and
// the result.
func (k Key[T]) ReadFrom(ctx *Context, instance string) *Future[*T] {
	what := "value " + quote(k.name) + " of " + quote(instance)
	if err := events.CheckInstance(instance); err != nil {
		return failed[*T](ctx, what, err)
	}
	input, err := events.JSON{}.Encode(ReadValue{Instance: instance, Key: k.name})
	ctx.must(err)
	return decoded[*T](ctx, ctx.p.Activity(ctx.s, ReadValueActivity, input, coro.Options{Tag: SystemTag}), what)
}

// The activity behind [Key.ReadFrom]. The orchestrator runs it, because workers need no database.
// Its result is the value as the other instance wrote it, or nothing.
const (
	SystemTag         = events.ReservedPrefix + "system"
	ReadValueActivity = events.ReservedPrefix + "read-value"
)

// ReadValue is the input of the activity behind [Key.ReadFrom], always as JSON.
type ReadValue struct {
	Instance string `json:"instance"`
	Key      string `json:"key"`
}

// Keys lists the keys that have a value, sorted.
func (ctx *Context) Keys() []string {
	set := ctx.p.Host().Values()
	keys := make([]string, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ClearValues removes all values.
func (ctx *Context) ClearValues() { ctx.clear(ctx.Keys()) }

// PruneValues removes the values that were last set before a moment, and tells how many.
func (ctx *Context) PruneValues(before time.Time) int {
	set := ctx.p.Host().Values()
	old := slices.DeleteFunc(ctx.Keys(), func(k string) bool { return !set[k].Before(before) })
	ctx.clear(old)
	return len(old)
}

func (ctx *Context) clear(keys []string) {
	if len(keys) > 0 {
		_ = ctx.note(&events.ValuesCleared{Keys: keys}) // no limit is in its way
	}
}
