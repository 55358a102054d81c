package telemetry

import (
	"strconv"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// ---- Rounds.

// Phase is a part of a round.
type Phase int

// The phases, in their order. Total is from the arrival of the first message until all are settled.
const (
	PhaseWait Phase = iota
	PhaseDecide
	PhaseBatch
	PhaseCommit
	PhasePublish
	PhaseAck
	PhaseTotal
	phases
)

// String is the label.
func (p Phase) String() string {
	return [...]string{"wait", "decide", "batch", "commit", "publish", "ack", "total"}[p]
}

// Source is where an instance came from for a round.
type Source int

// The sources.
const (
	FromMemory Source = iota
	FromHistory
	FromNothing
	sources
)

// String is the label.
func (s Source) String() string { return [...]string{"memory", "history", "new"}[s] }

type roundMetrics struct {
	rounds, replayed, attempts, turns, loads, evictions, near           *counter
	duration, decide, messages, appended, turnsInCommit, eventsInCommit *histogram

	byPhase          [phases]*series
	bySource, byName *labelled
	outcome, byLimit *labelled
}

func (m *roundMetrics) make(i *instruments) {
	m.rounds, m.replayed, m.attempts = i.counter(MetricRounds), i.counter(MetricReplayedEvents),
		i.counter(MetricCommitAttempts)
	m.turns, m.loads, m.evictions = i.counter(MetricTurns), i.counter(MetricLoads), i.counter(MetricEvictions)
	m.near, m.byLimit = i.counter(MetricNearLimit), newLabelled(LabelOrchestration, LabelReason)
	m.duration, m.decide = i.histogram(MetricRoundDuration), i.histogram(MetricOrchestrationDecide)
	m.messages, m.appended = i.histogram(MetricRoundMessages), i.histogram(MetricRoundEvents)
	m.turnsInCommit, m.eventsInCommit = i.histogram(MetricCommitTurns), i.histogram(MetricCommitEvents)
	m.bySource, m.byName, m.outcome = newLabelled(LabelOrchestration, LabelSource), newLabelled(LabelOrchestration),
		newLabelled(LabelOutcome)
	byPhase := newLabelled(LabelPhase)
	for p := range phases {
		m.byPhase[p] = byPhase.of(key{a: p.String()})
	}
}

// Decided records that a round of an instance of an orchestration was decided. The turn does not
// tell which: its row is empty if it writes nothing.
func (m *Metrics) Decided(orchestration string, t *round.Turn, from Source, waited, decided time.Duration) {
	if m == nil {
		return
	}
	r := &m.rounds
	name := m.orchestrations.name(orchestration)
	add(r.rounds, 1, r.bySource.of(key{a: name, b: from.String()}))
	took(r.duration, waited, r.byPhase[PhaseWait])
	took(r.duration, decided, r.byPhase[PhaseDecide])
	one := r.byName.of(key{a: name})
	took(r.decide, decided, one)
	add(r.replayed, t.Replayed, one)
	record(r.messages, float64(len(t.Receipts)), none)
}

// Phase records how long a phase of a round has taken.
func (m *Metrics) Phase(p Phase, d time.Duration) {
	if m != nil {
		took(m.rounds.duration, d, m.rounds.byPhase[p])
	}
}

// Appended records how many events a round has written.
func (m *Metrics) Appended(n int) {
	if m != nil {
		record(m.rounds.appended, float64(n), none)
	}
}

// Commit records an attempt to commit turns: it was stored, or its error has a class.
func (m *Metrics) Commit(outcome string, turns, events int) {
	if m == nil {
		return
	}
	add(m.rounds.attempts, 1, m.rounds.outcome.of(key{a: outcome}))
	record(m.rounds.turnsInCommit, float64(turns), none)
	record(m.rounds.eventsInCommit, float64(events), none)
}

// CommitStatus records what became of turns in their commit.
func (m *Metrics) CommitStatus(verdict string, n int) {
	if m != nil {
		add(m.rounds.turns, n, m.rounds.outcome.of(key{a: verdict}))
	}
}

// Loaded records instances that were to be read.
func (m *Metrics) Loaded(outcome string, n int) {
	if m != nil {
		add(m.rounds.loads, n, m.rounds.outcome.of(key{a: outcome}))
	}
}

// Evicted records that an instance was forgotten for want of room.
func (m *Metrics) Evicted() {
	if m != nil {
		add(m.rounds.evictions, 1, none)
	}
}

// NearLimit records that an instance has come near a limit.
func (m *Metrics) NearLimit(orchestration, limit string) {
	if m != nil {
		add(m.rounds.near, 1, m.rounds.byLimit.of(key{a: m.orchestrations.name(orchestration), b: limit}))
	}
}

// ---- Messages.

type mailMetrics struct {
	receipts, redelivered, suspects, handovers, dead, published, swept, healed *counter
	publishing                                                                 *histogram

	receipt, byVerb, outcome, deadLettered, sent, lane *labelled
}

func (m *mailMetrics) make(i *instruments) {
	m.receipts, m.redelivered, m.suspects = i.counter(MetricReceipts), i.counter(MetricRedeliveries),
		i.counter(MetricSuspects)
	m.handovers, m.dead, m.published = i.counter(MetricHandovers), i.counter(MetricDeadLetters),
		i.counter(MetricOutboxPublished)
	m.swept, m.healed, m.publishing = i.counter(MetricOutboxSwept), i.counter(MetricOutboxHealed),
		i.histogram(MetricOutboxDuration)
	m.receipt, m.byVerb = newLabelled(LabelVerb, LabelVerdict, LabelReason), newLabelled(LabelVerb)
	m.outcome, m.deadLettered = newLabelled(LabelOutcome), newLabelled(LabelVerb, LabelReason)
	m.sent, m.lane = newLabelled(LabelLane, LabelOutcome), newLabelled(LabelLane)
}

// Receipt records what became of a message.
func (m *Metrics) Receipt(verb events.Verb, r round.Receipt) {
	if m == nil {
		return
	}
	reason := r.Reason
	if reason == "" {
		reason = round.Taken
	}
	add(m.mail.receipts, 1, m.mail.receipt.of(key{a: string(verb), b: verdictLabel(r.Verdict), c: string(reason)}))
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

// Redelivered records a message that was handed out before, and whether it is under suspicion
// because of that.
func (m *Metrics) Redelivered(verb events.Verb, suspect bool) {
	if m == nil {
		return
	}
	s := m.mail.byVerb.of(key{a: string(verb)})
	add(m.mail.redelivered, 1, s)
	if suspect {
		add(m.mail.suspects, 1, s)
	}
}

// HandedOver records that a message was handed over to another orchestrator, or that this one has
// refused it.
func (m *Metrics) HandedOver(accepted bool) {
	if m != nil {
		add(m.mail.handovers, 1, m.mail.outcome.of(key{a: said(accepted, "accepted", "refused")}))
	}
}

// DeadLettered records that a message was dead-lettered.
func (m *Metrics) DeadLettered(prefix, subject, reason string) {
	if m != nil {
		add(m.mail.dead, 1, m.mail.deadLettered.of(key{a: verbOf(prefix, subject),
			b: m.reasons.of(deadReason(reason))}))
	}
}

// ---- The outbox.

// Published records what was given to the broker in one go.
func (m *Metrics) Published(later bool, messages int, d time.Duration, err error) {
	if m == nil {
		return
	}
	lane := said(later, "later", "now")
	add(m.mail.published, messages, m.mail.sent.of(key{a: lane, b: said(err == nil, "published", "failed")}))
	took(m.mail.publishing, d, m.mail.lane.of(key{a: lane}))
}

// Swept records messages that were published instead of a process that has not.
func (m *Metrics) Swept(messages int) {
	if m != nil {
		add(m.mail.swept, messages, none)
	}
}

// Healed records messages that were published again.
func (m *Metrics) Healed(messages int) {
	if m != nil {
		add(m.mail.healed, messages, none)
	}
}
