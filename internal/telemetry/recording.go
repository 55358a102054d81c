package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Metrics records the metrics of a process: each of its recorders those about one noun. It is safe
// for concurrent use, and a nil one records nothing. The table describes each metric.
type Metrics struct {
	// Logger gets the metrics that cannot be recorded; nil is slog.Default. It must not be changed
	// after the first record.
	Logger *slog.Logger

	meter metric.Meter

	// The names that have labels of their own. Recorders share them.
	orchestrations                              registered
	children, activities, tags, reasons, queued first

	instances InstanceMetrics
	rounds    RoundMetrics
	messages  MessageMetrics
	outbox    OutboxMetrics
	tasks     TaskMetrics
	store     storeMetrics
	queues    JobMetrics
	schedules ScheduleMetrics
	custom    CustomMetrics

	gauges map[string]observable
	all    []metric.Observable
}

// observable is a metric whose value is read at each export.
type observable struct {
	instrument metric.Float64Observable
	labels     *labelled
	most       int // labels
}

// NewMetrics returns metrics that are recorded with a provider.
func NewMetrics(p metric.MeterProvider) (*Metrics, error) { return newMetrics(p, nil) }

// newMetrics has histograms measured by the SDK, or by own.
func newMetrics(p metric.MeterProvider, own *histograms) (*Metrics, error) {
	i := newInstruments(p, own)
	m := &Metrics{meter: i.meter, gauges: make(map[string]observable)}
	m.children.most, m.activities.most, m.tags.most, m.reasons.most = maxChildren, maxActivities, maxTags, maxReasons
	m.queued.most = maxQueues
	m.custom.init(i.meter, m.log)
	m.instances.orchestrations, m.instances.children, m.instances.activities = &m.orchestrations, &m.children,
		&m.activities
	m.instances.custom, m.rounds.orchestrations, m.messages.reasons = &m.custom, &m.orchestrations, &m.reasons
	m.outbox.messages, m.tasks.tags, m.queues.names = &m.messages, &m.tags, &m.queued
	for _, recorder := range []interface{ make(*instruments) }{&m.instances, &m.rounds, &m.messages, &m.outbox,
		&m.tasks, &m.store, &m.queues, &m.schedules} {
		recorder.make(i)
	}
	for _, d := range described {
		var o metric.Float64Observable
		switch d.Type {
		case Gauge:
			o = i.gauge(d.Name)
		case ObservedCounter:
			o = i.observed(d.Name)
		default:
			continue
		}
		m.gauges[d.Name] = observable{o, newLabelled(d.Labels...), len(d.Labels)}
		m.all = append(m.all, o)
	}
	if err := i.err(); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// maxQueues bounds the job queues that have labels of their own.
const maxQueues = 100

// maxReasons bounds the reasons of dead letters. The engine has about a dozen.
const maxReasons = 50

// Instances returns the recorder of instances; nil if m is nil.
func (m *Metrics) Instances() *InstanceMetrics {
	if m == nil {
		return nil
	}
	return &m.instances
}

// Rounds returns the recorder of rounds; nil if m is nil.
func (m *Metrics) Rounds() *RoundMetrics {
	if m == nil {
		return nil
	}
	return &m.rounds
}

// Messages returns the recorder of messages; nil if m is nil.
func (m *Metrics) Messages() *MessageMetrics {
	if m == nil {
		return nil
	}
	return &m.messages
}

// Outbox returns the recorder of the outbox; nil if m is nil.
func (m *Metrics) Outbox() *OutboxMetrics {
	if m == nil {
		return nil
	}
	return &m.outbox
}

// Tasks returns the recorder of the tasks of a worker; nil if m is nil.
func (m *Metrics) Tasks() *TaskMetrics {
	if m == nil {
		return nil
	}
	return &m.tasks
}

// Queues returns the recorder of job queues; nil if m is nil.
func (m *Metrics) Jobs() *JobMetrics {
	if m == nil {
		return nil
	}
	return &m.queues
}

// Schedules returns the recorder of schedules; nil if m is nil.
func (m *Metrics) Schedules() *ScheduleMetrics {
	if m == nil {
		return nil
	}
	return &m.schedules
}

// Custom returns the recorder of the metrics that orchestrations define; nil if m is nil.
func (m *Metrics) Custom() *CustomMetrics {
	if m == nil {
		return nil
	}
	return &m.custom
}

func (m *Metrics) log() *slog.Logger {
	if m.Logger != nil {
		return m.Logger
	}
	return slog.Default()
}

// Code has the orchestrations of a process: see [orchestration.Registry].
type Code interface {
	Names() []string
	Versions(name string) []string
}

// Orchestrations registers the orchestrations of this process. Others have no labels of their own.
func (m *Metrics) Orchestrations(code Code) {
	if m == nil {
		return
	}
	for _, name := range code.Names() {
		m.orchestrations.add(name, code.Versions(name))
	}
}

// Activity is the label of an activity that need not be registered here.
func (m *Metrics) Activity(name string) string {
	if m == nil {
		return name
	}
	return m.activities.of(name)
}

// Tag is the label of a tag.
func (m *Metrics) Tag(tag string) string {
	if m == nil {
		return tag
	}
	return m.tags.of(tag)
}

// ---- Observed metrics.

// Tell exports the value of an observed metric, with the values of its labels in their order.
type Record func(name string, value float64, labels ...string)

// Watch has each export of metrics call ask, until stop is called. A metric without a call of tell
// has no value in that export. ask must not block.
func (m *Metrics) Watch(ask func(record Record)) (stop func()) {
	if m == nil {
		return func() {}
	}
	watching, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		ask(func(name string, value float64, labels ...string) {
			g, ok := m.gauges[name]
			if !ok || len(labels) != g.most {
				panic(fmt.Sprintf("telemetry: %s is not observed with %d labels", name, len(labels)))
			}
			var k key
			for n, to := range []*string{&k.a, &k.b, &k.c, &k.d}[:len(labels)] {
				*to = labels[n]
			}
			o.ObserveFloat64(g.instrument, value, g.labels.of(k).at)
		})
		return nil
	}, m.all...)
	if err != nil {
		m.log().Warn("some metrics cannot be asked for", "error", err)
		return func() {}
	}
	return func() { _ = watching.Unregister() } // the only error is that it was done before
}

// background is the context for instruments: their records belong to no trace of the caller.
var background = context.Background()

// counter counts. There are a dozen counts for each round, so it does not use the SDK for them, and
// is read at each export.
type counter struct {
	counts sync.Map // of *atomic.Int64 by *series
}

// tell exports the counts.
func (c *counter) observe(_ context.Context, o metric.Int64Observer) error {
	c.counts.Range(func(of, n any) bool {
		o.Observe(n.(*atomic.Int64).Load(), of.(*series).at)
		return true
	})
	return nil
}

// add counts.
func add(c *counter, n int, s *series) {
	if n <= 0 {
		return
	}
	if s.passing {
		s = overflow
	}
	count, ok := c.counts.Load(s)
	if !ok {
		count, _ = c.counts.LoadOrStore(s, new(atomic.Int64))
	}
	count.(*atomic.Int64).Add(int64(n))
}

// record measures.
func record(h *histogram, v float64, s *series) { h.record(v, s) }

// took measures a time. Clocks of two machines may disagree: then it took none.
func took(h *histogram, d time.Duration, s *series) {
	record(h, max(d, 0).Seconds(), s)
}
