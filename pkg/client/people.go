package client

import (
	"context"
	"errors"

	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Started is an instance that was started by the name of its orchestration.
type Started struct {
	ID     string
	start  string
	client *Client
}

// Wait waits until the instance has ended.
func (s Started) Wait(ctx context.Context) (orchestration.Outcome, error) {
	return s.client.Outcome(ctx, s.ID, s.start)
}

// Start starts an instance of an orchestration of which only the name is known. The input is taken
// as it is: the codec is not used.
func (c *Client) Start(ctx context.Context, name string, input events.Payload,
	opts ...orchestration.StartOption) (Started, error) {
	id, start, err := orchestration.StartInstance(ctx, c, name, events.Canonical(input), opts...)
	return Started{ID: id, start: start, client: c}, err
}

// Raise raises an event for whoever waits for it in an instance just then.
func (c *Client) Raise(ctx context.Context, instance, event string, data events.Payload) error {
	return c.say(ctx, instance, events.CheckName("event", event),
		&events.EventRaised{Name: event, Data: events.Canonical(data)})
}

// Enqueue puts a message into a queue of an instance.
func (c *Client) Enqueue(ctx context.Context, instance, queue string, data events.Payload) error {
	return c.say(ctx, instance, events.CheckName("queue", queue),
		&events.QueueSent{Queue: queue, Data: events.Canonical(data)})
}

func (c *Client) say(ctx context.Context, instance string, bad error, content events.Content) error {
	if err := errors.Join(events.CheckInstance(instance), bad); err != nil {
		return err
	}
	return c.Publish(ctx, events.Message{ID: c.NewID(), Instance: instance, Content: content})
}

// Cancel asks an instance to stop; it may clean up first.
func (c *Client) Cancel(ctx context.Context, instance, reason string) error {
	return orchestration.Control(ctx, c, instance, events.Cancel, reason)
}

// Terminate ends an instance at once.
func (c *Client) Terminate(ctx context.Context, instance, reason string) error {
	return orchestration.Control(ctx, c, instance, events.Terminate, reason)
}

// Suspend halts an instance; what comes for it is kept.
func (c *Client) Suspend(ctx context.Context, instance, reason string) error {
	return orchestration.Control(ctx, c, instance, events.Suspend, reason)
}

// Resume lets a suspended instance go on.
func (c *Client) Resume(ctx context.Context, instance, reason string) error {
	return orchestration.Control(ctx, c, instance, events.Resume, reason)
}

// ---- Activities that somebody else completes.

// Complete completes an activity that has said that it will be completed later, by its token. The
// result is encoded with the codec.
func (c *Client) Complete(ctx context.Context, token string, result any) error {
	data, err := c.o.Codec.Encode(result)
	if err != nil {
		return err
	}
	return c.answer(ctx, token, events.VerbDone, func(ref events.Ref) events.Content {
		return &events.WorkDone{Ref: ref, Result: data, Worker: c.o.Name}
	})
}

// Fail fails such an activity. The error is kept as [events.AsError] makes it.
func (c *Client) Fail(ctx context.Context, token string, cause error) error {
	if cause == nil {
		return errors.New("an activity fails with an error; complete it if there is none")
	}
	return c.answer(ctx, token, events.VerbFail, func(ref events.Ref) events.Content {
		return &events.WorkFailed{Ref: ref, Error: events.AsError(cause).Bounded(), Worker: c.o.Name}
	})
}

func (c *Client) answer(ctx context.Context, token string, verb events.Verb,
	content func(events.Ref) events.Content) error {
	instance, ref, err := events.ParseToken(token)
	if err != nil {
		return err
	}
	return c.Publish(ctx,
		events.Message{ID: events.MessageID(verb, instance, ref), Instance: instance, Content: content(ref)})
}

// ---- What can be asked, besides what a [history.Reader] tells.

// Waiting tells what an instance waits for, and why it stands as it does.
func (c *Client) Waiting(ctx context.Context, instance string) (query.Waiting, error) {
	if asker, ok := c.Reader.(*query.Reader); ok {
		return asker.Waiting(ctx, instance)
	}
	return query.WaitingOf(ctx, c.Reader, instance)
}

// LogLevels asks all orchestrators and workers for their log levels, and changes those that are
// meant.
func (c *Client) LogLevels(ctx context.Context, change process.Change) ([]process.Logging, error) {
	return process.Levels(ctx, c.broker, change)
}

// Processes tells which orchestrators and workers are there, and what each is doing. Those that are
// too busy to answer within a moment are missing.
func (c *Client) Processes(ctx context.Context) ([]process.Process, error) {
	return process.All(ctx, c.broker)
}

// System tells which orchestrators are there, what they take care of, and what waits where.
func (c *Client) System(ctx context.Context) (query.System, error) {
	return query.NewReader(c.broker).System(ctx)
}

// Recover lets the orchestrators look whether the broker has all that it should have, and publish
// what is missing. They do so by themselves when the broker has lost everything; this is for when
// it may have lost a part.
func (c *Client) Recover(ctx context.Context) (query.Recovery, error) {
	return query.NewReader(c.broker).Recover(ctx)
}

// History gives the whole history of an execution, 0 for the current one.
func (c *Client) History(ctx context.Context, instance string, execution int64) (events.Export, error) {
	return history.Export(ctx, c.Reader, instance, execution)
}

// Delete removes instances for good, as [history.Remover] says.
func (c *Client) Delete(ctx context.Context, instances []string, how history.Deletion) (history.DeleteResult, error) {
	return c.remover.Delete(ctx, instances, how)
}

// DeleteEnded removes instances that have ended and fit the filter.
func (c *Client) DeleteEnded(ctx context.Context, filter history.Filter,
	page history.Page) (history.DeleteResultPage, error) {
	return c.remover.DeleteEnded(ctx, filter, page)
}

// Prune removes former executions of an instance.
func (c *Client) Prune(ctx context.Context, instance string, keep history.Keep) (history.DeleteResult, error) {
	return c.remover.Prune(ctx, instance, keep)
}

// PruneAll prunes the instances that fit the filter, running ones too.
func (c *Client) PruneAll(ctx context.Context, filter history.Filter, keep history.Keep,
	page history.Page) (history.DeleteResultPage, error) {
	return c.remover.PruneAll(ctx, filter, keep, page)
}
