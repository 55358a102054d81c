package telemetry

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/pkg/events"
)

// ids gives spans the ids that they are meant to have, and others random ones.
type ids struct{}

type idKey struct{}

// withID has the next span that is started in a context get this id.
func withID(ctx context.Context, t events.Trace) context.Context {
	return context.WithValue(ctx, idKey{}, t)
}

// NewIDs implements the IDGenerator of the SDK, for spans that begin a trace.
func (ids) NewIDs(ctx context.Context) (of trace.TraceID, span trace.SpanID) {
	if t, ok := ctx.Value(idKey{}).(events.Trace); ok {
		return t.ID, t.Span
	}
	_, _ = rand.Read(of[:]) // it never fails
	_, _ = rand.Read(span[:])
	return of, span
}

// NewSpanID implements the IDGenerator of the SDK.
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
