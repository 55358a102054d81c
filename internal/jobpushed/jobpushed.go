// Package jobpushed executes what orchestrations push with package jobpush: the activity of the
// engine's own behind it.
package jobpushed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// The types of the errors of a push that is refused: see package jobpush.
const (
	TypeFull    = "queue_full"
	TypeInvalid = "queue_invalid"
)

// Activity is the name of the activity.
const Activity = events.ReservedPrefix + "jobs.push"

// Input is the input of the activity.
type Input struct {
	Queue string  `json:"queue"`
	Items []Entry `json:"items"`
}

// Entry is a job of the input.
type Entry struct {
	Item     json.RawMessage `json:"item"`
	Priority int             `json:"priority,omitempty"`
	Delay    events.Duration `json:"delay,omitempty"`
}

// Invalid makes the error of a push that no queue takes.
func Invalid(err error) error {
	return &failure.Error{Kind: failure.Application, Type: TypeInvalid, NonRetryable: true, Message: err.Error()}
}

// keyFor is for how long a queue remembers a push.
const keyFor = 7 * 24 * time.Hour

// Handler is the code of the activity, for orchestrators: it pushes to the queues of a store.
func Handler(store jobs.Store) activity.Binding {
	return Bind(func(ctx context.Context, name string, push jobs.Push) error {
		results, err := store.Do(ctx, name, push)
		if err != nil {
			return &unanswered{err}
		}
		return results[0].Refused
	})
}

// unanswered says that the store has failed, which is no refusal.
type unanswered struct{ err error }

func (u *unanswered) Error() string { return u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

// The delays between two tries to reach the store.
const (
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
)

// Bind is the code of the activity with a function that makes the push.
func Bind(push func(ctx context.Context, name string, p jobs.Push) error) activity.Binding {
	return activity.Define[json.RawMessage,
		struct{}](Activity).Bind(func(ctx context.Context, data json.RawMessage) (none struct{}, err error) {
		name, p, err := read(ctx, codec.Payload(data))
		if err != nil {
			return none, err
		}
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			err := push(ctx, name, p)
			var down *unanswered
			if !errors.As(err, &down) {
				return none, refusal(name, err)
			}
			if ctx.Err() != nil {
				return none, context.Cause(ctx)
			}
			activity.Logger(ctx).Warn("the database does not take what is pushed to a queue; trying again", "queue",
				name, "after", pause, "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return none, context.Cause(ctx)
			}
		}
	})
}

// read reads the input of the activity, and makes it the push that it is, with its key. The context
// is the activity's.
func read(ctx context.Context, data codec.Payload) (name string, p jobs.Push, err error) {
	var in Input
	if err := (codec.JSON{}).Decode(data, &in); err != nil {
		return "", p, Invalid(fmt.Errorf("the input cannot be read: %w", err))
	}
	if err := jobs.CheckName(in.Queue); err != nil {
		return "", p, Invalid(err)
	}
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	p.Key, p.KeyFor, p.Digest = key(activity.Info(ctx).IdempotencyKey), keyFor, hash(data)
	for _, i := range in.Items {
		p.Jobs = append(p.Jobs, jobs.NewJob{Data: i.Item, Priority: i.Priority, Delay: time.Duration(i.Delay),
			Trace: trace["traceparent"]})
	}
	return in.Queue, p, nil
}

// key names a call of the activity in the queue. A hash has a length that a key may have, however
// long the instance's id is.
func key(call string) string {
	if call == "" {
		return ""
	}
	return Activity + "/" + hash([]byte(call))
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// refusal is what an orchestration is told.
func refusal(name string, err error) error {
	var full *jobs.FullError
	var bad *jobs.InvalidError
	e := &failure.Error{Kind: failure.Application, Type: TypeInvalid, NonRetryable: true}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &full):
		e.Type, e.NonRetryable = TypeFull, false
	case errors.As(err, &bad), errors.Is(err, jobs.ErrKeyReused):
	default:
		return err
	}
	e.Message = fmt.Sprintf("queue %q: %v", name, err)
	return e
}
