package telemetry

import (
	"strconv"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// MessageMetrics records the messages for instances, and the dead letters. A nil one records
// nothing.
type MessageMetrics struct {
	reasons *first

	receipts, redelivered, quarantined, handovers, dead, dropped *counter
	receipt, byVerb, outcome, deadLettered                       *labelled
}

func (m *MessageMetrics) make(i *instruments) {
	m.receipts, m.redelivered, m.quarantined = i.counter(MetricReceipts), i.counter(MetricRedeliveries),
		i.counter(MetricQuarantined)
	m.handovers, m.dead = i.counter(MetricHandovers), i.counter(MetricDeadLetters)
	m.dropped = i.counter(MetricDeadLettersDropped)
	m.receipt, m.byVerb = newLabelled(LabelVerb, LabelVerdict, LabelReason), newLabelled(LabelVerb)
	m.outcome, m.deadLettered = newLabelled(LabelOutcome), newLabelled(LabelVerb, LabelReason)
}

// Receipt records the outcome of a message.
func (m *MessageMetrics) Receipt(verb events.Verb, r round.Receipt) {
	if m == nil {
		return
	}
	reason := r.Reason
	if reason == "" {
		reason = round.Taken
	}
	add(m.receipts, 1, m.receipt.of(key{a: string(verb), b: verdictLabel(r.Verdict),
		c: string(reason)}))
}

func verdictLabel(v round.Verdict) string {
	switch v {
	case round.Accepted:
		return "accepted"
	case round.Ignored:
		return "ignored"
	case round.Returned:
		return "returned"
	case round.Again:
		return "again"
	case round.Dead:
		return "dead"
	}
	return "unknown_" + strconv.Itoa(int(v))
}

// Redelivered records a redelivered message, and whether it is quarantined because of that.
func (m *MessageMetrics) Redelivered(verb events.Verb, quarantined bool) {
	if m == nil {
		return
	}
	s := m.byVerb.of(key{a: string(verb)})
	add(m.redelivered, 1, s)
	if quarantined {
		add(m.quarantined, 1, s)
	}
}

// HandedOver records that a message was forwarded to another orchestrator, or that this one has
// refused it.
func (m *MessageMetrics) HandedOver(accepted bool) {
	if m != nil {
		add(m.handovers, 1, m.outcome.of(key{a: said(accepted, "accepted", "refused")}))
	}
}

// DeadLettered records that a message was dead-lettered.
func (m *MessageMetrics) DeadLettered(prefix, subject, reason string) {
	if m != nil {
		add(m.dead, 1, m.deadLettered.of(key{a: verbOf(prefix, subject),
			b: m.reasons.of(deadReason(reason))}))
	}
}

// DeadLetterDropped records that a message was dropped for want of room in the dead-letter stream.
func (m *MessageMetrics) DeadLetterDropped(prefix, subject, reason string) {
	if m != nil {
		add(m.dropped, 1, m.deadLettered.of(key{a: verbOf(prefix, subject),
			b: m.reasons.of(deadReason(reason))}))
	}
}

// OutboxMetrics records the publishing of outbox entries: it implements outbox.Watcher. A nil one
// records nothing.
type OutboxMetrics struct {
	messages *MessageMetrics

	published, swept, healed *counter
	publishing               *histogram
	sent, lane               *labelled
}

func (m *OutboxMetrics) make(i *instruments) {
	m.published, m.publishing = i.counter(MetricOutboxPublished), i.histogram(MetricOutboxDuration)
	m.swept, m.healed = i.counter(MetricOutboxSwept), i.counter(MetricOutboxHealed)
	m.sent, m.lane = newLabelled(LabelLane, LabelOutcome), newLabelled(LabelLane)
}

// Published records one batch of messages that was published.
func (m *OutboxMetrics) Published(later bool, messages int, d time.Duration, err error) {
	if m == nil {
		return
	}
	lane := said(later, "later", "now")
	add(m.published, messages, m.sent.of(key{a: lane, b: said(err == nil, "published", "failed")}))
	took(m.publishing, d, m.lane.of(key{a: lane}))
}

// DeadLettered is that of [MessageMetrics].
func (m *OutboxMetrics) DeadLettered(prefix, subject, reason string) {
	if m != nil {
		m.messages.DeadLettered(prefix, subject, reason)
	}
}

// Swept records messages that were published in place of another process.
func (m *OutboxMetrics) Swept(messages int) {
	if m != nil {
		add(m.swept, messages, none)
	}
}

// Healed records messages that were published again.
func (m *OutboxMetrics) Healed(messages int) {
	if m != nil {
		add(m.healed, messages, none)
	}
}
