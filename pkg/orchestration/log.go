package orchestration

import (
	"context"
	"log/slog"
	"slices"

	"github.com/rondo-run/rondo/internal/coro"
)

// logHandler gives log records to the round, which gives them to the service when the round is
// committed.
type logHandler struct {
	p    *coro.Program
	with []withAttrs // what WithAttrs and WithGroup have added, oldest first
}

// withAttrs is either a group that was opened or attributes that were added.
type withAttrs struct {
	group string
	attrs []slog.Attr
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return !h.p.Silent() }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var own []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		own = append(own, slog.Attr{Key: a.Key, Value: a.Value.Resolve()}) // the record is written down later
		return true
	})
	for _, w := range slices.Backward(h.with) {
		if w.group != "" {
			own = []slog.Attr{{Key: w.group, Value: slog.GroupValue(own...)}}
		} else {
			own = append(slices.Clone(w.attrs), own...)
		}
	}
	out := slog.NewRecord(h.p.Host().Now(), r.Level, r.Message, r.PC)
	out.AddAttrs(own...)
	h.p.Host().Log(out)
	return nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.adding(withAttrs{attrs: attrs})
}

func (h logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.adding(withAttrs{group: name})
}

func (h logHandler) adding(w withAttrs) slog.Handler {
	return logHandler{p: h.p, with: append(slices.Clip(h.with), w)}
}
