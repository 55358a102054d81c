package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// readAtOnce is how many values are read at once for orchestrations that ask for those of others.
const readAtOnce = 32

// valueReader is the worker of the one activity that needs the database: reading a value of another
// instance.
type valueReader struct {
	by     string // the id of this orchestrator
	broker interface {
		broker.Publisher
		broker.TaskQueues
	}
	prefix string
	store  interface {
		Value(ctx context.Context, instance, key string) (history.Value, bool, error)
	}
	// system tells whether values may be read: not from a database that may be a copy.
	system interface {
		Decides() error
		Await(ctx context.Context) error
	}
	dead       *deadLetters
	background *background
	reading    chan struct{} // has one element for each value that is being read
	log        *slog.Logger
}

// receiveAgain is the delay after a receiver has failed.
const receiveAgain = 500 * time.Millisecond

// run reads values until the context ends.
func (r *valueReader) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.take(ctx)
		if ctx.Err() != nil {
			return
		}
		r.log.Warn("reading values for orchestrations is interrupted; trying again", "error", err)
		select {
		case <-time.After(receiveAgain):
		case <-ctx.Done():
		}
	}
}

func (r *valueReader) take(ctx context.Context) error {
	queue, err := r.broker.OpenTaskQueue(ctx,
		broker.TaskQueueName{Tag: orchestration.SystemTag, Activity: orchestration.ReadValueActivity})
	if err != nil {
		return err
	}
	for ctx.Err() == nil && r.system.Await(ctx) == nil {
		if _, err := queue.Take(ctx, readAtOnce, func(d broker.Delivery) {
			select {
			case r.reading <- struct{}{}:
			case <-ctx.Done():
				d.Hold.Nak(0)
				return
			}
			r.background.do(func(ctx context.Context) {
				defer func() { <-r.reading }()
				r.read(ctx, d)
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// read reads a value and publishes it as the activity's result.
func (r *valueReader) read(ctx context.Context, d broker.Delivery) {
	m, err := events.Decode(r.prefix, d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		r.dead.malformed(d, err.Error())
		return
	}
	work, ok := m.Content.(*events.Task)
	if !ok {
		r.dead.malformed(d, "it is no work")
		return
	}
	err = r.system.Decides()
	var answer events.Message
	if err == nil {
		answer, err = r.valueFor(ctx, work)
	}
	if err != nil {
		r.log.Warn("a value could not be read; trying again", "instance", m.Instance, "error", err)
		d.Hold.Nak(time.Second)
		return
	}
	answer.Instance, answer.Trace = m.Instance, m.Trace
	answer.ID = events.MessageID(answer.Content.Verb(), m.Instance, work.Ref)
	w, err := events.Encode(r.prefix, answer)
	if err == nil {
		err = r.broker.Publish(ctx, w)
	}
	if err != nil {
		r.log.Warn("a value could not be sent; trying again", "instance", m.Instance, "error", err)
		d.Hold.Nak(time.Second)
		return
	}
	d.Hold.Ack()
}

// valueFor makes the answer. The error is that the store does not answer just now.
func (r *valueReader) valueFor(ctx context.Context, work *events.Task) (events.Message, error) {
	failed := func(err error) events.Message {
		return events.Message{Content: &events.TaskFailed{Ref: work.Ref, Worker: r.by,
			Error: &failure.Error{Kind: failure.Application, NonRetryable: true, Message: err.Error()}}}
	}
	var q orchestration.ReadValue
	if err := (codec.JSON{}).Decode(work.Input, &q); err != nil {
		return failed(err), nil
	}
	value, _, err := r.store.Value(ctx, q.Instance, q.Key)
	switch {
	case errors.Is(err, history.ErrNoInstance): // like a key that is not there
	case err != nil && history.ClassOf(err) != history.Retry && history.ClassOf(err) != history.Contended:
		return failed(err), nil
	case err != nil:
		return events.Message{}, err
	}
	return events.Message{Content: &events.TaskDone{Ref: work.Ref, Worker: r.by, Result: value.Data}}, nil
}
