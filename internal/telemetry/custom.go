package telemetry

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxCustom bounds the metrics of orchestrations. Each of them has at most [maxSeries] series.
const maxCustom = 200

// CustomMetrics records the metrics that orchestrations define. A nil one records nothing.
type CustomMetrics struct {
	meter metric.Meter
	log   func() *slog.Logger

	mu      sync.Mutex
	byName  atomic.Pointer[map[string]*made] // never changed
	byAlias map[string]string                // the name behind each name of Prometheus
	refused int
}

// made is a metric of an orchestration; without instruments if it was refused.
type made struct {
	counter   metric.Float64Counter
	histogram metric.Float64Histogram
}

func (c *CustomMetrics) init(meter metric.Meter, log func() *slog.Logger) {
	c.meter, c.log = meter, log
	c.byName.Store(&map[string]*made{})
	c.byAlias = make(map[string]string)
}

// Count adds to the counter with this name, which the first call creates. It logs once for each
// name that it cannot record: an invalid name, the name of another metric, or more names than
// [maxCustom].
func (c *CustomMetrics) Count(name string, n float64, attrs []attribute.KeyValue) {
	if c == nil {
		return
	}
	x := c.find(name, true)
	switch {
	case x.counter == nil:
	case n < 0 || math.IsNaN(n) || math.IsInf(n, 0):
		c.refuse(name, fmt.Errorf("a counter can only be increased, not by %v", n))
	default:
		x.counter.Add(background, n, metric.WithAttributes(usable(attrs)...))
	}
}

// Measure records a value in the histogram with this name, which the first call creates. It logs
// refusals as Count does.
func (c *CustomMetrics) Measure(name string, v float64, attrs []attribute.KeyValue) {
	if c == nil {
		return
	}
	x := c.find(name, false)
	switch {
	case x.histogram == nil:
	case math.IsNaN(v) || math.IsInf(v, 0):
		c.refuse(name, fmt.Errorf("%v cannot be measured", v))
	default:
		x.histogram.Record(background, v, metric.WithAttributes(usable(attrs)...))
	}
}

// customBuckets are for values of any unit.
var customBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 50, 100, 500, 1000, 5000, 10_000,
	100_000, 1_000_000}

// find finds a metric, or creates it.
func (c *CustomMetrics) find(name string, counts bool) *made {
	all := *c.byName.Load()
	id := said(counts, "count ", "measure ") + name
	if x := all[id]; x != nil {
		return x
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := *c.byName.Load()
	if x := before[id]; x != nil {
		return x
	}
	x, err := c.define(name, counts)
	if err != nil {
		c.refuseOnce(id, name, err)
		return &made{}
	}
	c.keep(id, x)
	return x
}

// keep remembers a metric that was created or refused.
func (c *CustomMetrics) keep(id string, x *made) {
	before := *c.byName.Load()
	after := make(map[string]*made, len(before)+1)
	for k, v := range before {
		after[k] = v
	}
	after[id] = x
	c.byName.Store(&after)
}

// refuseOnce logs a refusal once, unless too many were refused already. mu is held.
func (c *CustomMetrics) refuseOnce(id, name string, why error) {
	if c.refused++; c.refused > maxCustom {
		return
	}
	c.keep(id, &made{})
	c.log().Warn("a metric of an orchestration cannot be recorded", "metric", name, "error", why)
}

var customName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]{0,199}$`)

// takenNames begin the names of metrics that others export.
var takenNames = []string{"rondo_", "go_", "process_", "otel_", "target_", "promhttp_", "scrape_"}

// define creates a metric, or returns the reason for the refusal.
func (c *CustomMetrics) define(name string, counts bool) (*made, error) {
	alias := aliasOf(name)
	switch before, exists := c.byAlias[alias]; {
	case !customName.MatchString(name):
		return nil, fmt.Errorf(
			"it is no name: it begins with a letter, and goes on with letters, digits, and any of _ . - /, 200 at most")
	case exists && before == name:
		return nil, fmt.Errorf("it is counted in one place and measured in another")
	case exists:
		return nil, fmt.Errorf("where Prometheus reads it, it has the same name as %s", before)
	case len(c.byAlias) >= maxCustom:
		return nil, fmt.Errorf(
			"there are %d already, which is as many as there may be; what differs from call to call "+
				"belongs into an attribute", maxCustom)
	}
	for _, t := range takenNames {
		if strings.HasPrefix(alias+"_", t) {
			return nil, fmt.Errorf("names that begin with %q are those of others", strings.TrimSuffix(t, "_"))
		}
	}
	x := &made{}
	var err error
	if counts {
		x.counter, err = c.meter.Float64Counter(name, metric.WithDescription("Counted by an orchestration."))
	} else {
		x.histogram, err = c.meter.Float64Histogram(name, metric.WithDescription("Measured by an orchestration."),
			metric.WithExplicitBucketBoundaries(customBuckets...))
	}
	if err != nil {
		return nil, err
	}
	c.byAlias[alias] = name
	return x, nil
}

// aliasOf is the name in Prometheus without its suffix: names with the same alias would be one
// metric.
func aliasOf(name string) string {
	alias := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	for strings.Contains(alias, "__") {
		alias = strings.ReplaceAll(alias, "__", "_")
	}
	for _, behind := range []string{"_total", "_count", "_sum", "_bucket"} {
		alias = strings.TrimSuffix(alias, behind)
	}
	return strings.Trim(alias, "_")
}

// refuse logs a bad value once for each metric.
func (c *CustomMetrics) refuse(name string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := "value " + name; (*c.byName.Load())[id] == nil {
		c.refuseOnce(id, name, why)
	}
}

// usable leaves out attributes that would break the whole export to Prometheus, and cleans the text
// of the others.
func usable(attrs []attribute.KeyValue) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, kv := range attrs {
		switch k := string(kv.Key); {
		case k == "" || k == "le" || k == "quantile" || strings.HasPrefix(k, "__"):
			continue
		case kv.Value.Type() == attribute.STRING:
			kv = attribute.String(clean(k), clean(kv.Value.AsString()))
		}
		out = append(out, kv)
	}
	return out
}
