package telemetry

import (
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// InstanceMetrics records what committed turns have changed, and inline steps. A nil one records
// nothing.
type InstanceMetrics struct {
	orchestrations       *registered
	children, activities *first
	custom               *CustomMetrics

	executions executionMetrics
	waits      waitMetrics
	payloads   payloadMetrics
	steps      stepMetrics
}

func (m *InstanceMetrics) make(i *instruments) {
	m.executions.make(i)
	m.waits.make(i)
	m.payloads.make(i)
	m.steps.make(i)
}

// executionMetrics are about the begin and the end of executions.
type executionMetrics struct {
	starts, completions, failures, poison, faults, continuations *counter
	duration, execution, rounds, events, bytes                   *histogram

	started, ended, failed, fault, byName, versioned *labelled
}

func (m *executionMetrics) make(i *instruments) {
	m.starts, m.completions, m.failures = i.counter(MetricOrchestrationStarts),
		i.counter(MetricOrchestrationCompletions), i.counter(MetricOrchestrationFailures)
	m.poison, m.faults, m.continuations = i.counter(MetricOrchestrationPoison), i.counter(MetricOrchestrationFaults),
		i.counter(MetricOrchestrationContinuations)
	m.duration, m.execution = i.histogram(MetricOrchestrationDuration), i.histogram(MetricExecutionDuration)
	m.rounds, m.events, m.bytes = i.histogram(MetricExecutionRounds), i.histogram(MetricExecutionEvents),
		i.histogram(MetricExecutionBytes)
	m.started = newLabelled(LabelOrchestration, LabelVersion, LabelInitiatedBy)
	m.ended = newLabelled(LabelOrchestration, LabelVersion, LabelStatus)
	m.failed = newLabelled(LabelOrchestration, LabelVersion, LabelErrorKind)
	m.fault = newLabelled(LabelOrchestration, LabelErrorKind)
	m.byName, m.versioned = newLabelled(LabelOrchestration), newLabelled(LabelOrchestration, LabelVersion)
}

// waitMetrics are about the activities, children and timers that orchestrations wait for.
type waitMetrics struct {
	childCalls            *counter
	child, call, lateness *histogram

	called, waited, calls *labelled
}

func (m *waitMetrics) make(i *instruments) {
	m.childCalls, m.child = i.counter(MetricChildCalls), i.histogram(MetricChildDuration)
	m.call, m.lateness = i.histogram(MetricCallDuration), i.histogram(MetricTimerLateness)
	m.called, m.waited = newLabelled(LabelOrchestration, LabelChild),
		newLabelled(LabelOrchestration, LabelChild, LabelOutcome)
	m.calls = newLabelled(LabelActivity, LabelOutcome)
}

// payloadMetrics are about the sizes of inputs and results.
type payloadMetrics struct {
	size *histogram
	of   [4]*series
}

// The payloads that are measured.
const (
	payloadOrchestrationInput = iota
	payloadOrchestrationOutput
	payloadActivityInput
	payloadActivityResult
)

func (m *payloadMetrics) make(i *instruments) {
	m.size = i.histogram(MetricPayloadSize)
	payloads := newLabelled(LabelPayload)
	for n, name := range []string{"orchestration_input", "orchestration_output", "activity_input", "activity_result"} {
		m.of[n] = payloads.of(key{a: name})
	}
}

func (m *payloadMetrics) record(which int, p codec.Payload) {
	record(m.size, float64(len(p)), m.of[which])
}

// stepMetrics are about the attempts of inline steps.
type stepMetrics struct {
	executions *counter
	duration   *histogram

	byOutcome *labelled
}

func (m *stepMetrics) make(i *instruments) {
	m.executions, m.duration = i.counter(MetricStepExecutions), i.histogram(MetricStepDuration)
	m.byOutcome = newLabelled(LabelOrchestration, LabelOutcome)
}

// Turn records the changes of a committed turn.
func (m *InstanceMetrics) Turn(t *round.Turn) {
	if m == nil {
		return
	}
	l, w, sizes := &m.executions, &m.waits, &m.payloads
	name := t.Row.Name
	if len(t.Former) > 0 {
		name = t.Former[0].Name
	}
	orchestration := m.orchestrations.name(name)
	for _, x := range t.Executions {
		for _, e := range x.Events {
			switch f := e.Fact.(type) {
			case *events.Started:
				var version string
				orchestration, version = m.orchestrations.both(f.Name, f.Version)
				add(l.starts, 1, l.started.of(key{orchestration, version, initiator(f), ""}))
				sizes.record(payloadOrchestrationInput, f.Input)
			case *events.ChildStarted:
				add(w.childCalls, 1, w.called.of(key{a: orchestration, b: m.child(f.Name)}))
			case *events.ActivityScheduled:
				sizes.record(payloadActivityInput, f.Input)
			case *events.ActivityCompleted:
				sizes.record(payloadActivityResult, f.Result)
			case *events.Completed:
				sizes.record(payloadOrchestrationOutput, f.Output)
			default:
			}
		}
	}
	for i := range t.Emitted {
		switch x := &t.Emitted[i]; x.Kind {
		case coro.EmittedCount:
			m.custom.Count(x.Name, x.Value, Attributes(x.About))
		case coro.EmittedValue:
			m.custom.Measure(x.Name, x.Value, Attributes(x.About))
		case coro.EmittedSpan: // see Traces
		}
	}
	if t.Fault != nil {
		add(l.faults, 1, l.fault.of(key{a: m.orchestrations.name(t.Row.Name), b: kindOf(t.Fault)}))
	}
	// A wait that has ended belongs to the orchestration that ends next, or has not ended.
	waiting := m.orchestrations.name(name)
	for i := range t.Over {
		o := &t.Over[i]
		if o.Kind == round.OverExecution {
			m.ended(o)
			waiting = m.orchestrations.name(t.Row.Name)
			continue
		}
		m.answered(waiting, o)
	}
}

// child is the label of a child's orchestration, which other processes may run.
func (m *InstanceMetrics) child(name string) string {
	if known := m.orchestrations.name(name); known != Unregistered {
		return known
	}
	return m.children.of(name)
}

// initiator is the label of the origin of an execution.
func initiator(f *events.Started) string {
	switch {
	case f.Previous > 0:
		return "continued"
	case f.Parent != nil:
		return "parent"
	case strings.HasPrefix(f.Message, string(events.VerbStart)+"/"):
		return "launched"
	case strings.HasPrefix(f.Message, events.ScheduleIDs):
		return "schedule"
	}
	return "client"
}

// ended records the end of an execution.
func (m *InstanceMetrics) ended(o *round.Over) {
	l := &m.executions
	name, version := m.orchestrations.both(o.Name, o.Version)
	ended, one := l.ended.of(key{name, version, string(o.Status), ""}), l.byName.of(key{a: name})
	took(l.execution, o.Ended.Sub(o.Begun), ended)
	record(l.rounds, float64(o.Rounds), one)
	record(l.events, float64(o.Events), one)
	record(l.bytes, float64(o.Bytes), one)
	if o.Status == round.ContinuedAsNew {
		add(l.continuations, 1, l.versioned.of(key{a: name, b: version}))
		return
	}
	add(l.completions, 1, ended)
	took(l.duration, o.Ended.Sub(o.Since), ended)
	if o.Status != round.Failed {
		return
	}
	kind := kindOf(o.Error)
	add(l.failures, 1, l.failed.of(key{name, version, kind, ""}))
	if kind == string(failure.Poison) {
		add(l.poison, 1, one)
	}
}

// answered records that an orchestration has got an answer, or does not wait for it any more.
func (m *InstanceMetrics) answered(orchestration string, o *round.Over) {
	l := &m.waits
	outcome := "completed"
	switch {
	case o.GivenUp:
		outcome = "given_up"
	case o.Error != nil:
		outcome = "failed"
	}
	switch o.Kind {
	case round.OverActivity:
		took(l.call, o.Ended.Sub(o.Begun), l.calls.of(key{a: m.activities.of(o.Name), b: outcome}))
	case round.OverChild:
		took(l.child, o.Ended.Sub(o.Begun), l.waited.of(key{a: orchestration, b: m.child(o.Name), c: outcome}))
	case round.OverTimer:
		if !o.GivenUp {
			took(l.lateness, o.Ended.Sub(o.Due), none)
		}
	default:
	}
}

// Step records an attempt of an inline step.
func (m *InstanceMetrics) Step(orchestration string, d time.Duration, failed *failure.Error) {
	if m == nil {
		return
	}
	s := m.steps.byOutcome.of(key{a: m.orchestrations.name(orchestration), b: outcomeOf(failed)})
	add(m.steps.executions, 1, s)
	took(m.steps.duration, d, s)
}

// outcomeOf is the label of a function's outcome.
func outcomeOf(err *failure.Error) string {
	if err == nil {
		return "success"
	}
	switch err.Kind {
	case failure.Application:
		return "app_error"
	case failure.Panicked:
		return "panic"
	case failure.Cancelled:
		return "cancelled"
	case failure.Timeout:
		return timeoutLabel(err.Type)
	case failure.Poison:
		return "poison"
	case failure.Infrastructure:
		return "infrastructure"
	case failure.LimitExceeded:
		return "limit"
	case failure.Unreadable:
		return "unreadable"
	default:
	}
	return Other
}
