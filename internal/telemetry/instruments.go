package telemetry

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// instruments create the instruments of metrics, as the table describes them.
type instruments struct {
	meter  metric.Meter
	own    *histograms // where histograms are measured; nil: by the SDK
	errs   []error
	byName map[string]Described
}

func newInstruments(p metric.MeterProvider, own *histograms) *instruments {
	i := &instruments{meter: p.Meter(Scope), own: own, byName: make(map[string]Described, len(described))}
	for _, d := range described {
		i.byName[d.Name] = d
	}
	return i
}

// of returns the description of a metric, which may be used once.
func (i *instruments) of(name string, want Type) Described {
	d, ok := i.byName[name]
	if !ok || d.Type != want {
		panic(fmt.Sprintf("telemetry: %s is not described as a %s, or was made already", name, want))
	}
	delete(i.byName, name)
	return d
}

func (i *instruments) counter(name string) *counter {
	d := i.of(name, Counter)
	c := new(counter)
	_, err := i.meter.Int64ObservableCounter(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Help),
		metric.WithInt64Callback(c.observe))
	i.errs = append(i.errs, err)
	return c
}

func (i *instruments) histogram(name string) *histogram {
	h := &histogram{described: i.of(name, Histogram)}
	if i.own != nil {
		i.own.all = append(i.own.all, h)
		return h
	}
	d := h.described
	var err error
	h.sdk, err = i.meter.Float64Histogram(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Help),
		metric.WithExplicitBucketBoundaries(d.Buckets...))
	i.errs = append(i.errs, err)
	return h
}

func (i *instruments) gauge(name string) metric.Float64ObservableGauge {
	d := i.of(name, Gauge)
	g, err := i.meter.Float64ObservableGauge(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Help))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) observed(name string) metric.Float64ObservableCounter {
	d := i.of(name, ObservedCounter)
	c, err := i.meter.Float64ObservableCounter(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Help))
	i.errs = append(i.errs, err)
	return c
}

// err returns the errors of all instruments. It panics unless every described metric was created.
func (i *instruments) err() error {
	for name := range i.byName {
		panic("telemetry: " + name + " is described and not made")
	}
	return errors.Join(i.errs...)
}
