package client

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/rondo-run/rondo/pkg/events"
)

// w3c is how a trace travels with messages, whatever the program uses otherwise: orchestrators read
// no other form.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// TraceFrom gives the context of a command that was called within a trace: the variables
// TRACEPARENT, TRACESTATE and BAGGAGE say which.
func TraceFrom(ctx context.Context, variable func(string) string) context.Context {
	return w3c.Extract(ctx, propagation.MapCarrier{"traceparent": variable("TRACEPARENT"),
		"tracestate": variable("TRACESTATE"), "baggage": variable("BAGGAGE")})
}

// traced has a message go on with the trace and the baggage of a context, unless it brings some of
// its own.
func traced(ctx context.Context, m events.Message) events.Message {
	if m.Trace != "" {
		return m
	}
	with := propagation.MapCarrier{}
	w3c.Inject(ctx, with)
	m.Trace, m.TraceState, m.Baggage = with["traceparent"], with["tracestate"], with["baggage"]
	return m
}
