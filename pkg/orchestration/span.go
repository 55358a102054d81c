package orchestration

import (
	"log/slog"
	"slices"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Span is a part of an orchestration that shows in its trace. Make it with [Context.Span], and end
// it; one that is not ended does not show. It may go on over waits, restarts and other machines.
type Span struct {
	p       *coro.Program
	emitted coro.Emitted
	ended   bool
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
	must(ctx.p, events.CheckText("name of a span", name))
	return &Span{p: ctx.p, emitted: coro.Emitted{Kind: coro.EmittedSpan, Name: name, About: slices.Clone(about),
		Number: ctx.p.NewSpan(), Begun: ctx.Now()}}
}

// Set adds attributes.
func (s *Span) Set(about ...slog.Attr) { s.emitted.About = append(s.emitted.About, about...) }

// Fail says why what the span is about has failed; nil says nothing.
func (s *Span) Fail(err error) {
	if err != nil {
		s.emitted.Error = events.Bounded(failure.From(err))
	}
}

// End ends it. Only the first end counts.
func (s *Span) End() {
	if s.ended {
		return
	}
	s.ended = true
	s.emitted.Ended = s.p.Host().Now()
	s.p.Host().Emit(s.emitted)
}

// SetSpanAttributes adds attributes to the span of the whole execution, for traces. Those of the
// same key replace each other. The attributes by which clients find an instance are others: a start
// gives them with [Attributes], and [Context.Attribute] reads them.
func (ctx *Context) SetSpanAttributes(about ...slog.Attr) { ctx.p.Host().Describe(about) }
