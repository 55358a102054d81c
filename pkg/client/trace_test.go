package client_test

import (
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestTraceOfTheCaller: an instance belongs to the trace in which it was started, and has its
// baggage.
func TestTraceOfTheCaller(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(quick)
	tenant, err := baggage.NewMember("tenant", "acme")
	must(t, err)
	b, err := baggage.New(tenant)
	must(t, err)
	state, err := trace.ParseTraceState("vendor=1")
	must(t, err)
	within := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled, TraceState: state})
	ctx := baggage.ContextWithBaggage(trace.ContextWithSpanContext(soon(t), within), b)
	for id, opts := range map[string][]orchestration.StartOption{"x": nil,
		"decided": {orchestration.RejectExisting()}} {
		_, err = echo.Run(ctx, c, "a", append(opts, orchestration.ID(id))...)
		must(t, err)
		all, err := client.Collect(c.Instances().Events(soon(t), id, 1, 0))
		must(t, err)
		started := all[0].Fact.(*events.Started)
		if want := "00-01000000000000000000000000000000-0200000000000000-01"; started.Trace != want ||
			started.TraceState != "vendor=1" || started.Baggage != "tenant=acme" {
			t.Errorf("%s was started with trace %q, state %q, baggage %q", id, started.Trace, started.TraceState,
				started.Baggage)
		}
	}
}
