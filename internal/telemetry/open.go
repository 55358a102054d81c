package telemetry

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// openSpan is the span of a running attempt. Code finds it in its context, and may add to it; it
// ends with the attempt, and not before.
type openSpan struct {
	noop.Span // has what the interface may get later
	t         *Tracer
	place     trace.SpanContext

	mu     sync.Mutex
	span   span
	events []sdktrace.Event
	over   bool
}

// The limits of one span, as in OpenTelemetry.
const (
	maxAttributes = 128
	maxEvents     = 128
)

// SpanContext implements trace.Span.
func (s *openSpan) SpanContext() trace.SpanContext { return s.place }

// TracerProvider implements trace.Span, for instrumented libraries.
func (s *openSpan) TracerProvider() trace.TracerProvider { return s.t.Provider }

// IsRecording implements trace.Span.
func (s *openSpan) IsRecording() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over
}

// change calls do unless the span has ended.
func (s *openSpan) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		do()
	}
}

// SetName implements trace.Span.
func (s *openSpan) SetName(name string) { s.change(func() { s.span.name = name }) }

// SetStatus implements trace.Span.
func (s *openSpan) SetStatus(code codes.Code, why string) {
	s.change(func() {
		s.span.failed = ""
		if code == codes.Error {
			s.span.failed = why
		}
	})
}

// SetAttributes implements trace.Span: the last value of a key counts.
func (s *openSpan) SetAttributes(about ...attribute.KeyValue) {
	s.change(func() {
		for _, a := range about {
			i := slices.IndexFunc(s.span.attributes, func(b attribute.KeyValue) bool { return b.Key == a.Key })
			switch {
			case !a.Valid():
			case i >= 0:
				s.span.attributes[i] = a
			case len(s.span.attributes) < maxAttributes:
				s.span.attributes = append(s.span.attributes, a)
			}
		}
	})
}

// AddLink implements trace.Span.
func (s *openSpan) AddLink(l trace.Link) {
	s.change(func() {
		if len(s.span.links) < maxLinks && l.SpanContext.IsValid() {
			s.span.links = append(s.span.links, sdktrace.Link{SpanContext: l.SpanContext, Attributes: l.Attributes})
		}
	})
}

// AddEvent implements trace.Span.
func (s *openSpan) AddEvent(name string, options ...trace.EventOption) {
	c := trace.NewEventConfig(options...)
	s.change(func() {
		if len(s.events) < maxEvents {
			s.events = append(s.events, sdktrace.Event{Name: name, Attributes: c.Attributes(), Time: c.Timestamp()})
		}
	})
}

// RecordError implements trace.Span.
func (s *openSpan) RecordError(err error, options ...trace.EventOption) {
	if err != nil {
		about := trace.WithAttributes(semconv.ExceptionType(fmt.Sprintf("%T", err)),
			semconv.ExceptionMessage(err.Error()))
		s.AddEvent(semconv.ExceptionEventName, append(slices.Clone(options), about)...)
	}
}

// end ends the span, and exports it.
func (s *openSpan) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over, s.span.ended = true, time.Now()
	s.t.processor.OnEnd(&endedSpan{span: s.span, of: s.t.resource, events: s.events})
}
