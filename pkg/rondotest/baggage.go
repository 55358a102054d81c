package rondotest

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/rondo-run/rondo/pkg/events"
)

// withBaggage has a message carry the baggage of the context in which it is sent, as a client does.
func withBaggage(ctx context.Context, m events.Message) events.Message {
	if m.Baggage == "" {
		carrier := propagation.MapCarrier{}
		propagation.Baggage{}.Inject(ctx, carrier)
		m.Baggage = carrier[events.HeaderBaggage]
	}
	return m
}

// baggageOf is the context in which an activity or a step runs.
func baggageOf(baggage string) context.Context {
	return propagation.Baggage{}.Extract(context.Background(), propagation.MapCarrier{events.HeaderBaggage: baggage})
}
