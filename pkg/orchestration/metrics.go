package orchestration

import (
	"log/slog"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Metrics gives the metrics that the code of the orchestration records.
func (ctx *Context) Metrics() Metrics { return Metrics{ctx.p} }

// Metrics records metrics of the author's own, made by [Context.Metrics]. Each call counts once,
// however often the engine replays the code. The orchestrator exports the metrics under the names
// that the code gives. Attributes become labels: use few, with few values each, and never ids.
type Metrics struct{ p *coro.Program }

// Count adds n to a counter.
func (m Metrics) Count(name string, n float64, about ...slog.Attr) {
	measure(m.p, coro.EmittedCount, name, n, about)
}

// Measure adds a value to a histogram.
func (m Metrics) Measure(name string, value float64, about ...slog.Attr) {
	measure(m.p, coro.EmittedValue, name, value, about)
}

// MeasureSince adds the seconds from begun until now to a histogram.
func (m Metrics) MeasureSince(name string, begun time.Time, about ...slog.Attr) {
	m.Measure(name, m.p.Host().Now().Sub(begun).Seconds(), about...)
}

func measure(p *coro.Program, kind coro.EmittedKind, name string, value float64, about []slog.Attr) {
	must(p, events.CheckText("name of a metric", name))
	p.Host().Emit(coro.Emitted{Kind: kind, Name: name, Value: value, About: slices.Clone(about)})
}
