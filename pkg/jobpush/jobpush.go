// Package jobpush lets orchestrations push items to the queues of
// [github.com/rondo-run/rondo/internal/jobs].
//
//	err := jobpush.Push(ctx, "mails", jobpush.Item{Item: mail}, jobpush.Item{Item: receipt, Delay: time.Hour})
//
// Behind it is an activity of the engine's own. An orchestrator executes it, because workers need
// no database; it is in the history like any other activity.
//
// # Once
//
// Work is executed at least once. Here it has its effect once: the push has a key, made of what
// names the call for good (the instance, its incarnation and execution, and the place in its
// history; see [activity.Info]), and the queue remembers keys for seven days. Whoever executes it
// again finds that it was done.
//
// # What is refused
//
// A queue that is full, a priority that it has not, a name that no queue may have: the push fails,
// nothing of it is in the queue, and the orchestration is told why. [TypeFull] may be over in a
// while, so an orchestration can sleep and push again. [TypeInvalid] is final.
//
//	if errors.Is(err, orchestration.OfType(jobpush.TypeFull)) { … }
//
// A database that does not answer is no refusal. It is waited for, until somebody cancels the push
// or its time is over: give the context a limit (see [orchestration.Context.WithTimeout]) if the
// orchestration has none.
package jobpush

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
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Item is what is pushed.
type Item struct {
	// Item is the item itself. It is written as JSON, whatever the codec of the orchestrations is:
	// whoever pops it reads that.
	Item any
	// Priority is 0, the highest, to the last one that the queue has.
	Priority int
	// Delay is how long nobody gets it.
	Delay time.Duration
}

// The types of the errors of a push that is refused.
const (
	// TypeFull: the queue has as many items as it may. It is not final.
	TypeFull = "queue_full"
	// TypeInvalid: the queue has no such priority, there is no queue of such a name, or there is
	// nothing to push.
	TypeInvalid = "queue_invalid"
)

// Activity is the name of the activity, Tag its tag.
const (
	Activity = events.ReservedPrefix + "queue.push"
	Tag      = orchestration.SystemTag
)

// keyFor is for how long a queue remembers a push.
const keyFor = 7 * 24 * time.Hour

// Push puts items into a queue, all or none of them, in their order, and waits until they are
// there. The queue is made if there is none.
func Push(ctx *orchestration.Context, name string, items ...Item) error {
	_, err := Start(ctx, name, items...).Get(ctx)
	return err
}

// Start is Push to be waited for later.
func Start(ctx *orchestration.Context, name string, items ...Item) *orchestration.Future[struct{}] {
	input, err := encode(name, items)
	return orchestration.StartBuiltIn(ctx, Activity, input, err)
}

// input is that of the activity.
type input struct {
	Queue string  `json:"queue"`
	Items []entry `json:"items"`
}

type entry struct {
	Item     json.RawMessage `json:"item"`
	Priority int             `json:"priority,omitempty"`
	Delay    events.Duration `json:"delay,omitempty"`
}

// encode writes the input, and refuses what no queue would take.
func encode(name string, items []Item) (events.Payload, error) {
	in := input{Queue: name}
	if err := jobs.CheckName(name); err != nil {
		return nil, invalid(err)
	}
	if len(items) == 0 || len(items) > jobs.MaxCount {
		return nil, invalid(fmt.Errorf("push 1 to %d items at once, not %d", jobs.MaxCount, len(items)))
	}
	for n, i := range items {
		data, err := events.JSON{}.Encode(i.Item)
		switch {
		case err != nil:
			return nil, invalid(fmt.Errorf("item %d of %d cannot be written as JSON: %w", n+1, len(items), err))
		case len(data) == 0:
			data = events.Payload("null")
		case !json.Valid(data):
			return nil, invalid(fmt.Errorf("item %d of %d is no JSON", n+1, len(items)))
		}
		if i.Priority < 0 {
			return nil, invalid(fmt.Errorf("item %d of %d: priority %d; want 0, which is the highest, or more", n+1,
				len(items), i.Priority))
		}
		if i.Delay < 0 || i.Delay > jobs.MaxDelay {
			return nil, invalid(fmt.Errorf("item %d of %d: delay %v; want 0 to %v", n+1, len(items), i.Delay,
				jobs.MaxDelay))
		}
		in.Items = append(in.Items,
			entry{Item: json.RawMessage(data), Priority: i.Priority, Delay: events.Duration(i.Delay)})
	}
	return events.JSON{}.Encode(in)
}

func invalid(err error) error {
	return &events.Error{Kind: events.Application, Type: TypeInvalid, Final: true, Message: err.Error()}
}

// ---- The other side.

// Handler is the code of the activity, for orchestrators: it pushes to the queues of a store.
func Handler(store jobs.Store) activity.Binding {
	return With(func(ctx context.Context, name string, push jobs.Push) error {
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

// With is the code of the activity with another end: what becomes of a push is what the function
// says. Tests of orchestrations have refusals with it.
func With(push func(ctx context.Context, name string, p jobs.Push) error) activity.Binding {
	return activity.Define[json.RawMessage,
		struct{}](Activity).With(func(ctx context.Context, data json.RawMessage) (none struct{}, err error) {
		name, p, err := Read(ctx, events.Payload(data))
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

// Read reads the input of the activity, and makes it the push that it is, with its key. The context
// is the activity's.
func Read(ctx context.Context, data events.Payload) (name string, p jobs.Push, err error) {
	var in input
	if err := (events.JSON{}).Decode(data, &in); err != nil {
		return "", p, invalid(fmt.Errorf("the input cannot be read: %w", err))
	}
	if err := jobs.CheckName(in.Queue); err != nil {
		return "", p, invalid(err)
	}
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	p.Key, p.KeyFor, p.Digest = key(activity.InfoOf(ctx).IdempotencyKey), keyFor, hash(data)
	for _, i := range in.Items {
		p.Items = append(p.Items, jobs.NewItem{Data: i.Item, Priority: i.Priority, Delay: time.Duration(i.Delay),
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
	e := &events.Error{Kind: events.Application, Type: TypeInvalid, Final: true}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &full):
		e.Type, e.Final = TypeFull, false
	case errors.As(err, &bad), errors.Is(err, jobs.ErrKeyReused):
	default:
		return err
	}
	e.Message = fmt.Sprintf("queue %q: %v", name, err)
	return e
}
