package telemetry

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// The keys of what records have in common. What log calls name themselves is in docs/logs.md, with
// these.
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

// Logger makes records say to which span they belong, and which attempt of an activity or a step it
// is: that of the context they are logged with. So what code logs with slog.InfoContext is found by
// it, too.
func Logger(l *slog.Logger) *slog.Logger { return slog.New(LogHandler(l.Handler())) }

// LogHandler is [Logger] for a handler. It does so once, however often it is asked.
func LogHandler(h slog.Handler) slog.Handler {
	switch h.(type) {
	case logHandler, atHandler:
		return h
	}
	return logHandler{all: h, top: h}
}

// logHandler adds what the context says, always at the top: not in the group that a logger has
// open.
type logHandler struct {
	all   slog.Handler // with everything
	top   slog.Handler // with what came before the first group
	since []added      // the rest
	named bool         // the logger itself says what it is about
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

// ---- What a record is about.

// aboutKey is where a context says what it is about.
type aboutKey struct{}

// about is what records of an attempt say.
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

// LogOf gives a logger for what is said about an execution. Its records belong to the execution's
// span.
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

// LogAt gives a logger whose records belong to a place in a trace, if it is one.
func LogAt(l *slog.Logger, at events.Trace) *slog.Logger {
	if at.IsZero() {
		return l
	}
	return slog.New(atHandler{LogHandler(l.Handler()), spanContext(at)})
}

// atHandler has records belong to a span, unless the context says another one.
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

// LogTurn writes what code has logged in a turn, with the execution that it has logged it in.
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
