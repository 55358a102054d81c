package orchestration

import (
	"log/slog"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Span is a part of an orchestration that shows in its trace. Make it with [Context.Span], and end
// it; one that is not ended does not show. It may go on over waits, restarts and other machines.
type Span struct {
	p     *coro.Program
	told  coro.Told
	ended bool
}

// Span begins a span in the trace of the execution. It is told once, when it has ended, however
// often the code is replayed.
//
//	packing := ctx.Span("packing", slog.Int("parcels", len(parcels)))
//	defer packing.End()
//
// Give the same name to the same thing: what differs from instance to instance belongs into the
// attributes.
func (ctx *Context) Span(name string, about ...slog.Attr) *Span {
	ctx.must(events.CheckText("name of a span", name))
	return &Span{p: ctx.p, told: coro.Told{Kind: coro.ToldSpan, Name: name, About: slices.Clone(about),
		Number: ctx.p.NewSpan(), Begun: ctx.Now()}}
}

// Set adds attributes.
func (s *Span) Set(about ...slog.Attr) { s.told.About = append(s.told.About, about...) }

// Fail says why what the span is about has failed; nil says nothing.
func (s *Span) Fail(err error) {
	if err != nil {
		s.told.Error = events.AsError(err).Bounded()
	}
}

// End ends it. Only the first end counts.
func (s *Span) End() {
	if s.ended {
		return
	}
	s.ended = true
	s.told.Ended = s.p.Host().Now()
	s.p.Tell(s.told)
}

// SetAttributes adds attributes to the span of the whole execution. Those of the same key replace
// each other.
func (ctx *Context) SetAttributes(about ...slog.Attr) { ctx.p.Describe(about) }

// Count adds to a counter of the author's own: once, however often the code is replayed. It shows
// among the metrics of the orchestrator, under this name. Attributes are its labels: use few, of
// few values each, and never ids.
func (ctx *Context) Count(name string, n float64, about ...slog.Attr) {
	ctx.measure(coro.ToldCount, name, n, about)
}

// Measure adds a value to a histogram of the author's own, as Count does to a counter.
func (ctx *Context) Measure(name string, value float64, about ...slog.Attr) {
	ctx.measure(coro.ToldValue, name, value, about)
}

// MeasureSince measures in seconds how long something has taken.
func (ctx *Context) MeasureSince(name string, begun time.Time, about ...slog.Attr) {
	ctx.Measure(name, ctx.Now().Sub(begun).Seconds(), about...)
}

func (ctx *Context) measure(kind coro.ToldKind, name string, value float64, about []slog.Attr) {
	ctx.must(events.CheckText("name of a metric", name))
	ctx.p.Tell(coro.Told{Kind: kind, Name: name, Value: value, About: slices.Clone(about)})
}
