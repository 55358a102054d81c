package orchestration

import (
	"context"
	"iter"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Event is the contract of a named event, for an instance that waits for it at that moment. If the
// instance does not wait, the engine drops and counts the event, unless its orchestration keeps
// early ones ([Buffered]); for messages that must not be lost use that or a [Mailbox]. The engine
// refuses an event that it cannot decode as a T: the sender gets an error, and the instance goes on
// waiting.
type Event[T any] struct{ name string }

// DefineEvent makes the contract of an event.
func DefineEvent[T any](name string) Event[T] { return Event[T]{name} }

// Name is the event's name.
func (e Event[T]) Name() string { return e.name }

// AnyEvent is the contract of an event of any type.
type AnyEvent interface {
	Name() string
	accepts(codec.Codec) coro.Accepts
}

// accepts makes what tells why data is not of the event's type.
func (Event[T]) accepts(enc codec.Codec) coro.Accepts { return acceptor[T](enc) }

// Wait waits for the next event of the name, or takes the oldest one that is kept ([Buffered]).
func (e Event[T]) Wait(ctx *Context) (T, error) { return e.Next(ctx).Get(ctx) }

// WaitWithin is Wait with a time limit: when it is reached, the error is ErrTimeout.
func (e Event[T]) WaitWithin(ctx *Context, d time.Duration) (T, error) {
	limited, done := ctx.WithTimeout(d)
	defer done()
	return e.Wait(limited)
}

// WaitUntil is Wait with a deadline: when it has passed, the error is ErrTimeout.
func (e Event[T]) WaitUntil(ctx *Context, deadline time.Time) (T, error) {
	limited, done := ctx.WithDeadline(deadline)
	defer done()
	return e.Wait(limited)
}

// Next gives a future of the next event of the name, or of the oldest one that is kept
// ([Buffered]). Of several waits, the oldest gets it. A kept event that was taken by a future that
// is cancelled before it was looked at goes back to the front.
func (e Event[T]) Next(ctx *Context) *Future[T] {
	what := "event " + quote(e.name)
	if err := events.CheckName("event", e.name); err != nil {
		return failed[T](ctx, what, err)
	}
	return decoded[T](ctx, ctx.s.WaitEvent(e.name, e.accepts(codecOf(ctx))), what)
}

// RaiseFrom raises the event for another instance, from within an orchestration. As with Raise, the
// engine drops the event if that instance neither waits for it nor keeps it.
func (e Event[T]) RaiseFrom(ctx *Context, instance string, v T) error {
	return send(ctx, instance, events.ToEvent, e.name, v)
}

// Raise raises the event for an instance, from outside. It returns when NATS has stored the
// message, and retries until ctx ends, so give ctx a deadline. [Event.Deliver] also tells whether
// the instance has taken it; [Event.RaiseFrom] raises it within an orchestration.
func (e Event[T]) Raise(ctx context.Context, c Client, instance string, v T) error {
	m, err := e.message(c, instance, v)
	return publish(ctx, c, m, err)
}

// Deliver is Raise that waits until an orchestrator has decided the event. The receipt says whether
// the instance has taken it: its reason is "no_waiter" when the code does not wait for the event,
// "events_full" when the instance keeps early events and has no room, "has_ended" when the instance
// has ended, and "unknown_instance" when there is none of the id. After an error the outcome is not
// known.
func (e Event[T]) Deliver(ctx context.Context, c Client, instance string, v T) (Receipt, error) {
	m, err := e.message(c, instance, v)
	return deliver(ctx, c, m, err)
}

func (e Event[T]) message(c Client, instance string, v T) (events.Message, error) {
	return toInstance(c, instance, "event", e.name, v, func(p codec.Payload) events.Content {
		return &events.EventRaised{Name: e.name, Data: p}
	})
}

// Mailbox is the contract of a mailbox. Its messages are kept in order until they are read, also
// across continue-as-new. The engine skips a message that it cannot decode as a T: it is
// dead-lettered if the instance waits for one when it arrives.
type Mailbox[T any] struct{ name string }

// DefineMailbox makes the contract of a mailbox.
func DefineMailbox[T any](name string) Mailbox[T] { return Mailbox[T]{name} }

// Name is the mailbox's name.
func (q Mailbox[T]) Name() string { return q.name }

// Receive takes the oldest message, or waits for one.
func (q Mailbox[T]) Receive(ctx *Context) (T, error) { return q.Next(ctx).Get(ctx) }

// ReceiveWithin is Receive with a time limit: when it is reached, the error is ErrTimeout.
func (q Mailbox[T]) ReceiveWithin(ctx *Context, d time.Duration) (T, error) {
	limited, done := ctx.WithTimeout(d)
	defer done()
	return q.Receive(limited)
}

// ReceiveUntil is Receive with a deadline: when it has passed, the error is ErrTimeout.
func (q Mailbox[T]) ReceiveUntil(ctx *Context, deadline time.Time) (T, error) {
	limited, done := ctx.WithDeadline(deadline)
	defer done()
	return q.Receive(limited)
}

// Next gives a future of the oldest message, or of the next one to come. A message that was taken
// by a future that is cancelled before it was looked at goes back to the front.
func (q Mailbox[T]) Next(ctx *Context) *Future[T] {
	what := "mailbox " + quote(q.name)
	if err := events.CheckName("mailbox", q.name); err != nil {
		return failed[T](ctx, what, err)
	}
	return decoded[T](ctx, ctx.s.ReadMailbox(q.name, acceptor[T](codecOf(ctx))), what)
}

// TryReceive takes the oldest message if there is one.
func (q Mailbox[T]) TryReceive(ctx *Context) (v T, ok bool, err error) {
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
func (q Mailbox[T]) Len(ctx *Context) int { return ctx.p.Host().Unread(q.name) }

// SendFrom puts a message into another instance's mailbox, from within an orchestration.
func (q Mailbox[T]) SendFrom(ctx *Context, instance string, v T) error {
	return send(ctx, instance, events.ToMailbox, q.name, v)
}

// Send puts a message into an instance's mailbox, from outside. It returns when NATS has stored the
// message, and retries until ctx ends, so give ctx a deadline. [Mailbox.Deliver] also tells whether
// it is in the mailbox; [Mailbox.SendFrom] sends within an orchestration.
func (q Mailbox[T]) Send(ctx context.Context, c Client, instance string, v T) error {
	m, err := q.message(c, instance, v)
	return publish(ctx, c, m, err)
}

// Deliver is Send that waits until an orchestrator has decided the message. The receipt says
// whether it is in the mailbox: its reason is "has_ended" when the instance has ended. If there is
// no instance of the id, the message waits a minute for its start; then the reason is
// "unknown_instance". After an error the outcome is not known.
func (q Mailbox[T]) Deliver(ctx context.Context, c Client, instance string, v T) (Receipt, error) {
	m, err := q.message(c, instance, v)
	return deliver(ctx, c, m, err)
}

func (q Mailbox[T]) message(c Client, instance string, v T) (events.Message, error) {
	return toInstance(c, instance, "mailbox", q.name, v, func(p codec.Payload) events.Content {
		return &events.MailboxMessage{Mailbox: q.name, Data: p}
	})
}

func send[T any](ctx *Context, instance string, to events.SentTo, name string, v T) error {
	if err := events.CheckName(string(to), name); err != nil {
		return err
	}
	if err := events.CheckInstance(instance); err != nil {
		return err
	}
	data, err := codecOf(ctx).Encode(v)
	if err != nil {
		return err
	}
	if _, refused := ctx.s.Say(&events.Sent{Instance: instance, To: to, Name: name, Data: data}); refused != nil {
		return refused
	}
	return nil
}

// Status is the contract of the custom status: one value that shows the progress of the instance.
type Status[T any] struct{}

// DefineStatus makes the contract of a custom status.
func DefineStatus[T any]() Status[T] { return Status[T]{} }

// Set replaces the status. It is visible outside when the round is committed. The error says that
// it is too large; then the status stays as it was.
func (Status[T]) Set(ctx *Context, v T) error {
	data, err := codecOf(ctx).Encode(v)
	must(ctx.p, err)
	return note(ctx.p, &events.StatusSet{Status: data})
}

// Clear removes the status.
func (Status[T]) Clear(ctx *Context) { _ = note(ctx.p, &events.StatusSet{}) } // no limit is in its way

// Get reads the status.
func (Status[T]) Get(ctx *Context) (v T, ok bool, err error) {
	data := ctx.p.Host().Status()
	if len(data) == 0 {
		return v, false, nil
	}
	return v, true, codecOf(ctx).Decode(data, &v)
}

// Read reads the status of an instance from outside; ok is false if it has none.
func (Status[T]) Read(ctx context.Context, c Client, instance string) (v T, ok bool, err error) {
	s, err := c.ReadStatus(ctx, instance)
	if err != nil || len(s.Data) == 0 {
		return v, false, err
	}
	return v, true, c.Codec().Decode(s.Data, &v)
}

// Watch gives the status of an instance, and then each change, until the instance has ended or the
// loop is left. A status that is cleared is the zero value of T. It may skip a status that is
// replaced at once, but never the last. It waits for an instance that does not exist yet. An error
// ends the loop.
//
//	for progress, err := range Progress.Watch(ctx, c, "import-1") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(progress.Percent)
//	}
func (Status[T]) Watch(ctx context.Context, c Client, instance string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for s, err := range c.WatchStatus(ctx, instance) {
			var v T
			if err == nil && len(s.Data) > 0 {
				err = c.Codec().Decode(s.Data, &v)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Value is the definition of a value that an instance stores, readable from outside and kept across
// continue-as-new.
type Value[T any] struct{ name string }

// DefineValue defines a value with the key name.
func DefineValue[T any](name string) Value[T] { return Value[T]{name} }

// Name is the value's key.
func (x Value[T]) Name() string { return x.name }

// Set sets the value. The error says that it is too large, or that the instance has as many values
// as it may have; then the value stays as it was.
func (x Value[T]) Set(ctx *Context, v T) error {
	data, err := codecOf(ctx).Encode(v)
	must(ctx.p, err)
	if x.name == "" {
		ctx.p.Stop(&failure.Error{Kind: failure.Application, Type: InvalidCall, NonRetryable: true,
			Message: "a value needs a key"})
	}
	return note(ctx.p, &events.ValueSet{Key: x.name, Value: data, Set: ctx.Now()})
}

// Get reads the value.
func (x Value[T]) Get(ctx *Context) (v T, ok bool, err error) {
	data, ok := ctx.p.Host().Value(x.name)
	if !ok {
		return v, false, nil
	}
	return v, true, codecOf(ctx).Decode(data, &v)
}

// Clear removes the value.
func (x Value[T]) Clear(ctx *Context) {
	if _, ok := ctx.p.Host().Value(x.name); ok {
		_ = note(ctx.p, &events.ValuesCleared{Keys: []string{x.name}}) // no limit is in its way
	}
}

// Read reads the value of an instance from outside; ok is false if there is none. [Value.ReadFrom]
// does the same within an orchestration.
func (x Value[T]) Read(ctx context.Context, c Client, instance string) (v T, ok bool, err error) {
	data, ok, err := c.ReadValue(ctx, instance, x.name)
	if err != nil || !ok {
		return v, false, err
	}
	return v, true, c.Codec().Decode(data, &v)
}

// WaitFor waits, from outside, until an instance has the value, and reads it. The error is
// [ErrNoValue] when the instance has ended without the value.
func (x Value[T]) WaitFor(ctx context.Context, c Client, instance string) (v T, err error) {
	data, err := c.WaitForValue(ctx, instance, x.name)
	if err != nil {
		return v, err
	}
	return v, c.Codec().Decode(data, &v)
}

// ReadFrom reads the value of another instance, as it stands at some moment between the call and
// the result.
func (x Value[T]) ReadFrom(ctx *Context, instance string) *Future[*T] {
	what := "value " + quote(x.name) + " of " + quote(instance)
	if err := events.CheckInstance(instance); err != nil {
		return failed[*T](ctx, what, err)
	}
	input, err := codec.JSON{}.Encode(ReadValue{Instance: instance, Key: x.name})
	must(ctx.p, err)
	return decoded[*T](ctx, ctx.s.Activity(ReadValueActivity, input, coro.Options{Tag: SystemTag}), what)
}

// The activity behind [Value.ReadFrom]. The orchestrator runs it, because workers need no database.
// Its result is the value as the other instance wrote it, or nothing.
const (
	SystemTag         = events.ReservedPrefix + "system"
	ReadValueActivity = events.ReservedPrefix + "read-value"
)

// ReadValue is the input of the activity behind [Value.ReadFrom], always as JSON.
type ReadValue struct {
	Instance string `json:"instance"`
	Key      string `json:"key"`
}
