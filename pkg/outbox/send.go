package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Send publishes the messages of outbox entries. A message that the broker will never store is
// dead-lettered, and an instance that waits for its answer gets an error. The watcher, if there is
// one, gets each dead letter.
//
// A [*broker.Refused] lists the messages that the broker refuses until an operator changes a
// setting; all others are published then. Send leaves the log of these to its caller, which may try
// them again and again: see [LogRefused]. Any other error is that the time was too short.
func Send(ctx context.Context, b Broker, prefix string, messages []events.Wire, log *slog.Logger,
	watcher Watcher) error {
	err := b.Publish(ctx, messages...)
	var refused *broker.Refused
	if !errors.As(err, &refused) {
		return err
	}
	waits, never := refused.Misconfigured()
	if never != nil {
		if err := deadLetter(ctx, b, prefix, never, log, watcher); err != nil {
			return err
		}
	}
	if waits != nil {
		return waits
	}
	return nil
}

// RefusedEvery is the interval of logs about messages that the broker refuses because of a setting,
// for a caller of [Send] that tries again at once.
const RefusedEvery = time.Minute

// LogRefused logs that the broker refuses messages because of a setting.
func LogRefused(log *slog.Logger, waits *broker.Refused) {
	log.Warn("the broker refuses messages because of a setting; trying again later", "messages",
		len(waits.Messages), "subject", waits.Messages[0].Subject, "error", waits.Reasons[0])
}

// deadLetter dead-letters messages that the broker will never store, and publishes the answers to
// them.
func deadLetter(ctx context.Context, b Broker, prefix string, refused *broker.Refused, log *slog.Logger,
	watcher Watcher) error {
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
		err := b.Publish(ctx, answer)
		if again := new(broker.Refused); errors.As(err, &again) { // it is none of the messages of the caller
			err = fmt.Errorf("publish the answer to a message that the broker refuses: %w", again.Reasons[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unsent returns the error of [Send] about some of its messages; nil if all of these are published.
func unsent(err error, messages []events.Wire) error {
	var waits *broker.Refused
	if !errors.As(err, &waits) {
		return err
	}
	for _, w := range messages {
		if reason := waits.ReasonFor(w); reason != nil {
			return reason
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
