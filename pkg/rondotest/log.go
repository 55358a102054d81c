package rondotest

import (
	"bytes"
	"context"
	"log/slog"
	"time"
)

// logger writes records of activities, steps and orchestrations into the log of the test, with the
// virtual time.
func logger(t T, now func() time.Time) *slog.Logger {
	return slog.New(timed{slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug}), now})
}

type testLog struct{ t T }

// Write logs one record.
func (l testLog) Write(line []byte) (int, error) {
	l.t.Helper()
	l.t.Logf("%s", bytes.TrimSuffix(line, []byte("\n")))
	return len(line), nil
}

// timed gives records the virtual time.
type timed struct {
	slog.Handler
	now func() time.Time
}

// Handle implements slog.Handler.
func (h timed) Handle(ctx context.Context, r slog.Record) error {
	r.Time = h.now()
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h timed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return timed{h.Handler.WithAttrs(attrs), h.now}
}

// WithGroup implements slog.Handler.
func (h timed) WithGroup(name string) slog.Handler { return timed{h.Handler.WithGroup(name), h.now} }
