package telemetry

import (
	"context"
	"crypto/rand"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/pkg/events"
)

// NewTracerProvider makes a provider whose spans have the ids that they are meant to have; those of others get random ones.
func NewTracerProvider(options ...sdktrace.TracerProviderOption) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(append(options, sdktrace.WithIDGenerator(ids{}))...)
}

// ids gives spans their ids.
type ids struct{}

type idKey struct{}

// withID has the next span that is started in a context get this id.
func withID(ctx context.Context, t events.Trace) context.Context {
	return context.WithValue(ctx, idKey{}, t)
}

// NewIDs implements [sdktrace.IDGenerator], for spans that begin a trace.
func (ids) NewIDs(ctx context.Context) (of trace.TraceID, span trace.SpanID) {
	if t, ok := ctx.Value(idKey{}).(events.Trace); ok {
		return t.ID, t.Span
	}
	_, _ = rand.Read(of[:]) // it never fails
	_, _ = rand.Read(span[:])
	return of, span
}

// NewSpanID implements [sdktrace.IDGenerator].
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (span trace.SpanID) {
	if t, ok := ctx.Value(idKey{}).(events.Trace); ok {
		return t.Span
	}
	_, _ = rand.Read(span[:])
	return span
}

// spanContext is a place in a trace as OpenTelemetry has it.
func spanContext(t events.Trace) trace.SpanContext {
	c := trace.SpanContextConfig{TraceID: t.ID, SpanID: t.Span, Remote: true}
	if t.Sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

// place is the other way round.
func place(c trace.SpanContext) events.Trace {
	return events.Trace{ID: c.TraceID(), Span: c.SpanID(), Sampled: c.IsSampled()}
}
