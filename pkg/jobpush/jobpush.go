// Package jobpush lets orchestrations push jobs to job queues.
//
//	err := jobpush.Push(ctx, "emails",
//		jobpush.Job{Data: welcome}, jobpush.Job{Data: receipt, Delay: time.Hour})
//
// Behind it is an activity of the engine's own. An orchestrator executes it, because workers need
// no database; it is in the history like any other activity.
//
// # Once
//
// Activities are executed at least once. A push has its effect once: it has a key, made of the
// identity of the call (the instance, its incarnation and execution, and the event in its history;
// see [activity.Info]). The queue remembers keys for seven days. A second execution finds the key
// and pushes nothing.
//
// # Errors
//
// A push to a full queue, with a priority that the queue does not have, or with an invalid name
// fails: no job of it is in the queue, and the orchestration gets the reason. After [TypeFull] an
// orchestration can sleep and push again. [TypeInvalid] is not retryable.
//
//	if errors.Is(err, orchestration.OfType(jobpush.TypeFull)) { … }
//
// A database that does not answer is not such an error. The push waits for it until it is cancelled
// or times out: give the context a limit (see [orchestration.Context.WithTimeout]) if the
// orchestration has none.
package jobpush

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/jobpushed"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Job is a job to push.
type Job struct {
	// Data is the data of the job. It is written as JSON, whatever the codec of the orchestrations
	// is, because that is the format of the job queues.
	Data any
	// Priority is 0, the highest, to the last one that the queue has.
	Priority int
	// Delay is the time before the job can be popped.
	Delay time.Duration
}

// The types of the errors of a push that is refused.
const (
	// TypeFull: the queue has as many jobs as it may. It may be retried.
	TypeFull = jobpushed.TypeFull
	// TypeInvalid: the queue has no such priority, there is no queue of such a name, there is
	// nothing to push, or a job is larger than --jobs-max-size of the orchestrators, 256 KiB by
	// default.
	TypeInvalid = jobpushed.TypeInvalid
)

// Activity is the name of the activity, Tag its tag.
const (
	Activity = jobpushed.Activity
	Tag      = orchestration.SystemTag
)

// Push puts jobs into a queue, all or none of them, in their order, and waits until they are
// there. The queue is made if there is none.
func Push(ctx *orchestration.Context, name string, items ...Job) error {
	_, err := Start(ctx, name, items...).Get(ctx)
	return err
}

// Start is Push to be waited for later.
func Start(ctx *orchestration.Context, name string, items ...Job) *orchestration.Future[struct{}] {
	input, err := encode(name, items)
	return orchestration.StartBuiltIn(ctx, Activity, input, err)
}

// encode writes the input, and refuses what no queue would take.
func encode(name string, items []Job) (codec.Payload, error) {
	in := jobpushed.Input{Queue: name}
	if err := jobs.CheckName(name); err != nil {
		return nil, jobpushed.Invalid(err)
	}
	if len(items) == 0 || len(items) > jobs.MaxCount {
		return nil, refuse("push 1 to %d items at once, not %d", jobs.MaxCount, len(items))
	}
	for n, i := range items {
		data, err := codec.JSON{}.Encode(i.Data)
		switch {
		case err != nil:
			return nil, refuse("item %d of %d cannot be written as JSON: %w", n+1, len(items), err)
		case len(data) == 0:
			data = codec.Payload("null")
		case !json.Valid(data):
			return nil, refuse("item %d of %d is not valid JSON", n+1, len(items))
		}
		if i.Priority < 0 {
			return nil, refuse("item %d of %d: priority %d; want 0, which is the highest, or more", n+1,
				len(items), i.Priority)
		}
		if i.Delay < 0 || i.Delay > jobs.MaxDelay {
			return nil, refuse("item %d of %d: delay %v; want 0 to %v", n+1, len(items), i.Delay,
				jobs.MaxDelay)
		}
		in.Items = append(in.Items,
			jobpushed.Entry{Item: json.RawMessage(data), Priority: i.Priority, Delay: events.Duration(i.Delay)})
	}
	return codec.JSON{}.Encode(in)
}

// refuse makes the error of a push that no queue takes.
func refuse(format string, args ...any) error { return jobpushed.Invalid(fmt.Errorf(format, args...)) }

// Pushed is a job as a queue gets it.
type Pushed struct {
	// Data is the job as JSON.
	Data     json.RawMessage
	Priority int
	Delay    time.Duration
}

// Bind makes the code of the activity for tests: push gets what orchestrations push, and its error
// is that of the push. An error of [TypeFull] or [TypeInvalid] made by [activity.Errorf] is what a
// queue's refusal looks like. The identity of the call is in [activity.Info].
func Bind(push func(ctx context.Context, queue string, items []Pushed) error) activity.Binding {
	return jobpushed.Bind(func(ctx context.Context, queue string, p jobs.Push) error {
		items := make([]Pushed, 0, len(p.Jobs))
		for _, i := range p.Jobs {
			items = append(items, Pushed{Data: i.Data, Priority: i.Priority, Delay: i.Delay})
		}
		return push(ctx, queue, items)
	})
}
