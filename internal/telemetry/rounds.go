package telemetry

import (
	"time"

	"github.com/rondo-run/rondo/pkg/round"
)

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

// Source says from where a round has got its instance.
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

// RoundMetrics records rounds: their decisions and commits, and the loading of the instances for
// them. A nil one records nothing.
type RoundMetrics struct {
	orchestrations *registered

	rounds, replayed, attempts, turns, loads, evictions, near           *counter
	duration, decide, messages, appended, turnsInCommit, eventsInCommit *histogram

	byPhase          [phases]*series
	bySource, byName *labelled
	outcome, byLimit *labelled
}

func (m *RoundMetrics) make(i *instruments) {
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

// Decided records that a round of an orchestration was decided. The turn may not name the
// orchestration: its row is empty if it writes nothing.
func (m *RoundMetrics) Decided(orchestration string, t *round.Turn, from Source, waited, decided time.Duration) {
	if m == nil {
		return
	}
	name := m.orchestrations.name(orchestration)
	add(m.rounds, 1, m.bySource.of(key{a: name, b: from.String()}))
	took(m.duration, waited, m.byPhase[PhaseWait])
	took(m.duration, decided, m.byPhase[PhaseDecide])
	one := m.byName.of(key{a: name})
	took(m.decide, decided, one)
	add(m.replayed, t.Replayed, one)
	record(m.messages, float64(len(t.Receipts)), none)
}

// Phase records how long a phase of a round has taken.
func (m *RoundMetrics) Phase(p Phase, d time.Duration) {
	if m != nil {
		took(m.duration, d, m.byPhase[p])
	}
}

// Appended records how many events a round has written.
func (m *RoundMetrics) Appended(n int) {
	if m != nil {
		record(m.appended, float64(n), none)
	}
}

// Commit records an attempt to commit turns, with the outcome "stored" or the class of the error.
func (m *RoundMetrics) Commit(outcome string, turns, events int) {
	if m == nil {
		return
	}
	add(m.attempts, 1, m.outcome.of(key{a: outcome}))
	record(m.turnsInCommit, float64(turns), none)
	record(m.eventsInCommit, float64(events), none)
}

// CommitStatus records the outcome of turns in their commit.
func (m *RoundMetrics) CommitStatus(verdict string, n int) {
	if m != nil {
		add(m.turns, n, m.outcome.of(key{a: verdict}))
	}
}

// Loaded records instances that were read, or not.
func (m *RoundMetrics) Loaded(outcome string, n int) {
	if m != nil {
		add(m.loads, n, m.outcome.of(key{a: outcome}))
	}
}

// Evicted records that an instance was evicted for lack of room.
func (m *RoundMetrics) Evicted() {
	if m != nil {
		add(m.evictions, 1, none)
	}
}

// NearLimit records that an instance has come near a limit.
func (m *RoundMetrics) NearLimit(orchestration, limit string) {
	if m != nil {
		add(m.near, 1, m.byLimit.of(key{a: m.orchestrations.name(orchestration), b: limit}))
	}
}
