package orchestrator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/round"
)

// finish does what remains of a turn after it was committed, or if it has nothing to commit: its
// messages are settled, its steps begin, and the instance goes on with what came meanwhile.
func (l *loop) finish(d *decision) {
	e, t := d.entry, &d.turn
	l.log(t)
	l.o.announce(t)
	var again []*item
	for n, i := range e.taken {
		if t.Receipts[n].Verdict == round.Again {
			again = append(again, i)
			continue
		}
		l.settle(e, i, t.Receipts[n])
		l.o.receipt(e, i, t.Receipts[n])
		if t.Receipts[n].Verdict == round.Ignored {
			l.o.teller.again(i)
		}
	}
	l.o.teller.tell(d)
	l.o.measureSettled(d)
	e.taken, e.fresh = nil, false
	if t.Again && len(again) == 0 {
		again = []*item{wakeUp(e.id, "again")}
	}
	l.putBack(e, again)
	for _, s := range t.DroppedSteps {
		l.o.steps.cancel(e.id, s)
	}
	for _, s := range t.Steps {
		l.o.steps.start(e.id, e.known.row(), s)
	}
	e.stage = idle
	if t.Evict {
		l.evict(e)
	}
	if t.Question != nil && !l.draining {
		l.askFormer(e, *t.Question)
		return
	}
	l.advance(e)
}

// settle does what a receipt says.
func (l *loop) settle(e *entry, i *item, r round.Receipt) {
	l.o.config.Metrics.Receipt(i.message.Content.Verb(), r)
	if i.inside() {
		l.settled(i)
		return
	}
	if r.Verdict != round.Returned && i.delivery.NumDelivered > 1 {
		l.o.returned.forget(i.delivery)
	}
	switch r.Verdict {
	case round.Accepted, round.Ignored:
		l.settled(i)
		i.hold().Ack()
		if r.Verdict == round.Ignored {
			if l.o.log.Enabled(l.o.lifetime, slog.LevelDebug) { // there are many
				l.of(e).Debug("a message changed nothing", "subject", i.delivery.Subject, "reason", r.Reason, "detail",
					l.o.detail(string(r.Reason), r.Detail))
			}
		}
	case round.Returned:
		l.giveAway(e, i, r)
	case round.Dead:
		l.settled(i)
		l.o.deadLetter(i.settling(),
			broker.Cause{Reason: string(r.Reason), Detail: r.Detail, By: l.o.config.ID, Attempts: i.attempts})
	default:
		l.of(e).Error("a message without a receipt; it comes again", "subject", i.delivery.Subject)
		l.settled(i)
		i.hold().Nak(time.Second)
	}
}

// giveAway gives a message back, or to another orchestrator that can do more with it.
func (l *loop) giveAway(e *entry, i *item, r round.Receipt) {
	if r.Reason == round.CannotRead {
		l.o.suspects.count(i, r.Detail)
	}
	l.settled(i)
	if r.Reason == round.NotKnownHere || r.Reason == round.NewerEngine {
		l.of(e).Debug("a message cannot be taken here", "reason", r.Reason, "detail", r.Detail)
		if to, ok := l.o.own.whoCan(e.id, e.known.row(), i.message.Content, r.Reason); ok && !i.handed &&
			i.hold().AckSubject() != "" {
			l.o.handovers.handOver(to, i, r.After)
			return
		}
		l.o.own.noteUnknown(e.id, e.known.row(), r)
	}
	l.giveBackFor(i, r)
}

// giveBackFor gives a message back until there may be somebody who can take it.
func (l *loop) giveBackFor(i *item, r round.Receipt) {
	after := r.After
	switch r.Reason {
	case round.NotKnownHere, round.UnknownInstance, round.NewerEngine:
		after = max(after, l.o.returned.spread())
		l.o.returned.note(i.delivery, after)
	}
	i.hold().Nak(after)
}

// handovers hand messages to other orchestrators: those of one instance one after the other, so
// that they stay in their order.
type handovers struct {
	o *Orchestrator

	mu      sync.Mutex
	waiting map[string][]handover // by instance, as long as somebody is at it
}

type handover struct {
	to        string
	item      *item
	otherwise time.Duration
}

// handOver hands a message to another orchestrator, and gives it back if that does not want it.
func (h *handovers) handOver(to string, i *item, otherwise time.Duration) {
	id := i.message.Instance
	h.mu.Lock()
	defer h.mu.Unlock()
	before, busy := h.waiting[id]
	h.waiting[id] = append(before, handover{to, i, otherwise})
	if !busy {
		h.o.asides.Go(func() { h.run(id) })
	}
}

// run hands over what waits for an instance. What comes after something that was not wanted goes
// back with it.
func (h *handovers) run(id string) {
	for {
		h.mu.Lock()
		all := h.waiting[id]
		if len(all) == 0 {
			delete(h.waiting, id)
			h.mu.Unlock()
			return
		}
		h.waiting[id] = nil
		h.mu.Unlock()
		for n, x := range all {
			if err := h.one(x); err != nil {
				h.o.log.Debug("a message could not be handed over; it comes again", "instance", id, "to", x.to,
					"subject", x.item.delivery.Subject, "error", err)
				for _, x := range all[n:] {
					x.item.delivery.Hold.Nak(x.otherwise)
				}
				break
			}
		}
	}
}

func (h *handovers) one(x handover) error {
	ctx, cancel := context.WithTimeout(h.o.lifetime, asideFor)
	defer cancel()
	err := h.o.broker.Handover(ctx, x.to, x.item.delivery)
	h.o.config.Metrics.HandedOver(err == nil)
	return err
}

// deadLetter stores a message as a dead letter, and then acknowledges it.
func (o *Orchestrator) deadLetter(d broker.Delivery, why broker.Cause) {
	o.aside(func(ctx context.Context) {
		log := telemetry.LogAt(o.log, placeOf(d)).With(about(d)...)
		log.Warn("message dead-lettered", "reason", why.Reason, "detail", o.detail(why.Reason, why.Detail))
		if err := o.broker.StoreDeadLetter(ctx, d, why); err != nil {
			log.Warn("storing a dead letter failed; the message is redelivered", "error", err)
			d.Hold.Nak(time.Second)
			return
		}
		o.config.Metrics.DeadLettered(o.broker.Prefix(), d.Subject, why.Reason)
		d.Hold.Ack()
	})
}
