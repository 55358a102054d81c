package telemetry

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// histogram measures. There are two dozen measurements for each orchestration, and the SDK takes
// ten times as long for each as it takes to count it in its bucket. So if metrics are only scraped,
// this package measures, and the exporter collects. If they are also sent, the SDK measures: it
// knows the temporality and the kind of buckets that the operator may have configured.
type histogram struct {
	sdk metric.Float64Histogram // nil if this package measures

	described Described
	points    sync.Map // of *point by *series
}

// point has the measurements with the same labels.
type point struct {
	buckets []atomic.Uint64 // one for each bound, and one above all bounds
	sum     atomic.Uint64   // of the bits of a float64
}

func (p *point) add(bucket int, v float64) {
	p.buckets[bucket].Add(1)
	for {
		before := p.sum.Load()
		if p.sum.CompareAndSwap(before, math.Float64bits(math.Float64frombits(before)+v)) {
			return
		}
	}
}

// record measures a value.
func (h *histogram) record(v float64, s *series) {
	if h.sdk != nil {
		h.sdk.Record(background, v, s.records...)
		return
	}
	if s.passing {
		s = overflow
	}
	p, ok := h.points.Load(s)
	if !ok {
		p, _ = h.points.LoadOrStore(s, &point{buckets: make([]atomic.Uint64, len(h.described.Buckets)+1)})
	}
	bucket, _ := slices.BinarySearch(h.described.Buckets, v) // the bound of a bucket belongs to it
	p.(*point).add(bucket, v)
}

// histograms are those that this package measures. They are cumulative, like everything that
// Prometheus reads.
type histograms struct {
	since time.Time
	all   []*histogram // complete before the first export
}

// Produce implements [sdkmetric.Producer].
func (h *histograms) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	out := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: Scope}}
	now := time.Now()
	for _, one := range h.all {
		data := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		one.points.Range(func(of, what any) bool {
			p := what.(*point)
			d := metricdata.HistogramDataPoint[float64]{Attributes: of.(*series).set, StartTime: h.since, Time: now,
				Bounds: one.described.Buckets, BucketCounts: make([]uint64, len(p.buckets))}
			for i := range p.buckets {
				d.BucketCounts[i] = p.buckets[i].Load()
				d.Count += d.BucketCounts[i]
			}
			d.Sum = math.Float64frombits(p.sum.Load())
			data.DataPoints = append(data.DataPoints, d)
			return true
		})
		if len(data.DataPoints) > 0 {
			out.Metrics = append(out.Metrics, metricdata.Metrics{Name: one.described.Name,
				Description: one.described.Help, Unit: one.described.Unit, Data: data})
		}
	}
	return []metricdata.ScopeMetrics{out}, nil
}

var _ sdkmetric.Producer = (*histograms)(nil)
