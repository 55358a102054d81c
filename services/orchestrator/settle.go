package orchestrator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// members knows what other orchestrators can take.
type members interface {
	// WhoCan finds another orchestrator that can take a message.
	WhoCan(instance string, row round.Row, c events.Content, why round.Reason) (id string, ok bool)
	// NoteUnknown remembers that an instance waits for an orchestrator that can take its messages.
	NoteUnknown(instance string, row round.Row, r round.Receipt)
}

// settler settles deliveries AFTER the commit: it acknowledges, nacks, forwards or dead-letters
// them. The goroutine of the loop calls its methods.
type settler struct {
	held       *heldMessages
	quarantine *quarantine
	returned   *returned
	members    members
	handovers  *handovers
	dead       *deadLetters
	calls      *calls
	notifier   *notifier
	texts      texts
	metrics    *telemetry.MessageMetrics
	log        *slog.Logger
}

// settle does what a receipt says.
func (s *settler) settle(e *entry, i *item, r round.Receipt) {
	s.metrics.Receipt(i.message.Content.Verb(), r)
	if i.inside() {
		s.release(i)
		return
	}
	if r.Verdict != round.Returned && r.Verdict != round.Dead && i.delivery.NumDelivered > 1 {
		s.returned.forget(i.delivery)
	}
	switch r.Verdict {
	case round.Accepted, round.Ignored:
		s.release(i)
		i.hold().Ack()
		if r.Verdict == round.Ignored {
			if s.log.Enabled(context.Background(), slog.LevelDebug) { // there are many
				e.logger(s.log).Debug("a message changed nothing", "subject", i.delivery.Subject, "reason", r.Reason,
					"detail", s.texts.detail(string(r.Reason), r.Detail))
			}
		}
	case round.Returned:
		s.giveAway(e, i, r)
	case round.Dead:
		s.deadLetter(i, broker.Cause{Reason: string(r.Reason), Detail: r.Detail, Attempts: i.attempts})
	default:
		e.logger(s.log).Error("round returned no receipt for a message; NATS redelivers it",
			"subject", i.delivery.Subject)
		s.release(i)
		i.hold().Nak(time.Second)
	}
}

// settleAndNotify settles a message and notifies its sender.
func (s *settler) settleAndNotify(e *entry, i *item, r round.Receipt) {
	s.settle(e, i, r)
	s.notifier.receipt(e, i, r)
}

// release notes that a message is no longer held.
func (s *settler) release(i *item) {
	s.decided(i)
	s.held.remove(i)
}

// decided makes room for another start, and lets the next quarantined message be decided.
func (s *settler) decided(i *item) {
	i.free()
	if i.quarantined {
		s.quarantine.settled(i)
	}
}

// deadLetter dead-letters a message. The message is held until its dead letter is stored: if the
// broker is slow, the loop stops receiving before dead letters fill the memory.
func (s *settler) deadLetter(i *item, why broker.Cause) {
	s.decided(i)
	d := i.settling()
	d.Hold = deadHold{d.Hold, s, i}
	s.dead.store(d, why)
}

// deadHold settles a message whose dead letter was stored, or not. Any goroutine may call it.
type deadHold struct {
	broker.Hold
	settler *settler
	item    *item
}

func (h deadHold) Ack() {
	h.settler.returned.forget(h.item.delivery)
	h.release()
	h.Hold.Ack()
}

// Nak delays the redelivery like that of messages that no orchestrator can take, so that messages
// without a dead letter neither take the room of others nor look like poison.
func (h deadHold) Nak(after time.Duration) {
	after = h.settler.returned.delay(h.item.delivery, after)
	h.release()
	h.Hold.Nak(after)
}

// release makes room for another message BEFORE this one is settled, because a redelivery of a held
// message is dropped.
func (h deadHold) release() {
	c := h.settler.calls
	c.ask(c.lifetime, func() { h.settler.held.remove(h.item) })
}

// giveAway nacks a message, or forwards it to another orchestrator that can do more with it.
func (s *settler) giveAway(e *entry, i *item, r round.Receipt) {
	if r.Reason == round.CannotRead {
		s.quarantine.count(i, r.Detail)
	}
	if i.quarantined && (r.Reason == round.NotKnownHere || r.Reason == round.NewerEngine) {
		i.toOther()
	}
	s.release(i)
	if r.Reason == round.NotKnownHere || r.Reason == round.NewerEngine {
		e.logger(s.log).Debug("a message cannot be taken here", "reason", r.Reason, "detail", r.Detail)
		if to, ok := s.members.WhoCan(e.id, e.known.row(), i.message.Content, r.Reason); ok && !i.handed &&
			i.hold().AckSubject() != "" {
			if !s.handovers.handOver(to, i, r.After) {
				s.nackFor(i, r)
			}
			return
		}
		s.members.NoteUnknown(e.id, e.known.row(), r)
		e.logger(s.log).Debug("message nacked: no other orchestrator is known that can take it")
	}
	s.nackFor(i, r)
}

// nackFor nacks a message with a delay, until an orchestrator may be able to take it.
func (s *settler) nackFor(i *item, r round.Receipt) {
	after := r.After
	switch r.Reason {
	case round.NotKnownHere, round.UnknownInstance, round.NewerEngine:
		after = s.returned.delay(i.delivery, after)
	default:
	}
	i.hold().Nak(after)
}

// nack nacks a message that no round has taken, with a delay.
func (s *settler) nack(i *item, after time.Duration) {
	if i.quarantined {
		i.toOther() // it was not tried: the earlier attempts stay counted
	}
	s.release(i)
	s.returned.note(i.delivery, after)
	i.hold().Nak(after)
}

// countAgainst counts a failed attempt of messages, and returns those that may be tried again. It
// dead-letters the others; most is the attempts of a message that a round may make.
func (s *settler) countAgainst(taken []*item, why string, most int) (rest []*item) {
	for _, i := range taken {
		s.quarantine.count(i, why)
		if i.attempts > 2*max(most, 10) && !i.inside() {
			// even to end the instance was not possible
			s.deadLetter(i, broker.Cause{Reason: reasonUnstorable, Detail: why, Attempts: i.attempts})
			continue
		}
		rest = append(rest, i)
	}
	return rest
}

// handovers forward messages to other orchestrators: those of one instance one after the other, so
// that they stay in their order.
type handovers struct {
	broker     broker.Handovers
	returned   *returned
	background *background
	metrics    *telemetry.MessageMetrics
	log        *slog.Logger

	mu      sync.Mutex
	waiting map[string][]handover // by instance, while a goroutine forwards them
	n       int                   // of all messages until they are forwarded or nacked
	bytes   int
}

type handover struct {
	to        string
	item      *item
	otherwise time.Duration
	size      int
}

// handOver forwards a message to another orchestrator, and nacks it if that one refuses it. It
// returns false, and does nothing, if too many messages are being forwarded: they do not count as
// held, and the other orchestrator may be slow. One message always has room.
func (h *handovers) handOver(to string, i *item, otherwise time.Duration) bool {
	id, size := i.message.Instance, i.delivery.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n > 0 && (h.n >= maxPassing || h.bytes+size > maxPassingBytes) {
		return false
	}
	h.n, h.bytes = h.n+1, h.bytes+size
	before, busy := h.waiting[id]
	h.waiting[id] = append(before, handover{to, i, otherwise, size})
	if !busy {
		h.background.running.Go(func() { h.run(id) })
	}
	return true
}

// forwarded makes room for other messages.
func (h *handovers) forwarded(all ...handover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range all {
		h.n, h.bytes = h.n-1, h.bytes-x.size
	}
}

// run forwards the messages that wait for an instance. If one is refused, it nacks that one and
// those behind it.
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
				h.log.Debug("messages nacked: one could not be handed over", "instance", id, "to", x.to,
					"subject", x.item.delivery.Subject, "error", err)
				h.mu.Lock()
				rest := slices.Concat(all[n:], h.waiting[id]) // some may have come meanwhile
				h.waiting[id] = nil
				h.mu.Unlock()
				for _, x := range rest {
					h.returned.note(x.item.delivery, x.otherwise)
					x.item.delivery.Hold.Nak(x.otherwise)
				}
				h.forwarded(rest...)
				break
			}
			h.forwarded(x)
		}
	}
}

func (h *handovers) one(x handover) error {
	ctx, cancel := context.WithTimeout(h.background.lifetime, asideFor)
	defer cancel()
	if x.item.passed != nil { // the other orchestrator goes on with the count
		select {
		case <-x.item.passed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d := x.item.delivery
	d.Nacked = h.returned.times(d)
	err := h.broker.Handover(ctx, x.to, d)
	h.metrics.HandedOver(err == nil)
	return err
}
