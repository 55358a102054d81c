package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// readAtOnce is how many values are read at once for orchestrations that ask for those of others.
const readAtOnce = 32

// readValues is the worker of the one activity that needs the database: reading a value of another
// instance.
func (o *Orchestrator) readValues(ctx context.Context) {
	for ctx.Err() == nil {
		err := o.takeReads(ctx)
		if ctx.Err() != nil {
			return
		}
		o.log.Warn("reading values for orchestrations is interrupted; trying again", "error", err)
		select {
		case <-time.After(receiveAgain):
		case <-ctx.Done():
		}
	}
}

func (o *Orchestrator) takeReads(ctx context.Context) error {
	queue, err := o.broker.OpenQueue(ctx,
		broker.Queue{Tag: orchestration.SystemTag, Activity: orchestration.ReadValueActivity})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := queue.Take(ctx, readAtOnce, func(d broker.Delivery) {
			o.aside(func(ctx context.Context) { o.readValue(ctx, d) })
		}); err != nil {
			return err
		}
	}
	return nil
}

// readValue reads a value and publishes it as the activity's result.
func (o *Orchestrator) readValue(ctx context.Context, d broker.Delivery) {
	m, err := events.Decode(o.broker.Prefix(), d.Subject, d.Header, d.Body, d.ID())
	if err != nil {
		o.deadLetter(d, broker.Cause{Reason: reasonMalformed, Detail: err.Error(), By: o.config.ID})
		return
	}
	work, ok := m.Content.(*events.Work)
	if !ok {
		o.deadLetter(d, broker.Cause{Reason: reasonMalformed, Detail: "it is no work", By: o.config.ID})
		return
	}
	answer, err := o.valueFor(ctx, work)
	if err != nil {
		o.log.Warn("a value could not be read; trying again", "instance", m.Instance, "error", err)
		d.Hold.Nak(time.Second)
		return
	}
	answer.Instance, answer.Trace = m.Instance, m.Trace
	answer.ID = events.MessageID(answer.Content.Verb(), m.Instance, work.Ref)
	w, err := events.Encode(o.broker.Prefix(), answer)
	if err == nil {
		err = o.broker.Publish(ctx, w)
	}
	if err != nil {
		o.log.Warn("a value could not be sent; trying again", "instance", m.Instance, "error", err)
		d.Hold.Nak(time.Second)
		return
	}
	d.Hold.Ack()
}

// valueFor makes the answer. The error is that the store does not answer just now.
func (o *Orchestrator) valueFor(ctx context.Context, work *events.Work) (events.Message, error) {
	failed := func(err error) events.Message {
		return events.Message{Content: &events.WorkFailed{Ref: work.Ref, Worker: o.config.ID,
			Error: &events.Error{Kind: events.Application, Final: true, Message: err.Error()}}}
	}
	var q orchestration.ReadValue
	if err := (events.JSON{}).Decode(work.Input, &q); err != nil {
		return failed(err), nil
	}
	value, _, err := o.store.Value(ctx, q.Instance, q.Key)
	switch {
	case errors.Is(err, history.ErrNoInstance): // like a key that is not there
	case err != nil && history.ClassOf(err) != history.Retry && history.ClassOf(err) != history.Contended:
		return failed(err), nil
	case err != nil:
		return events.Message{}, err
	}
	return events.Message{Content: &events.WorkDone{Ref: work.Ref, Worker: o.config.ID, Result: value.Data}}, nil
}
