package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// notifier sends notifications to clients, AFTER the commit and at most once.
type notifier struct {
	broker broker.Notifications
	log    *slog.Logger
}

// notify sends notifications of the changes that a turn has made.
func (n *notifier) notify(t *round.Turn) {
	if err := query.NotifyTurn(n.broker, t); err != nil {
		telemetry.LogOf(n.log, t.Instance,
			t.Row).Debug("a notification was not sent; waiting clients poll", "error", err)
	}
}

// receipt notifies the sender of a message of the outcome, if the sender has asked for that.
func (n *notifier) receipt(e *entry, i *item, r round.Receipt) {
	if i.inside() || !query.WantsReceipt(i.delivery.Header) {
		return
	}
	if err := query.NotifyReceipt(n.broker, e.known.row(), i.message, r); err != nil {
		e.logger(n.log).Debug("a receipt was not sent", "error", err)
	}
}

// waker sends messages that are not in the outbox, and that are sent again when they get lost: it
// wakes instances at the orchestrators that own their partitions.
type waker struct {
	broker     broker.Publisher
	prefix     string
	background *background
	log        *slog.Logger
}

// wake wakes an instance. If the message gets lost, a sweep wakes the instance.
func (k *waker) wake(instance string) {
	k.send(wakeUp(instance, "moved").message)
}

// refuse answers the start of a child that was deleted. If the answer gets lost, the parent sends
// the start again.
func (k *waker) refuse(id string, s *events.Start) {
	if s.Parent != nil {
		k.send(round.RefusalOfDeleted(id, s.Parent))
	}
}

func (k *waker) send(m events.Message) {
	w, err := events.Encode(k.prefix, m)
	if err != nil {
		k.log.Error("an instance cannot be woken", "instance", m.Instance, "error", err)
		return
	}
	k.background.do(func(ctx context.Context) {
		if err := k.broker.Publish(ctx, w); err != nil {
			k.log.Debug("an instance could not be woken where it goes on; a sweep will", "instance",
				m.Instance, "error", err)
		}
	})
}

// deadLetters stores messages that no instance can take.
type deadLetters struct {
	by         string // the id of this orchestrator
	broker     broker.DeadLetters
	prefix     string
	texts      texts
	background *background
	metrics    *telemetry.MessageMetrics
	now        func() time.Time
	log        *slog.Logger
}

// Why messages are dead-lettered before a round has seen them, or after it.
const (
	reasonMalformed  = "malformed"
	reasonRefused    = "refused"
	reasonUnstorable = "unstorable"
)

// malformed stores a message that cannot be decoded.
func (l *deadLetters) malformed(d broker.Delivery, detail string) {
	l.store(d, broker.Cause{Reason: reasonMalformed, Detail: detail})
}

// keepUnstored is how old a message gets that cannot be stored as a dead letter because the broker
// is full. Then it is dropped: it would keep the room that it waits for.
const keepUnstored = 15 * time.Minute

// store stores a message as a dead letter, and then acknowledges it.
func (l *deadLetters) store(d broker.Delivery, why broker.Cause) {
	why.By = l.by
	l.background.do(func(ctx context.Context) {
		log := telemetry.LogAt(l.log, placeOf(d)).With(about(d)...)
		log.Warn("message dead-lettered", "reason", why.Reason, "detail", l.texts.detail(why.Reason, why.Detail))
		if err := l.broker.StoreDeadLetter(ctx, d, why); err != nil {
			if errors.Is(err, broker.ErrFull) && l.now().Sub(d.StoredAt) > keepUnstored {
				log.Error("dead letter dropped: the broker is full", "reason", why.Reason, "bytes", len(d.Body),
					"error", err)
				l.metrics.DeadLetterDropped(l.prefix, d.Subject, why.Reason)
				d.Hold.Ack()
				return
			}
			log.Warn("storing a dead letter failed; the message is redelivered", "error", err)
			d.Hold.Nak(time.Second)
			return
		}
		l.metrics.DeadLettered(l.prefix, d.Subject, why.Reason)
		d.Hold.Ack()
	})
}
