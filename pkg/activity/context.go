package activity

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// ExecutionInfo says what an activity is executed for.
type ExecutionInfo struct {
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
	Info   ExecutionInfo
	Codec  codec.Codec
	Logger *slog.Logger
	// Step says that it is an inline step.
	Step bool
	// Heartbeat passes a heartbeat on, with what the next attempt can read; Last is what
	// the attempt before passed on.
	Heartbeat func(progress codec.Payload) error
	Last      codec.Payload
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

// Info tells what the activity, or the inline step, is executed for.
func Info(ctx context.Context) ExecutionInfo { return environment(ctx).Info }

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
	enc := e.Codec
	if enc == nil {
		enc = codec.JSON{}
	}
	p, err := enc.Encode(progress)
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
	enc := e.Codec
	if enc == nil {
		enc = codec.JSON{}
	}
	return progress, true, enc.Decode(e.Last, &progress)
}

// ErrResultPending is the error of an activity that another program completes later, by its token.
// The time limit of an attempt ([StartToClose]) and that of heartbeats end when it returns;
// [ScheduleToClose] counts on.
var ErrResultPending = errors.New("the activity will be completed later (return this error from the activity)")

// Token identifies this attempt: pass it to the program that completes the activity after it
// returned [ErrResultPending].
func Token(ctx context.Context) string { return environment(ctx).Token }

// Errorf makes an error of a type that orchestrations and retry policies can tell apart. The format
// is that of [fmt.Errorf]; of a wrapped error, what history can hold is kept as the cause.
func Errorf(typ, format string, args ...any) error { return failure.Wrapf(typ, format, args...) }

// NonRetryable marks an error as one that no retry policy retries.
func NonRetryable(err error) error {
	if err == nil {
		return nil
	}
	e := *failure.From(err)
	e.NonRetryable = true
	return &e
}

// WithDetails adds a value to an error, for the orchestration to read with [Details].
func WithDetails(err error, details any) error {
	if err == nil {
		return nil
	}
	e := *failure.From(err)
	p, encodeErr := codec.JSON{}.Encode(details)
	if encodeErr != nil {
		return errors.Join(err, encodeErr)
	}
	e.Details = p
	return &e
}

// Details reads the value that was added to an error, and tells whether there was one.
func Details[T any](err error) (details T, ok bool) {
	var e *failure.Error
	for errors.As(err, &e) {
		if len(e.Details) > 0 {
			return details, (codec.JSON{}).Decode(e.Details, &details) == nil
		}
		if e.Cause == nil {
			return details, false
		}
		err = e.Cause
	}
	return details, false
}
