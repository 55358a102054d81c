package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

func start(t *testing.T, variables map[string]string) (*telemetry.Telemetry, error) {
	t.Helper()
	for k, v := range variables {
		t.Setenv(k, v)
	}
	x, err := telemetry.Start(t.Context(),
		telemetry.Service{Name: "shop", Version: "1.2.3", Instance: "a", Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = x.End(context.Background()) })
	return x, err
}

// TestWhoIsTold: without any variable, there are metrics and nothing else.
func TestWhoIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]string
		traces    bool
	}{
		"nobody":                {nil, false},
		"a collector":           {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true},
		"a collector of traces": {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, true},
		"the console":           {map[string]string{"OTEL_TRACES_EXPORTER": "console"}, true},
		"only of metrics": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_TRACES_EXPORTER": "none"}, false},
		"switched off": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_SDK_DISABLED": "true"}, false},
		"empty": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := start(t, c.variables)
			if err != nil {
				t.Fatal(err)
			}
			if open := x.Tracer != nil; open != c.traces {
				t.Errorf("traces are told: %v, want %v", open, c.traces)
			}
			counter, err := otel.Meter("test").Int64Counter("shop.parcels")
			if err != nil {
				t.Fatal(err)
			}
			counter.Add(t.Context(), 3)
			w := httptest.NewRecorder()
			x.Scrape.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			for _, line := range []string{"shop_parcels_total 3", `service_name="shop"`} {
				if !strings.Contains(w.Body.String(), line) {
					t.Errorf("%q is not in\n%s", line, w.Body)
				}
			}
		})
	}
}

func TestWrongVariables(t *testing.T) {
	for name, variables := range map[string]map[string]string{
		"no such exporter": {"OTEL_TRACES_EXPORTER": "carrier-pigeon"},
		"no such protocol": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := start(t, variables)
			if err == nil || !strings.Contains(err.Error(), "sdk-environment-variables") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestEndDoesNotOutlastItsContext ends the export to a collector that never answers. A request may
// take longer than the test waits: only the context of End can end it.
func TestEndDoesNotOutlastItsContext(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			deaf, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			x, err := start(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + deaf.Addr().String(),
				"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_EXPORTER_OTLP_TIMEOUT": "3600000"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deaf.Close() })
			_, span := otel.Tracer("test").Start(t.Context(), "parcel")
			span.End()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/10)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- x.End(ctx) }()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the collector has answered nothing, and End reports no error")
				}
			case <-time.After(5 * time.Minute):
				t.Error("End outlasts its context")
			}
		})
	}
}

// kept keeps spans.
type kept struct{ spans []sdktrace.ReadOnlySpan }

func (k *kept) ExportSpans(_ context.Context, s []sdktrace.ReadOnlySpan) error {
	k.spans = append(k.spans, s...)
	return nil
}
func (*kept) Shutdown(context.Context) error { return nil }

// TestEndedSpan: a span that is exported without having been started is as complete as others.
func TestEndedSpan(t *testing.T) {
	var k kept
	tracer := telemetry.NewTracer(sdktrace.NewSimpleSpanProcessor(&k), nil, nil)
	r := aRound()
	r.Turn.Over[0].Error = &failure.Error{Kind: failure.Application, Type: "card_declined", Message: "no\nand more"}
	tracer.Over(r.Turn.Instance, r.Turn.Over, r.Committed)
	tracer.Round(r)
	var names []string
	for _, s := range k.spans {
		names = append(names, s.Name())
		if !s.SpanContext().IsValid() || !s.SpanContext().IsSampled() || s.SpanContext().IsRemote() ||
			!s.Parent().IsValid() || s.SpanContext().TraceID() != s.Parent().TraceID() ||
			s.EndTime().Before(s.StartTime()) || s.InstrumentationScope().Name != telemetry.Scope ||
			len(s.Attributes()) == 0 ||
			s.DroppedAttributes()+s.DroppedEvents()+s.DroppedLinks()+s.ChildSpanCount()+len(s.Events()) > 0 {
			t.Errorf("%s: %+v in %+v", s.Name(), s.SpanContext(), s.Parent())
		}
	}
	if got, want := strings.Join(names, ", "), "activity charge, orchestration fulfil, round fulfil"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if status := k.spans[0].Status(); status.Description != "no" {
		t.Errorf("the failure is told as %+v", status)
	}
	if links := k.spans[2].Links(); len(links) != 1 {
		t.Errorf("the round has %d links", len(links))
	}
}

// TestCodeSaysMore: code finds the span of its attempt, and may add to it until it has ended.
func TestCodeSaysMore(t *testing.T) {
	var k kept
	tracer := telemetry.NewTracer(sdktrace.NewSimpleSpanProcessor(&k), nil, nil)
	ctx, _, end := tracer.Begin(t.Context(),
		telemetry.Attempt{Trace: within, Name: "charge", Instance: "order-7", NumDelivered: 1})
	s := trace.SpanFromContext(ctx)
	s.SetAttributes(attribute.String("bank", "slow"), attribute.String("bank", "fast"), attribute.KeyValue{})
	s.AddEvent("asked", trace.WithAttributes(attribute.Int("cents", 5)))
	s.RecordError(errors.New("no answer"))
	s.RecordError(nil)
	s.AddLink(trace.Link{SpanContext: s.SpanContext()})
	s.AddLink(trace.Link{})
	s.SetName("charge the card")
	s.SetStatus(codes.Error, "half of it")
	s.End() // it is not the code's to end
	if !s.IsRecording() || len(k.spans) > 0 || s.TracerProvider() != tracer.Provider {
		t.Fatal("it has ended before the attempt")
	}
	end(nil)
	end(nil)
	s.SetAttributes(attribute.String("bank", "gone"))
	if s.IsRecording() || len(k.spans) != 1 {
		t.Fatalf("it was told %d times", len(k.spans))
	}
	got := k.spans[0]
	var events []string
	for _, e := range got.Events() {
		events = append(events, fmt.Sprint(e.Name, e.Attributes, e.Time.IsZero()))
	}
	about := fmt.Sprint(got.Attributes())
	if got.Name() != "charge the card" || got.Status().Code != codes.Error ||
		got.Status().Description != "half of it" || len(got.Links()) != 1 || !strings.Contains(about, "fast") ||
		strings.Contains(about, "slow") ||
		strings.Contains(about, "gone") || len(events) != 2 || !strings.HasPrefix(events[0], "asked") ||
		!strings.Contains(events[1], "no answer") {
		t.Errorf("got %s %+v %v, links %v, events %q", got.Name(), got.Status(), about, got.Links(), events)
	}
}

// TestAttempt: code within an attempt is in its span, whether or not the span is exported.
func TestAttempt(t *testing.T) {
	var k kept
	tracer := telemetry.NewTracer(sdktrace.NewSimpleSpanProcessor(&k), nil, nil)
	notTold := strings.TrimSuffix(within, "01") + "00"
	ref := events.Ref{Incarnation: "aa", Execution: 1, Event: 2}
	for name, c := range map[string]struct {
		tracer     *telemetry.Tracer
		trace      string
		deliveries int
		told, ok   bool
	}{
		"told":              {tracer, within, 1, true, true},
		"handed out again":  {tracer, within, 2, true, true},
		"not sampled":       {tracer, notTold, 1, false, true},
		"nobody tells here": {nil, within, 1, false, true},
		"no trace":          {tracer, "", 1, false, false},
		"nonsense":          {tracer, "00-nonsense", 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			k.spans = nil
			ctx, from, end := c.tracer.Begin(t.Context(), telemetry.Attempt{Trace: c.trace, TraceState: "vendor=1",
				Baggage: "tenant=acme", Name: "charge", Instance: "order-7", Ref: ref, Number: 1,
				NumDelivered: c.deliveries})
			in := trace.SpanContextFromContext(ctx)
			if in.IsValid() != c.ok || baggage.FromContext(ctx).Member("tenant").Value() != "acme" || c.ok &&
				in.TraceState().Get("vendor") != "1" {
				t.Errorf("the code is in %+v", in)
			}
			_, inner := tracer.Provider.Tracer("of the activity").Start(ctx, "inner")
			inner.End()
			end(failure.From(errors.New("no")))
			if got := len(k.spans) == 2; got != c.told {
				t.Fatalf("%d spans are told", len(k.spans))
			}
			if !c.told {
				if from != c.trace {
					t.Errorf("what is said about it brings %q along", from)
				}
				return
			}
			own, inside := k.spans[1], k.spans[0]
			at, _ := events.ParseTrace(from)
			if own.SpanContext().SpanID() != trace.SpanID(at.Span) ||
				inside.Parent().SpanID() != own.SpanContext().SpanID() ||
				inside.SpanContext().SpanID() == own.SpanContext().SpanID() {
				t.Errorf("%s is %s, in which %s is %s", own.Name(), own.SpanContext().SpanID(), inside.Name(),
					inside.SpanContext().SpanID())
			}
			if first := events.SpanOf("execute", "order-7", ref); (at.Span == first) != (c.deliveries == 1) {
				t.Errorf("delivery %d is span %x", c.deliveries, at.Span)
			}
		})
	}
}
