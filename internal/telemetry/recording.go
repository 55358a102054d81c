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

// Metrics is what a process counts and measures. It is safe for concurrent use, and a nil one
// records nothing. What each metric tells stands in the table.
type Metrics struct {
	// Logger is told what cannot be recorded; nil is slog.Default. It must not be changed once
	// something is recorded.
	Logger *slog.Logger

	meter metric.Meter

	orchestrations registered
	children       first
	activities     first
	tags           first
	reasons        first
	queueNames     first

	instances instanceMetrics
	rounds    roundMetrics
	mail      mailMetrics
	work      workMetrics
	store     storeMetrics
	queues    queueMetrics
	own       custom

	gauges map[string]observable
	all    []metric.Observable
}

// observable is a metric whose value is asked for.
type observable struct {
	instrument metric.Float64Observable
	labels     *labelled
	most       int // labels
}

// NewMetrics makes what is recorded with, on a provider.
func NewMetrics(p metric.MeterProvider) (*Metrics, error) { return newMetrics(p, nil) }

// newMetrics has histograms measured by the SDK, or by own.
func newMetrics(p metric.MeterProvider, own *histograms) (*Metrics, error) {
	i := newInstruments(p, own)
	m := &Metrics{meter: i.meter, gauges: make(map[string]observable)}
	m.children.most, m.activities.most, m.tags.most, m.reasons.most = maxChildren, maxActivities, maxTags, maxReasons
	m.instances.make(i)
	m.rounds.make(i)
	m.mail.make(i)
	m.work.make(i)
	m.store.make(i)
	m.queues.make(i)
	m.queueNames.most = maxQueues
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
	m.own.init()
	if err := i.err(); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// maxQueues bounds the queues that have labels of their own.
const maxQueues = 100

// maxReasons bounds the reasons of dead letters. The engine has about a dozen.
const maxReasons = 50

func (m *Metrics) log() *slog.Logger {
	if m.Logger != nil {
		return m.Logger
	}
	return slog.Default()
}

// Code is what somebody can run: see [orchestration.Registry].
type Code interface {
	Names() []string
	Versions(name string) []string
}

// Orchestrations says which orchestrations can be run here. Others have no labels of their own.
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

// ---- What is asked for.

// Tell tells the value of a metric that is observed, with the values of its labels in their order.
type Tell func(name string, value float64, labels ...string)

// Watch has values asked for whenever somebody reads the metrics, until stop is called. What is not
// told has no value then. It must not block.
func (m *Metrics) Watch(ask func(tell Tell)) (stop func()) {
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

// background is what instruments are given: what they record belongs to no trace of their caller's.
var background = context.Background()

// counter counts. There are a dozen counts for each round, so it does that itself, and is asked
// when somebody reads.
type counter struct {
	counts sync.Map // of *atomic.Int64 by *series
}

// tell tells what was counted.
func (c *counter) tell(_ context.Context, o metric.Int64Observer) error {
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
