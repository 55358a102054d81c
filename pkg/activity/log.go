package activity

import (
	"context"
	"log/slog"
)

// Logger gives a logger that says which activity of which instance it is, or which inline step, and
// has its records belong to the span of this attempt.
func Logger(ctx context.Context) *slog.Logger {
	e := environment(ctx)
	l := e.Logger
	if l == nil {
		l = slog.Default()
	}
	what := "activity"
	if e.Step {
		what = "step"
	}
	l = l.With("instance", e.Info.Instance, "execution", e.Info.Execution, "orchestration", e.Info.Orchestration, what,
		e.Info.Activity, "attempt", e.Info.Attempt)
	return slog.New(logHandler{l.Handler(), ctx})
}

// logHandler passes the context of the attempt on where a call has another one, or none: handlers
// find the span there.
type logHandler struct {
	slog.Handler
	of context.Context // the logger is made of it
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if own := h.of.Value(environmentKey{}); own != nil && own != ctx.Value(environmentKey{}) {
		ctx = h.of
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
