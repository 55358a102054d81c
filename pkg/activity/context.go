package activity

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Info says what an activity is executed for.
type Info struct {
	Activity      string
	Instance      string
	Execution     int64
	Orchestration string
	Version       string
	// Attempt counts from 1. A worker that dies is no attempt: the same one is executed again
	// elsewhere.
	Attempt int
	// IdempotencyKey is the same for all attempts of this call, and no other call ever has it.
	IdempotencyKey string
	Tag            string
	Session        string
	Worker         string
	// Deadline is when the result is no longer wanted; zero if there is no limit.
	Deadline time.Time
}

// Environment is what a worker gives to the activities it executes.
type Environment struct {
	Info   Info
	Codec  events.Codec
	Logger *slog.Logger
	// Step says that it is an inline step.
	Step bool
	// Heartbeat passes a heartbeat on, with what the next attempt can read; Last is what
	// the attempt before passed on.
	Heartbeat func(progress events.Payload) error
	Last      events.Payload
	// Token finds this attempt again, to complete it from elsewhere.
	Token string
}

type environmentKey struct{}

// NewContext gives the context that an activity is executed with. It is for workers, and for tests
// of activities.
func NewContext(ctx context.Context, e Environment) context.Context {
	return context.WithValue(ctx, environmentKey{}, &e)
}

func environment(ctx context.Context) *Environment {
	if e, ok := ctx.Value(environmentKey{}).(*Environment); ok {
		return e
	}
	return &Environment{}
}

// InfoOf tells what the activity, or the inline step, is executed for.
func InfoOf(ctx context.Context) Info { return environment(ctx).Info }

// MaxHeartbeat bounds the progress of a heartbeat: it travels in the header of a message.
const MaxHeartbeat = events.MaxHeartbeat

// Heartbeat tells that the activity is alive, and how far it is. The error is ctx.Err() once the
// activity should stop.
func Heartbeat(ctx context.Context, progress any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := environment(ctx)
	if e.Heartbeat == nil {
		return nil
	}
	codec := e.Codec
	if codec == nil {
		codec = events.JSON{}
	}
	p, err := codec.Encode(progress)
	if err != nil {
		return err
	}
	if len(p) > MaxHeartbeat {
		return events.Limit("progress of a heartbeat (bytes)", int64(len(p)), MaxHeartbeat,
			"keep the data in a store and report a position in it")
	}
	return e.Heartbeat(p)
}

// LastHeartbeat reads the progress that the attempt before has reported, and tells whether there
// was any.
func LastHeartbeat[T any](ctx context.Context) (progress T, ok bool, err error) {
	e := environment(ctx)
	if len(e.Last) == 0 {
		return progress, false, nil
	}
	codec := e.Codec
	if codec == nil {
		codec = events.JSON{}
	}
	return progress, true, codec.Decode(e.Last, &progress)
}

// ErrPending is what an activity returns when somebody else will complete it later, by its token.
// The time limit of an attempt (Timeout) and that of heartbeats end when it returns;
// [TimeoutOverall] counts on.
var ErrPending = errors.New("the activity will be completed later (return this error from the activity)")

// Token finds this attempt again: pass it to whoever completes the activity after it returned
// [ErrPending].
func Token(ctx context.Context) string { return environment(ctx).Token }

// Errorf makes an error of a type that orchestrations and retry policies can tell apart. The format
// is that of [fmt.Errorf]; of a wrapped error, what history can hold is kept as the cause.
func Errorf(typ, format string, args ...any) error { return events.Wrapf(typ, format, args...) }

// Final marks an error as one that trying again cannot help.
func Final(err error) error {
	if err == nil {
		return nil
	}
	e := *events.AsError(err)
	e.Final = true
	return &e
}

// WithDetails adds a value to an error, for the orchestration to read with [Details].
func WithDetails(err error, details any) error {
	if err == nil {
		return nil
	}
	e := *events.AsError(err)
	p, encodeErr := events.JSON{}.Encode(details)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	e.Details = p
	return &e
}

// Details reads the value that was added to an error, and tells whether there was one.
func Details[T any](err error) (details T, ok bool) {
	var e *events.Error
	for errors.As(err, &e) {
		if len(e.Details) > 0 {
			return details, (events.JSON{}).Decode(e.Details, &details) == nil
		}
		if e.Cause == nil {
			return details, false
		}
		err = e.Cause
	}
	return details, false
}
