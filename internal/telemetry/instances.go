package telemetry

import (
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// instanceMetrics are about orchestrations, and follow from what was committed.
type instanceMetrics struct {
	starts, completions, failures, poison, faults, continuations, childCalls *counter
	steps                                                                    *counter
	duration, execution, rounds, events, bytes, payload, child, call         *histogram
	lateness, stepDuration                                                   *histogram

	started, ended, failed, byName, fault, versioned, called, waited, calls, step *labelled

	payloads [4]*series
}

// The payloads that are measured.
const (
	payloadOrchestrationInput = iota
	payloadOrchestrationOutput
	payloadActivityInput
	payloadActivityResult
)

func (m *instanceMetrics) make(i *instruments) {
	m.starts, m.completions, m.failures = i.counter(MetricOrchestrationStarts),
		i.counter(MetricOrchestrationCompletions), i.counter(MetricOrchestrationFailures)
	m.poison, m.faults, m.continuations = i.counter(MetricOrchestrationPoison), i.counter(MetricOrchestrationFaults),
		i.counter(MetricOrchestrationContinuations)
	m.childCalls, m.steps = i.counter(MetricChildCalls), i.counter(MetricStepExecutions)
	m.duration, m.execution = i.histogram(MetricOrchestrationDuration), i.histogram(MetricExecutionDuration)
	m.rounds, m.events, m.bytes = i.histogram(MetricExecutionRounds), i.histogram(MetricExecutionEvents),
		i.histogram(MetricExecutionBytes)
	m.payload, m.child, m.call = i.histogram(MetricPayloadSize), i.histogram(MetricChildDuration),
		i.histogram(MetricCallDuration)
	m.lateness, m.stepDuration = i.histogram(MetricTimerLateness), i.histogram(MetricStepDuration)

	m.started = newLabelled(LabelOrchestration, LabelVersion, LabelInitiatedBy)
	m.ended = newLabelled(LabelOrchestration, LabelVersion, LabelStatus)
	m.failed = newLabelled(LabelOrchestration, LabelVersion, LabelErrorKind)
	m.fault = newLabelled(LabelOrchestration, LabelErrorKind)
	m.byName, m.versioned = newLabelled(LabelOrchestration), newLabelled(LabelOrchestration, LabelVersion)
	m.called, m.waited = newLabelled(LabelOrchestration, LabelChild),
		newLabelled(LabelOrchestration, LabelChild, LabelOutcome)
	m.calls, m.step = newLabelled(LabelActivity, LabelOutcome), newLabelled(LabelOrchestration, LabelOutcome)

	payloads := newLabelled(LabelPayload)
	for n, name := range []string{"orchestration_input", "orchestration_output", "activity_input", "activity_result"} {
		m.payloads[n] = payloads.of(key{a: name})
	}
}

// Turn records what a turn that was committed has changed. Scheduled tells whether a message that
// has started something is one that comes again and again; nil: none is.
func (m *Metrics) Turn(t *round.Turn, scheduled func(message string) bool) {
	if m == nil {
		return
	}
	l := &m.instances
	name := t.Row.Name
	if len(t.Former) > 0 {
		name = t.Former[0].Name
	}
	orchestration := m.orchestrations.name(name)
	size := func(which int, p events.Payload) { record(l.payload, float64(len(p)), l.payloads[which]) }
	for _, x := range t.Executions {
		for _, e := range x.Events {
			switch f := e.Fact.(type) {
			case *events.Started:
				var version string
				orchestration, version = m.orchestrations.both(f.Name, f.Version)
				add(l.starts, 1, l.started.of(key{orchestration, version, initiator(f, scheduled), ""}))
				size(payloadOrchestrationInput, f.Input)
			case *events.ChildStarted:
				add(l.childCalls, 1, l.called.of(key{a: orchestration, b: m.child(f.Name)}))
			case *events.ActivityScheduled:
				size(payloadActivityInput, f.Input)
			case *events.ActivityCompleted:
				size(payloadActivityResult, f.Result)
			case *events.Completed:
				size(payloadOrchestrationOutput, f.Output)
			}
		}
	}
	for i := range t.Told {
		switch x := &t.Told[i]; x.Kind {
		case coro.ToldCount:
			m.Count(x.Name, x.Value, Attributes(x.About))
		case coro.ToldValue:
			m.Measure(x.Name, x.Value, Attributes(x.About))
		}
	}
	if t.Fault != nil {
		add(l.faults, 1, l.fault.of(key{a: m.orchestrations.name(t.Row.Name), b: kindOf(t.Fault)}))
	}
	// What was waited for belongs to the orchestration that ends next, or has not ended.
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

// child is the label of a child's orchestration, which others may run.
func (m *Metrics) child(name string) string {
	if known := m.orchestrations.name(name); known != Unregistered {
		return known
	}
	return m.children.of(name)
}

// initiator says who has started an execution.
func initiator(f *events.Started, scheduled func(string) bool) string {
	switch {
	case f.Previous > 0:
		return "continued"
	case f.Parent != nil:
		return "parent"
	case strings.HasPrefix(f.Message, string(events.VerbStart)+"/"):
		return "launched"
	case scheduled != nil && scheduled(f.Message):
		return "schedule"
	}
	return "client"
}

// ended records the end of an execution.
func (m *Metrics) ended(o *round.Over) {
	l := &m.instances
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
	if kind == string(events.Poison) {
		add(l.poison, 1, one)
	}
}

// answered records that something an orchestration has waited for has its answer, or is not waited
// for any more.
func (m *Metrics) answered(orchestration string, o *round.Over) {
	l := &m.instances
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
	}
}

// Step records an attempt of an inline step.
func (m *Metrics) Step(orchestration string, d time.Duration, failed *events.Error) {
	if m == nil {
		return
	}
	s := m.instances.step.of(key{a: m.orchestrations.name(orchestration), b: outcomeOf(failed)})
	add(m.instances.steps, 1, s)
	took(m.instances.stepDuration, d, s)
}

// outcomeOf is the label of how a function has ended.
func outcomeOf(err *events.Error) string {
	if err == nil {
		return "success"
	}
	switch err.Kind {
	case events.Application:
		return "app_error"
	case events.Panicked:
		return "panic"
	case events.CancelledError:
		return "cancelled"
	case events.Timeout:
		return timeoutLabel(err.Type)
	case events.Poison:
		return "poison"
	case events.Infrastructure:
		return "infrastructure"
	case events.LimitExceeded:
		return "limit"
	case events.Unreadable:
		return "unreadable"
	}
	return Other
}
