package otlp_test

import (
	"context"
	"fmt"
	"testing"
)

// sampled runs small orders that only the services trace, with the sampler of the variables, and
// returns the spans that have arrived.
func sampled(t *testing.T, many int, env ...string) []span {
	t.Helper()
	c := startCollector(t)
	s := newSystem(t, ordersProgram(t), c,
		append(append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.endpoint("http/protobuf")), env...)...)
	orchestrator, worker := s.run()
	var ids []string
	for n := range many {
		ids = append(ids, fmt.Sprintf("order-%d", n))
		s.say(t.Context(), "rondo.start.fulfil."+ids[n], chair)
	}
	s.completed(ids...)
	worker.end()
	orchestrator.end()
	return c.received()
}

func TestNothingIsSampled(t *testing.T) {
	t.Parallel()
	if spans := sampled(t, 20, "OTEL_TRACES_SAMPLER=always_off"); len(spans) > 0 {
		t.Errorf("there are spans: %s", counts(spans))
	}
}

// TestSomeAreSampled runs enough orders to distinguish a half from other shares.
func TestSomeAreSampled(t *testing.T) {
	t.Parallel()
	const many = 200
	spans := sampled(t, many, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.5")
	for _, p := range problems(spans) {
		t.Error(p)
	}
	all := traces(spans)
	if n := len(all); n < many*3/10 || n > many*7/10 { // the odds of that are below one in ten million
		t.Errorf("%d of %d orders were traced, want about half of them", n, many)
	}
	for _, id := range all {
		if got := treeOf(spans, id).outline(false); got != chairOutline {
			t.Errorf("an order was:\n%s\nwant:\n%s", got, chairOutline)
		}
	}
	t.Logf("%d of %d orders were traced", len(all), many)
}

const chairOutline = `orchestration fulfil
  activity reserve
    execute reserve
  activity charge
    execute charge
  activity ship
    execute ship
`

// TestTheClientDecides has services with a sampler for all traces follow the decision of a client.
func TestTheClientDecides(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	s := newSystem(t, ordersProgram(t), c, append(fast, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.endpoint("http/protobuf"))...)
	orchestrator, worker := s.run()
	unsampled := s.web.request(t.Context(), "POST /orders", func(ctx context.Context) {
		s.say(unsample(ctx), "rondo.start.fulfil.unseen", chair)
	})
	seen := s.web.request(t.Context(), "POST /orders", func(ctx context.Context) {
		s.say(ctx, "rondo.start.fulfil.seen", chair)
	})
	s.completed("unseen", "seen")
	worker.end()
	orchestrator.end()
	s.web.end(t)
	spans := c.received()
	for _, p := range problems(spans) {
		t.Error(p)
	}
	if n := len(traceOf(spans, unsampled.TraceID().String())); n != 1 {
		t.Errorf("an order that its client does not trace has %d spans, want that of the client alone", n)
	}
	if n := len(traceOf(spans, seen.TraceID().String())); n < 10 {
		t.Errorf("the order that its client traces has %d spans", n)
	}
}
