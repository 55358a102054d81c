package telemetry

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// The keys that records have in common. The keys of single records are in docs/logs.md, with these.
const (
	logTrace         = "trace_id"
	logSpan          = "span_id"
	logInstance      = "instance"
	logExecution     = "execution"
	logOrchestration = "orchestration"
	logVersion       = "version"
	logActivity      = "activity"
	logStep          = "step"
	logAttempt       = "attempt"
)

// Logger adds the span to records, and the attempt of an activity or a step: those of the context
// that they are logged with. So a record that code logs with slog.InfoContext has them, too.
func Logger(l *slog.Logger) *slog.Logger { return slog.New(LogHandler(l.Handler())) }

// LogHandler is [Logger] for a handler. A second call changes nothing.
func LogHandler(h slog.Handler) slog.Handler {
	switch h.(type) {
	case logHandler, atHandler:
		return h
	}
	return logHandler{all: h, top: h}
}

// logHandler adds the attributes of the context, always at the top: not in the group that a logger
// has open.
type logHandler struct {
	all   slog.Handler // with everything
	top   slog.Handler // with everything before the first group
	since []added      // the rest
	named bool         // the logger itself names the instance
}

// added is either a group that was opened or attributes.
type added struct {
	group string
	attrs []slog.Attr
}

func (a added) to(h slog.Handler) slog.Handler {
	if a.group != "" {
		return h.WithGroup(a.group)
	}
	return h.WithAttrs(a.attrs)
}

// Enabled implements slog.Handler.
func (h logHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.all.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := h.attributes(ctx)
	if len(attrs) == 0 {
		return h.all.Handle(ctx, r)
	}
	if len(h.since) == 0 {
		r = r.Clone()
		r.AddAttrs(attrs...)
		return h.all.Handle(ctx, r)
	}
	in := h.top.WithAttrs(attrs)
	for _, a := range h.since {
		in = a.to(in)
	}
	return in.Handle(ctx, r)
}

func (h logHandler) attributes(ctx context.Context) (attrs []slog.Attr) {
	if !h.named {
		if about, ok := ctx.Value(aboutKey{}).([]slog.Attr); ok {
			attrs = slices.Clone(about)
		}
	}
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		attrs = append(attrs, slog.String(logTrace, s.TraceID().String()), slog.String(logSpan, s.SpanID().String()))
	}
	return attrs
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	if len(h.since) > 0 {
		return h.with(added{attrs: attrs})
	}
	h.all, h.top = h.all.WithAttrs(attrs), h.top.WithAttrs(attrs)
	h.named = h.named || slices.ContainsFunc(attrs, func(a slog.Attr) bool { return a.Key == logInstance })
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(added{group: name})
}

func (h logHandler) with(a added) slog.Handler {
	h.all, h.since = a.to(h.all), append(slices.Clip(h.since), a)
	return h
}

// ---- The subject of a record.

// aboutKey is the context key of the attributes.
type aboutKey struct{}

// about adds the attributes that records of an attempt have to the context.
func (a Attempt) about(ctx context.Context) context.Context {
	what := logActivity
	if a.Step {
		what = logStep
	}
	return context.WithValue(ctx, aboutKey{}, []slog.Attr{
		slog.String(logInstance, a.Instance), slog.Int64(logExecution, a.Ref.Execution),
		slog.String(logOrchestration, a.Orchestration),
		slog.String(what, a.Name), slog.Int(logAttempt, max(1, a.Number)),
	})
}

// LogOf returns a logger for records about an execution. They belong to the execution's span.
func LogOf(l *slog.Logger, instance string, r round.Row) *slog.Logger {
	attrs := []any{logInstance, instance}
	if r.Execution != 0 {
		attrs = append(attrs, logExecution, r.Execution)
	}
	if r.Name != "" {
		attrs = append(attrs, logOrchestration, r.Name)
	}
	if r.Version != "" {
		attrs = append(attrs, logVersion, r.Version)
	}
	return LogAt(l.With(attrs...), round.ExecutionTrace(instance, r))
}

// LogAt returns a logger whose records belong to a span, if at is valid.
func LogAt(l *slog.Logger, at events.Trace) *slog.Logger {
	if at.IsZero() {
		return l
	}
	return slog.New(atHandler{LogHandler(l.Handler()), spanContext(at)})
}

// atHandler adds a span to records, unless the context has one.
type atHandler struct {
	slog.Handler
	at trace.SpanContext
}

// Handle implements slog.Handler.
func (h atHandler) Handle(ctx context.Context, r slog.Record) error {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, h.at)
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h atHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h atHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// LogTurn writes the records that code has logged in a turn, with their executions.
func LogTurn(l *slog.Logger, t *round.Turn) {
	ctx := context.Background()
	var of *slog.Logger
	var execution int64
	for _, r := range t.Logs {
		if !l.Enabled(ctx, r.Record.Level) {
			continue
		}
		if of == nil || execution != r.Execution {
			of, execution = LogOf(l, t.Instance, RowOf(t, r.Execution)), r.Execution
		}
		_ = of.Handler().Handle(ctx, r.Record) // as log/slog does
	}
}
