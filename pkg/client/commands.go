package client

import (
	"context"
	"errors"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Started is an instance that was started by the name of its orchestration.
type Started struct {
	ID     string
	name   string
	start  string
	client *Client
}

// Wait waits until the instance has ended. If the id belongs to an instance of another
// orchestration, the error is [orchestration.ErrOtherOrchestration].
func (s Started) Wait(ctx context.Context) (orchestration.Outcome, error) {
	o, err := s.client.Outcome(ctx, s.ID, s.start)
	if err == nil {
		err = o.Of(s.ID, s.name)
	}
	return o, err
}

// Start starts an instance of an orchestration of which only the name is known. The input is taken
// as it is: the codec is not used. Start retries until NATS has stored the message or ctx ends, so
// give ctx a deadline: no stream may have the prefix of the client.
func (c *Client) Start(ctx context.Context, name string, input codec.Payload,
	opts ...orchestration.StartOption) (Started, error) {
	id, start, err := orchestration.StartInstance(ctx, c, name, codec.Canonical(input), opts...)
	return Started{ID: id, name: name, start: start, client: c}, err
}

// Raise raises an event for the code that waits for it in an instance just then. It retries as
// [Client.Start] does.
func (c *Client) Raise(ctx context.Context, instance, event string, data codec.Payload) error {
	return c.say(ctx, instance, events.CheckName("event", event),
		&events.EventRaised{Name: event, Data: codec.Canonical(data)})
}

// Send puts a message into a mailbox of an instance. It retries as [Client.Start] does.
func (c *Client) Send(ctx context.Context, instance, mailbox string, data codec.Payload) error {
	return c.say(ctx, instance, events.CheckName("mailbox", mailbox),
		&events.MailboxMessage{Mailbox: mailbox, Data: codec.Canonical(data)})
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

// Suspend halts an instance; the engine keeps its messages.
func (c *Client) Suspend(ctx context.Context, instance, reason string) error {
	return orchestration.Control(ctx, c, instance, events.Suspend, reason)
}

// Resume lets a suspended instance go on.
func (c *Client) Resume(ctx context.Context, instance, reason string) error {
	return orchestration.Control(ctx, c, instance, events.Resume, reason)
}

// ---- Activities that another program completes.

// Complete completes an activity that has said that it will be completed later, by its token. The
// result is encoded with the codec.
func (c *Client) Complete(ctx context.Context, token string, result any) error {
	data, err := c.o.Codec.Encode(result)
	if err != nil {
		return err
	}
	return c.answer(ctx, token, events.VerbDone, func(ref events.Ref) events.Content {
		return &events.TaskDone{Ref: ref, Result: data, Worker: c.o.Name}
	})
}

// Fail fails such an activity. The error is kept as [failure.From] makes it.
func (c *Client) Fail(ctx context.Context, token string, cause error) error {
	if cause == nil {
		return errors.New("an activity fails with an error; complete it if there is none")
	}
	return c.answer(ctx, token, events.VerbFail, func(ref events.Ref) events.Content {
		return &events.TaskFailed{Ref: ref, Error: events.Bounded(failure.From(cause)), Worker: c.o.Name}
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
