package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Send publishes the messages of outbox entries. A message that the broker refuses is
// dead-lettered, and an instance that waits for its answer gets an error; so the only error is that
// the time was too short. The watcher, if there is one, gets each dead letter.
func Send(ctx context.Context, b Broker, prefix string, messages []events.Wire, log *slog.Logger,
	watcher Watcher) error {
	err := b.Publish(ctx, messages...)
	var refused *broker.Refused
	if !errors.As(err, &refused) {
		return err
	}
	for i, w := range refused.Messages {
		log.With(traceOf(first(w.Header[events.HeaderTrace]))...).Error(
			"the broker refuses a message of the outbox", "subject", w.Subject, "bytes", len(w.Body), "error",
			refused.Reasons[i])
		d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, StoredAt: time.Now()}
		if err := b.StoreDeadLetter(ctx, d,
			broker.Cause{Reason: "refused", Detail: refused.Reasons[i].Error(), By: "outbox"}); err != nil {
			return err
		}
		orNone(watcher).DeadLettered(prefix, w.Subject, "refused")
		answer, ok := answerFor(prefix, w, refused.Reasons[i])
		if !ok {
			continue
		}
		if err := b.Publish(ctx, answer); err != nil {
			return err
		}
	}
	return nil
}

// answerFor makes the answer to a message that could not be sent, if an instance waits for one.
func answerFor(prefix string, w events.Wire, why error) (events.Wire, bool) {
	m, err := events.Decode(prefix, w.Subject, w.Header, w.Body, "")
	if err != nil {
		return events.Wire{}, false
	}
	failure := &failure.Error{Kind: failure.Infrastructure, NonRetryable: true,
		Message: "it could not be sent: " + why.Error()}
	var answer events.Message
	switch c := m.Content.(type) {
	case *events.Task:
		answer = events.Message{ID: events.MessageID(events.VerbFail, m.Instance, c.Ref), Instance: m.Instance,
			Content: &events.TaskFailed{Ref: c.Ref, Error: failure}}
	case *events.Start:
		if c.Parent == nil {
			return events.Wire{}, false
		}
		ref := events.Ref{Incarnation: c.Parent.Incarnation, Execution: c.Parent.Execution, Event: c.Parent.Event}
		answer = events.Message{ID: events.MessageID("refused", c.Parent.Instance, ref), Instance: c.Parent.Instance,
			Content: &events.ChildError{Ref: ref, Error: failure}}
	default:
		return events.Wire{}, false
	}
	out, err := events.Encode(prefix, answer)
	return out, err == nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
