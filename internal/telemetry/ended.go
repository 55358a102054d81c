package telemetry

import (
	"context"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/pkg/events"
)

// Most spans are exported when they have ended, and were sampled long before. They go to the
// processor without being started, which takes a fourth of the time.

// span is a span that has ended.
type span struct {
	name         string
	kind         trace.SpanKind
	place        events.Trace
	within       [8]byte
	begun, ended time.Time
	attributes   []attribute.KeyValue
	links        []sdktrace.Link
	failed       string // the error, if any
}

// tell exports a span that has ended.
func (t *Tracer) export(s span) {
	if t.processor != nil {
		t.processor.OnEnd(&endedSpan{span: s, of: t.resource})
	}
}

// endedSpan is a span in the form that exporters take. The interface is embedded because it has a
// private method; all the other methods are here.
type endedSpan struct {
	sdktrace.ReadOnlySpan
	span
	of     *resource.Resource
	events []sdktrace.Event
}

// scope names this package in the exported spans.
var scope = instrumentation.Scope{Name: Scope}

func (s *endedSpan) Name() string                                { return s.name }
func (s *endedSpan) SpanKind() trace.SpanKind                    { return s.kind }
func (s *endedSpan) StartTime() time.Time                        { return s.begun }
func (s *endedSpan) EndTime() time.Time                          { return s.ended }
func (s *endedSpan) Attributes() []attribute.KeyValue            { return s.attributes }
func (s *endedSpan) Links() []sdktrace.Link                      { return s.links }
func (s *endedSpan) Events() []sdktrace.Event                    { return s.events }
func (s *endedSpan) InstrumentationScope() instrumentation.Scope { return scope }
func (s *endedSpan) Resource() *resource.Resource                { return s.of }
func (s *endedSpan) DroppedAttributes() int                      { return 0 }
func (s *endedSpan) DroppedLinks() int                           { return 0 }
func (s *endedSpan) DroppedEvents() int                          { return 0 }
func (s *endedSpan) ChildSpanCount() int                         { return 0 } // others tell of its children

// InstrumentationLibrary is for old exporters.
func (s *endedSpan) InstrumentationLibrary() instrumentation.Scope { return scope }

func (s *endedSpan) SpanContext() trace.SpanContext { return spanContext(s.place).WithRemote(false) }

func (s *endedSpan) Parent() trace.SpanContext {
	if s.within == ([8]byte{}) {
		return trace.SpanContext{}
	}
	return spanContext(s.place.At(s.within))
}

func (s *endedSpan) Status() sdktrace.Status {
	if s.failed == "" {
		return sdktrace.Status{}
	}
	return sdktrace.Status{Code: codes.Error, Description: s.failed}
}

// NewTracer makes a tracer whose spans go to a processor. The resource describes the process. The
// sampler decides about traces that begin here; nil is the sampler of the environment.
func NewTracer(p sdktrace.SpanProcessor, of *resource.Resource, sampler sdktrace.Sampler) *Tracer {
	options := []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(p), sdktrace.WithIDGenerator(ids{})}
	if of != nil {
		options = append(options, sdktrace.WithResource(of))
	}
	if sampler != nil {
		options = append(options, sdktrace.WithSampler(sampler))
	}
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracer{Provider: provider, tracer: provider.Tracer(Scope), processor: p, resource: of}
}

// Unsent is the time that spans wait in this process before they are sent, from the variables of
// OpenTelemetry.
func (t *Tracer) Unsent() time.Duration {
	if ms, err := strconv.Atoi(os.Getenv("OTEL_BSP_SCHEDULE_DELAY")); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return sdktrace.DefaultScheduleDelay * time.Millisecond
}

// End sends the remaining spans, and ends.
func (t *Tracer) End(ctx context.Context) error { return t.Provider.Shutdown(ctx) }
