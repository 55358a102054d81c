package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// Tracer exports spans. A nil one exports nothing.
type Tracer struct {
	// Provider is for other code that creates spans: libraries that activities call.
	Provider *sdktrace.TracerProvider

	tracer    trace.Tracer
	processor sdktrace.SpanProcessor
	resource  *resource.Resource
}

// Sample decides whether a trace that begins with an orchestration is exported. It is
// [round.Config.NewTrace].
func (t *Tracer) Sample(id [16]byte, orchestration string) bool {
	first := withID(context.Background(), events.Trace{ID: id, Span: [8]byte{1}})
	// only to ask the sampler; the span is never exported
	_, span := t.tracer.Start(first, spanOrchestration+orchestration, trace.WithSpanKind(trace.SpanKindConsumer))
	return span.SpanContext().IsSampled()
}

// ---- Operations that have ended.

// Over exports the operations that turns have ended. The span of an execution ends no earlier than
// the commit of its last round, which lies within it.
func (t *Tracer) Over(instance string, all []round.Over, committed time.Time) {
	for _, o := range all {
		if o.Trace.Sampled {
			if o.Kind == round.OverExecution && committed.After(o.Ended) {
				o.Ended = committed
			}
			t.over(instance, o)
		}
	}
}

func (t *Tracer) over(instance string, o round.Over) {
	s := span{place: o.Trace.At(o.Span(instance)), within: o.Trace.Span, begun: o.Begun, ended: o.Ended,
		kind: trace.SpanKindInternal}
	s.attributes = append(make([]attribute.KeyValue, 0, 10), attribute.String(attrInstance, instance))
	add := func(kv ...attribute.KeyValue) { s.attributes = append(s.attributes, kv...) }
	if o.Kind != round.OverExecution {
		add(attribute.Int64(attrEvent, o.Ref.Event))
	}
	switch o.Kind {
	case round.OverExecution:
		s.name, s.kind = spanOrchestration+o.Name, trace.SpanKindConsumer
		add(attribute.Int64(attrExecution, o.Ref.Execution), attribute.String(attrOrchestration, o.Name),
			attribute.String(attrVersion, o.Version), attribute.String(attrStatus, string(o.Status)))
		add(Attributes(o.About)...)
	case round.OverActivity:
		s.name, s.kind = spanActivity+o.Name, trace.SpanKindProducer
		add(messagingNATS, publishing, sent, attribute.String(attrActivity, o.Name),
			attribute.Int(attrAttempt, max(1, o.Attempt)))
		add(some(attrTag, o.Tag)...)
		add(some(attrWorker, o.Worker)...)
	case round.OverTimer:
		s.name = spanTimer
		add(attribute.String(attrDue, o.Due.Format(time.RFC3339Nano)))
		if !o.GivenUp {
			add(attribute.Float64(attrLateness, o.Ended.Sub(o.Due).Seconds()))
		}
	case round.OverEvent:
		s.name = spanEvent
		add(attribute.String(attrName, o.Name))
	case round.OverMailbox:
		s.name = spanMailbox
		add(attribute.String(attrName, o.Name))
	case round.OverChild:
		s.name, s.kind = spanChild+o.Name, trace.SpanKindProducer
		add(messagingNATS, publishing, sent, attribute.String(attrOrchestration, o.Name),
			attribute.String(attrChild, o.Instance))
	}
	if o.GivenUp {
		add(attribute.Bool(attrGivenUp, true))
	}
	if o.Error != nil {
		add(attribute.String(attrErrorKind, string(o.Error.Kind)),
			semconv.ErrorTypeKey.String(cmp.Or(o.Error.Type, string(o.Error.Kind))))
		s.failed = firstLine(o.Error.Message)
	}
	if !o.Link.IsZero() {
		s.links = []sdktrace.Link{{SpanContext: spanContext(o.Link)}}
	}
	t.export(s)
}

// The attributes of spans about the messages that they send or take, as in OpenTelemetry.
var (
	messagingNATS = semconv.MessagingSystemKey.String("nats")
	publishing    = semconv.MessagingOperationName("publish")
	sent          = semconv.MessagingOperationTypeSend
	processing    = semconv.MessagingOperationName("process")
	processed     = semconv.MessagingOperationTypeProcess
)

// some is an attribute, if there is a value.
func some(key, value string) []attribute.KeyValue {
	if value == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String(key, value)}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// ---- Spans of the code's own.

// Told exports the spans of the code's own that have ended in a turn.
func (t *Tracer) Emit(turn *round.Turn) {
	for _, x := range turn.Emitted {
		if x.Kind != coro.EmittedSpan {
			continue
		}
		place := round.ExecutionTrace(turn.Instance, RowOf(turn, x.Execution))
		if !place.Sampled {
			continue
		}
		ref := events.Ref{Incarnation: x.Incarnation, Execution: x.Execution, Event: x.Number}
		s := span{
			name: spanOwn + x.Name, kind: trace.SpanKindInternal, place: place.At(events.SpanOf("span", turn.Instance,
				ref)), within: place.Span, begun: x.Begun, ended: x.Ended,
			attributes: append([]attribute.KeyValue{attribute.String(attrInstance, turn.Instance)},
				Attributes(x.About)...),
		}
		if x.Error != nil {
			s.failed = firstLine(x.Error.Message)
		}
		t.export(s)
	}
}

// ---- Rounds.

// Round is a turn with the facts of its round.
type Round struct {
	Turn *round.Turn
	// Took are the messages that the round has accepted.
	Took []Taken
	// Partition is the partition of the messages.
	Partition int
	// Hydrated says that the code was in memory.
	Hydrated bool
	// Arrived is when the first of the messages arrived. The code ran from Decided to Undecided;
	// Committed is the end of the commit.
	Arrived, Decided, Undecided, Committed time.Time
	// Batch is the number of turns in the commit.
	Batch int
	// Sent is the number of messages that the round sends.
	Sent int
	// Past says that another process has committed the turn: the only times are those of its
	// events.
	Past bool
}

// Taken is a message that a round has taken.
type Taken struct {
	Trace        string
	Verb         events.Verb
	NumDelivered int
}

// Round exports a span of a round for each execution that it has appended to.
func (t *Tracer) Round(r Round) {
	for n, x := range r.Turn.Executions {
		row := RowOf(r.Turn, x.ID)
		place := round.ExecutionTrace(r.Turn.Instance, row)
		if !place.Sampled || len(x.Events) == 0 {
			continue
		}
		last := x.Events[len(x.Events)-1].ID
		t.round(r, row, x, place,
			events.SpanOf("round", r.Turn.Instance,
				events.Ref{Incarnation: row.Incarnation, Execution: x.ID, Event: last}), n == 0)
	}
}

// RowOf is the row of one of the executions of a turn.
func RowOf(t *round.Turn, execution int64) round.Row {
	for _, f := range t.Former {
		if f.Execution == execution {
			return f
		}
	}
	return t.Row
}

func (t *Tracer) round(r Round, row round.Row, x round.Execution, place events.Trace, id [8]byte, first bool) {
	begun := r.Arrived
	if at := x.Events[0].At; isStart(x) && at.After(begun) {
		// it lies within the span of the execution; the wait stands in its attributes
		begun = at
	}
	s := span{
		name: spanRound + row.Name, kind: trace.SpanKindConsumer, place: place.At(id), within: place.Span, begun: begun,
		ended: r.Committed,
		attributes: []attribute.KeyValue{
			messagingNATS, processing, processed, semconv.MessagingBatchMessageCount(len(r.Took)),
			attribute.String(attrInstance, r.Turn.Instance), attribute.Int64(attrExecution, x.ID),
			attribute.String(attrOrchestration, row.Name), attribute.Int(attrPartition, r.Partition),
			attribute.Int(attrEvents, len(x.Events)), attribute.Int64(attrHistory, x.Events[len(x.Events)-1].ID),
			attribute.Bool(attrHydrated, r.Hydrated), attribute.Int(attrBatch, r.Batch),
			attribute.Float64(attrWait, r.Decided.Sub(r.Arrived).Seconds()),
			attribute.Float64(attrDecide, r.Undecided.Sub(r.Decided).Seconds()),
			attribute.Float64(attrCommit, r.Committed.Sub(r.Undecided).Seconds()),
		},
	}
	add := func(kv ...attribute.KeyValue) { s.attributes = append(s.attributes, kv...) }
	for _, n := range []struct {
		key string
		is  int
	}{{attrReplayed, r.Turn.Replayed}, {attrSteps, len(r.Turn.Steps)}, {attrSent, r.Sent}} {
		if n.is > 0 {
			add(attribute.Int(n.key, n.is))
		}
	}
	if n := mostDelivered(r.Took); n > 1 {
		add(attribute.Int(attrDeliveries, n))
	}
	if r.Past {
		add(attribute.Bool(attrPast, true))
	}
	if f := r.Turn.Fault; f != nil {
		add(attribute.String(attrFault, string(f.Kind)))
		s.failed = firstLine(f.Message)
	}
	if first { // what caused the round has caused the executions after it, too, but one link is enough
		s.links = linksTo(r.Took)
	}
	t.export(s)
}

// isStart reports whether an execution begins with these events.
func isStart(x round.Execution) bool {
	_, is := x.Events[0].Fact.(*events.Started)
	return is
}

// mostDelivered is the highest number of deliveries of a message.
func mostDelivered(took []Taken) (n int) {
	for _, m := range took {
		n = max(n, m.NumDelivered)
	}
	return n
}

// maxLinks bounds the links of a round, as OpenTelemetry does.
const maxLinks = 128

// linksTo links to the senders of the messages.
func linksTo(took []Taken) (links []sdktrace.Link) {
	for _, m := range took {
		if from, ok := events.ParseTrace(m.Trace); ok && len(links) < maxLinks {
			links = append(links, sdktrace.Link{SpanContext: spanContext(from),
				Attributes: []attribute.KeyValue{attribute.String("rondo.verb", string(m.Verb))}})
		}
	}
	return links
}

// ---- Work outside of rounds: attempts of activities, and of steps.

// Attempt is one attempt to execute an activity, or a step.
type Attempt struct {
	// Trace, TraceState and Baggage come from the message, or for a step from the start of the
	// instance.
	Trace, TraceState, Baggage string
	Name                       string
	Step                       bool
	Repeated                   bool // a step that another process may have run already
	Instance, Orchestration    string
	Ref                        events.Ref // of a step, Event is its number
	Number                     int        // of the attempt, by the retry policy
	NumDelivered               int        // deliveries of the activity task
	Tag, Session, Worker       string
}

// Begin starts the span of an attempt. The context has its trace and baggage, so spans of the code
// belong to it, even if no traces are exported here. From is the trace context for messages about
// the attempt. The caller calls end once, with the error of the attempt.
func (t *Tracer) Begin(ctx context.Context, a Attempt) (in context.Context, from string,
	end func(failed *failure.Error)) {
	end = func(*failure.Error) {}
	ctx = a.about(ctx)
	if b, err := baggage.Parse(a.Baggage); err == nil && b.Len() > 0 {
		ctx = baggage.ContextWithBaggage(ctx, b)
	}
	within, ok := events.ParseTrace(a.Trace)
	if !ok {
		return ctx, a.Trace, end
	}
	parent := spanContext(within)
	if state, err := trace.ParseTraceState(a.TraceState); err == nil {
		parent = parent.WithTraceState(state)
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	if t == nil || !within.Sampled {
		return ctx, a.Trace, end
	}
	open := &openSpan{t: t, span: a.span(within)}
	open.place = spanContext(open.span.place).WithRemote(false).WithTraceState(parent.TraceState())
	return trace.ContextWithSpan(ctx, open), open.span.place.String(), func(failed *failure.Error) {
		if failed != nil {
			open.SetAttributes(attribute.String(attrErrorKind, string(failed.Kind)),
				semconv.ErrorTypeKey.String(cmp.Or(failed.Type, string(failed.Kind))))
			open.SetStatus(codes.Error, firstLine(failed.Message))
		}
		open.end()
	}
}

// span returns the span of an attempt.
func (a Attempt) span(within events.Trace) span {
	s := span{within: within.Span, begun: time.Now(), attributes: make([]attribute.KeyValue, 0, 12)}
	add := func(kv ...attribute.KeyValue) { s.attributes = append(s.attributes, kv...) }
	add(attribute.String(attrInstance, a.Instance), attribute.Int(attrAttempt, max(1, a.Number)),
		attribute.String(attrWorker, a.Worker))
	var id string
	switch {
	case a.Step:
		s.name, s.kind, id = spanStep+a.Name, trace.SpanKindInternal, "step/"+strconv.Itoa(a.Number)
		if a.Repeated {
			id += "/" + rand.Text() // it runs once more
		}
	default:
		s.name, s.kind, id = spanExecute+a.Name, trace.SpanKindConsumer, "execute"
		if a.NumDelivered > 1 { // a redelivered task is executed again
			id += "/" + strconv.Itoa(a.NumDelivered)
		}
		add(messagingNATS, processing, processed, attribute.String(attrActivity, a.Name),
			attribute.Int(attrDeliveries, a.NumDelivered))
		add(some(attrTag, a.Tag)...)
		add(some(attrSession, a.Session)...)
	}
	s.place = within.At(events.SpanOf(id, a.Instance, a.Ref))
	return s
}
