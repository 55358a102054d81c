package orchestration

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Client is what contracts need in order to talk to instances from outside. Package client connects
// to a running system; package rondotest has one in virtual time for tests. Code that takes this
// interface runs with both.
type Client interface {
	// Publish sends messages, those for one instance in their order. It returns when they are
	// stored; when it returns an error, each may or may not have been stored, and may be published
	// again with the same id.
	Publish(ctx context.Context, messages ...events.Message) error
	// Deliver publishes a message and waits until it is known what became of it. After an error
	// that is not known, and the message may be delivered again with the same id.
	Deliver(ctx context.Context, m events.Message) (Receipt, error)
	// Outcome waits until an instance has ended. It returns ctx.Err() when the context ends first,
	// and waits for an instance that does not exist yet. If start is not empty, it is the id of a
	// start message, and what the instance did before that message was taken (or found to change
	// nothing) does not count.
	Outcome(ctx context.Context, instance, start string) (Outcome, error)
	// ReadValue reads a value of an instance; ok is false if there is none.
	ReadValue(ctx context.Context, instance, key string) (v codec.Payload, ok bool, err error)
	// WaitForValue waits until an instance has a value, and reads it. It waits for an instance that
	// does not exist yet. The error is [ErrNoValue] when the instance has ended without the value.
	WaitForValue(ctx context.Context, instance, key string) (codec.Payload, error)
	// ReadStatus reads the custom status of an instance. One that does not exist, or has never set
	// its status, has version 0.
	ReadStatus(ctx context.Context, instance string) (CustomStatus, error)
	// WatchStatus gives the custom status of an instance, and then each change, until the instance
	// has ended or the loop is left. It may skip a status that is replaced at once, but never the
	// last. It waits for an instance that does not exist yet. An error ends the loop.
	WatchStatus(ctx context.Context, instance string) iter.Seq2[CustomStatus, error]
	// NewID gives an id that no other instance has.
	NewID() string
	// Now is the time from which delays are counted.
	Now() time.Time
	// Codec is the codec of the system.
	Codec() codec.Codec
}

// Receipt is what became of a message.
type Receipt struct {
	// Taken says that the message has changed something: now, or when it came before.
	Taken bool
	// Reason is one word: "taken", "duplicate", "exists", "no_waiter", "has_ended" … Detail
	// explains it to a reader.
	Reason, Detail string
	// Status is how the instance stood then, if that is known.
	Status string
}

// CustomStatus is a custom status, encoded. [Status] has it with its type.
type CustomStatus struct {
	Data    codec.Payload // empty: it is not set, or cleared
	Version int64         // each change adds 1
}

// Outcome is how an instance ended.
type Outcome struct {
	Output codec.Payload
	Error  *failure.Error // nil if it completed
	// Orchestration is the name of the orchestration that has ended, "" if it is not known.
	// Execution is the number of its last execution: only from the second one on can the instance
	// have been started as another orchestration, which has continued as this one.
	Orchestration string
	Execution     int64
}

// Of returns [ErrOtherOrchestration] if the instance was not started as the orchestration of this
// name. It returns nil if that is not known.
func (o Outcome) Of(instance, name string) error {
	if o.Orchestration == "" || o.Orchestration == name || o.Execution != 1 {
		return nil
	}
	return fmt.Errorf("%w: instance %q is of %q, not of %q; choose another id", ErrOtherOrchestration, instance,
		o.Orchestration, name)
}

// Handle is an instance as seen from outside.
type Handle[Out any] struct {
	ID     string
	name   string // of the orchestration
	start  string // the start message, if an instance that was there before does not count
	client Client
}

// Wait waits until the instance has ended and gives its result. The error is what the instance
// failed with (a [failure.Error]), or why waiting for it failed. An instance that was cancelled may
// have both: the error, and what its code has returned (without an error of its own: what stands
// beside one is dropped, as usual in Go). If the id belongs to an instance of another
// orchestration, the error is [ErrOtherOrchestration].
func (h Handle[Out]) Wait(ctx context.Context) (Out, error) {
	var out Out
	o, err := h.client.Outcome(ctx, h.ID, h.start)
	if err != nil {
		return out, err
	}
	if err := o.Of(h.ID, h.name); err != nil {
		return out, err
	}
	if o.Error != nil {
		if len(o.Output) > 0 {
			return out, errors.Join(o.Error, h.client.Codec().Decode(o.Output, &out))
		}
		return out, o.Error
	}
	return out, h.client.Codec().Decode(o.Output, &out)
}

// Cancel asks the instance to stop; it may clean up first.
func (h Handle[Out]) Cancel(ctx context.Context, reason string) error {
	return Control(ctx, h.client, h.ID, events.Cancel, reason)
}

// Terminate ends the instance at once.
func (h Handle[Out]) Terminate(ctx context.Context, reason string) error {
	return Control(ctx, h.client, h.ID, events.Terminate, reason)
}

// Suspend halts the instance. The engine keeps its messages until it is resumed.
func (h Handle[Out]) Suspend(ctx context.Context, reason string) error {
	return Control(ctx, h.client, h.ID, events.Suspend, reason)
}

// Resume lets a suspended instance go on.
func (h Handle[Out]) Resume(ctx context.Context, reason string) error {
	return Control(ctx, h.client, h.ID, events.Resume, reason)
}

// Control steers an instance of which only the id is known.
func Control(ctx context.Context, c Client, instance string, how events.How, reason string) error {
	if err := events.CheckInstance(instance); err != nil {
		return err
	}
	switch how {
	case events.Cancel, events.Terminate, events.Suspend, events.Resume:
	default:
		return fmt.Errorf("control %q is none of cancel, terminate, suspend and resume", how)
	}
	if len(reason) > events.MaxReason {
		return events.Limit("reason (bytes)", int64(len(reason)), events.MaxReason, "say it in a sentence")
	}
	return c.Publish(ctx,
		events.Message{ID: c.NewID(), Instance: instance, Content: &events.Control{How: how, Reason: reason}})
}

// toInstance makes a message for an instance from outside, with data of a contract.
func toInstance[T any](c Client, instance, what, name string, v T, content func(codec.Payload) events.Content) (
	events.Message, error) {
	data, err := c.Codec().Encode(v)
	errs := []error{err, events.CheckName(what, name), events.CheckInstance(instance)}
	if e := events.CheckPayload(what+" "+quote(name), data); e != nil {
		errs = append(errs, e)
	}
	if err := errors.Join(errs...); err != nil {
		return events.Message{}, err
	}
	return events.Message{ID: c.NewID(), Instance: instance, Content: content(data)}, nil
}

func publish(ctx context.Context, c Client, m events.Message, err error) error {
	if err != nil {
		return err
	}
	return c.Publish(ctx, m)
}

func deliver(ctx context.Context, c Client, m events.Message, err error) (Receipt, error) {
	if err != nil {
		return Receipt{}, err
	}
	return c.Deliver(ctx, m)
}
