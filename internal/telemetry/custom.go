package telemetry

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxCustom bounds the metrics that orchestrations make. Each of them has [maxSeries] series at
// most.
const maxCustom = 200

// custom are the metrics that orchestrations make.
type custom struct {
	mu      sync.Mutex
	byName  atomic.Pointer[map[string]*made] // never changed
	byAlias map[string]string                // which name stands where Prometheus reads it
	refused int
}

// made is a metric that somebody has made, or why there is none.
type made struct {
	counter   metric.Float64Counter
	histogram metric.Float64Histogram
}

func (c *custom) init() {
	c.byName.Store(&map[string]*made{})
	c.byAlias = make(map[string]string)
}

// Count adds to a counter of this name, which is made with the first call. What cannot be counted
// is reported once: a name that is none, or is that of something else, and more names than there
// may be.
func (m *Metrics) Count(name string, n float64, attrs []attribute.KeyValue) {
	if m == nil {
		return
	}
	x := m.custom(name, true)
	switch {
	case x.counter == nil:
	case n < 0 || math.IsNaN(n) || math.IsInf(n, 0):
		m.refuse(name, fmt.Errorf("a counter can only be increased, not by %v", n))
	default:
		x.counter.Add(background, n, metric.WithAttributes(usable(attrs)...))
	}
}

// Measure records a value in a histogram of this name, which is made with the first call. What
// cannot be recorded is reported once, as with Count.
func (m *Metrics) Measure(name string, v float64, attrs []attribute.KeyValue) {
	if m == nil {
		return
	}
	x := m.custom(name, false)
	switch {
	case x.histogram == nil:
	case math.IsNaN(v) || math.IsInf(v, 0):
		m.refuse(name, fmt.Errorf("%v cannot be measured", v))
	default:
		x.histogram.Record(background, v, metric.WithAttributes(usable(attrs)...))
	}
}

// customBuckets are for values of which nobody knows what they are.
var customBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 50, 100, 500, 1000, 5000, 10_000,
	100_000, 1_000_000}

// custom finds a metric, or makes it.
func (m *Metrics) custom(name string, counts bool) *made {
	all := *m.own.byName.Load()
	id := said(counts, "count ", "measure ") + name
	if x := all[id]; x != nil {
		return x
	}
	m.own.mu.Lock()
	defer m.own.mu.Unlock()
	before := *m.own.byName.Load()
	if x := before[id]; x != nil {
		return x
	}
	x, err := m.makeCustom(name, counts)
	if err != nil {
		m.own.refuse(m, id, name, err)
		return &made{}
	}
	m.own.keep(id, x)
	return x
}

// keep remembers what was made, or refused.
func (c *custom) keep(id string, x *made) {
	before := *c.byName.Load()
	after := make(map[string]*made, len(before)+1)
	for k, v := range before {
		after[k] = v
	}
	after[id] = x
	c.byName.Store(&after)
}

// refuse reports something once, unless too much was refused already.
func (c *custom) refuse(m *Metrics, id, name string, why error) {
	if c.refused++; c.refused > maxCustom {
		return
	}
	c.keep(id, &made{})
	m.log().Warn("a metric of an orchestration cannot be recorded", "metric", name, "error", why)
}

var customName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]{0,199}$`)

// takenNames begin the names of what others tell.
var takenNames = []string{"rondo_", "go_", "process_", "otel_", "target_", "promhttp_", "scrape_"}

// makeCustom makes a metric, or says why that cannot be.
func (m *Metrics) makeCustom(name string, counts bool) (*made, error) {
	alias := aliasOf(name)
	switch before, exists := m.own.byAlias[alias]; {
	case !customName.MatchString(name):
		return nil, fmt.Errorf(
			"it is no name: it begins with a letter, and goes on with letters, digits, and any of _ . - /, 200 at most")
	case exists && before == name:
		return nil, fmt.Errorf("it is counted in one place and measured in another")
	case exists:
		return nil, fmt.Errorf("where Prometheus reads it, it has the same name as %s", before)
	case len(m.own.byAlias) >= maxCustom:
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
		x.counter, err = m.meter.Float64Counter(name, metric.WithDescription("Counted by an orchestration."))
	} else {
		x.histogram, err = m.meter.Float64Histogram(name, metric.WithDescription("Measured by an orchestration."),
			metric.WithExplicitBucketBoundaries(customBuckets...))
	}
	if err != nil {
		return nil, err
	}
	m.own.byAlias[alias] = name
	return x, nil
}

// aliasOf is a name as Prometheus reads it, without what it puts behind it: names that only differ
// in that would be one.
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

// refuse reports a bad value once for each metric.
func (m *Metrics) refuse(name string, why error) {
	m.own.mu.Lock()
	defer m.own.mu.Unlock()
	if id := "value " + name; (*m.own.byName.Load())[id] == nil {
		m.own.refuse(m, id, name, why)
	}
}

// usable leaves out attributes that would spoil everything where Prometheus reads it, and cleans
// the text of the others.
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
