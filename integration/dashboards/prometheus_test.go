package dashboards_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// This file is Prometheus: its parsers and its engine, with samples in memory. It does not use the
// rule manager, which depends on the clients of many clouds: its treatment of `for` is a few lines.

var promqlParser = parser.NewParser(parser.Options{})

// start is when all samples begin.
var start = time.Unix(1_700_000_000, 0).UTC()

// sample is one of a series. Only floats occur here.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// memory is a database of series.
type memory struct {
	series map[string]*kept
	end    time.Time
}

type kept struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newMemory() *memory { return &memory{series: make(map[string]*kept), end: start} }

func (m *memory) add(l labels.Labels, at time.Time, value float64) {
	k := m.series[l.String()]
	if k == nil {
		k = &kept{labels: l}
		m.series[l.String()] = k
	}
	k.samples = append(k.samples, sample{at.UnixMilli(), value})
	if at.After(m.end) {
		m.end = at
	}
}

// with returns the series of both.
func (m *memory) with(other *memory) *memory {
	all := newMemory()
	for _, from := range []*memory{m, other} {
		for key, k := range from.series {
			if all.series[key] != nil {
				panic(key + " is in both")
			}
			all.series[key] = k
		}
		if from.end.After(all.end) {
			all.end = from.end
		}
	}
	return all
}

// Querier implements [storage.Queryable].
func (m *memory) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints,
		matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{}
		for _, key := range slices.Sorted(maps.Keys(m.series)) {
			k := m.series[key]
			if !matches(k.labels, matchers) {
				continue
			}
			var within []chunks.Sample
			for _, s := range k.samples {
				if s.T() >= from && s.T() <= to {
					within = append(within, s)
				}
			}
			if len(within) > 0 {
				set.all = append(set.all, storage.NewListSeries(k.labels, within))
			}
		}
		return set
	}}, nil
}

func matches(l labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) })
}

// has reports whether there is a series.
func (m *memory) has(matchers []*labels.Matcher) bool {
	for _, k := range m.series {
		if matches(k.labels, matchers) {
			return true
		}
	}
	return false
}

// seriesSet is a result.
type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool         { s.at++; return s.at <= len(s.all) }
func (s *seriesSet) At() storage.Series { return s.all[s.at-1] }
func (s *seriesSet) Err() error         { return nil }

// Warnings implements [storage.SeriesSet].
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// ---- Scraping.

// scrape adds the samples of an exporter.
func (m *memory) scrape(text []byte, contentType string, at time.Time, target labels.Labels) error {
	p, err := textparse.New(text, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	n := 0
	for {
		entry, err := p.Next()
		if err != nil {
			if n == 0 {
				return fmt.Errorf("nothing is told: %w", err)
			}
			break
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		target.Range(func(t labels.Label) { b.Set(t.Name, t.Value) })
		m.add(b.Labels(), at, value)
		n++
	}
	m.add(labels.NewBuilder(target).Set("__name__", "up").Labels(), at, 1)
	return nil
}

// ---- Series that are made up.

// minute is the time between two samples of those, and between two evaluations of rules.
const minute = time.Minute

// load adds series in the notation of promtool's tests: a value each minute.
func (m *memory) load(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		l, values, err := promqlParser.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for i, v := range values {
			if !v.Omitted {
				m.add(l, start.Add(time.Duration(i)*minute), v.Value)
			}
		}
	}
}

// ---- Asking.

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: promqlParser,
		NoStepSubqueryIntervalFn: func(int64) int64 { return minute.Milliseconds() },
	})
}

// points evaluates a query over all of the time, and counts its samples, without NaN and
// infinities.
func (m *memory) points(t testing.TB, engine *promql.Engine, expr string, step time.Duration) (n int) {
	t.Helper()
	q, err := engine.NewRangeQuery(t.Context(), m, nil, expr, start, m.end, step)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return 0
	}
	defer q.Close()
	matrix, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return 0
	}
	for _, s := range matrix {
		for _, p := range s.Floats {
			if !math.IsNaN(p.F) && !math.IsInf(p.F, 0) {
				n++
			}
		}
	}
	return n
}

// firing is an alert that fires.
type firing struct {
	since  time.Time
	sample promql.Sample
}

// fires evaluates the expression of an alert again and again, and returns the series for which it
// was true for long enough without a gap.
func (m *memory) fires(t testing.TB, engine *promql.Engine, expr string, from time.Time, hold,
	every time.Duration) (all []firing) {
	t.Helper()
	type state struct {
		since time.Time
		fired bool
	}
	pending := make(map[string]*state)
	for at := from; !at.After(m.end); at = at.Add(every) {
		now := make(map[string]bool)
		for _, s := range m.ask(t, engine, expr, at) {
			key := labels.NewBuilder(s.Metric).Del("__name__").Labels().String()
			if now[key] {
				t.Errorf("%s: two results with the same labels: %s", expr, key)
			}
			now[key] = true
			p := pending[key]
			if p == nil {
				p = &state{since: at}
				pending[key] = p
			}
			if !p.fired && at.Sub(p.since) >= hold {
				p.fired = true
				all = append(all, firing{at, s})
			}
		}
		for key := range pending {
			if !now[key] {
				delete(pending, key)
			}
		}
	}
	return all
}

func (m *memory) ask(t testing.TB, engine *promql.Engine, expr string, at time.Time) promql.Vector {
	t.Helper()
	q, err := engine.NewInstantQuery(context.Background(), m, nil, expr, at)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	v, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

// selectors lists the vector selectors of a query; the default vector(0) is not one.
func selectors(t testing.TB, expr string) (all []*parser.VectorSelector) {
	t.Helper()
	parsed, err := promqlParser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			all = append(all, s)
		}
		return nil
	})
	return all
}

// metricOf finds the metric behind a name in Prometheus; "" if it is none of Rondo's.
func metricOf(series string) string {
	for metric, d := range table {
		n := name(metric)
		if series == n || d.Type == "histogram" &&
			slices.Contains([]string{"_bucket", "_sum", "_count"}, strings.TrimPrefix(series, n)) {
			return metric
		}
	}
	return ""
}
