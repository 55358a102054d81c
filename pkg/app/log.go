package app

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// logs is where a process logs to.
type logs struct {
	// level is that of what the services say.
	level *telemetry.Level
	// written is what makes lines of records.
	written slog.Handler
	// sent gets all records, too, once they are exported.
	sent atomic.Pointer[slog.Handler]
}

// newLogs opens the log of a process.
func newLogs(c Log, to io.Writer) *logs {
	l := &logs{}
	o := &slog.HandlerOptions{Level: slog.Level(-1 << 15)} // the levels are applied before
	if c.JSON {
		l.written = slog.NewJSONHandler(to, o)
	} else {
		l.written = slog.NewTextHandler(to, o)
	}
	var log *slog.Logger
	l.level = telemetry.NewLevel(c.Level, func(change string) { log.Info(change) })
	log = l.logger(l.level)
	return l
}

// logger makes a logger that shows records from a level on.
func (l *logs) logger(level slog.Leveler) *slog.Logger {
	return slog.New(telemetry.LogHandler(leveled{both{l.written, l, nil}, level}))
}

// writer makes a logger that only writes: what says that something cannot be sent is not sent.
func (l *logs) writer() *slog.Logger { return slog.New(leveled{l.written, l.level}) }

// codeLogger is the logger for the code of orchestrations and activities.
func (l *logs) codeLogger() *slog.Logger { return l.logger(l.level.AtMost(slog.LevelInfo)) }

// workerLogger is the one logger that a worker has, for itself and for its activities: what it says
// itself begins with its name, and is shown from the level on that services have.
func (l *logs) workerLogger() *slog.Logger {
	return slog.New(telemetry.LogHandler(twoLevels{Handler: leveled{both{l.written, l, nil},
		l.level.AtMost(slog.LevelInfo)}, begin: "worker: ", level: l.level}))
}

// leveled shows records from a level on, which may change.
type leveled struct {
	slog.Handler
	level slog.Leveler
}

// Enabled implements slog.Handler.
func (h leveled) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// WithAttrs implements slog.Handler.
func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h leveled) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// twoLevels has a level of its own for records that begin in a certain way.
type twoLevels struct {
	slog.Handler
	begin string
	level slog.Leveler
}

// Handle implements slog.Handler.
func (h twoLevels) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < h.level.Level() && strings.HasPrefix(r.Message, h.begin) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h twoLevels) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h twoLevels) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// both writes a record, and exports it if an exporter runs. Loggers are made before that is known,
// so their attributes and groups are kept.
type both struct {
	slog.Handler
	logs  *logs
	added []func(slog.Handler) slog.Handler
}

// Handle implements slog.Handler.
func (h both) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	to := h.logs.sent.Load()
	if to == nil {
		return err
	}
	sent := *to
	for _, add := range h.added {
		sent = add(sent)
	}
	_ = sent.Handle(ctx, r) // it is queued; the SDK reports failures of the export
	return err
}

// WithAttrs implements slog.Handler.
func (h both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(x slog.Handler) slog.Handler { return x.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h both) WithGroup(name string) slog.Handler {
	return h.with(func(x slog.Handler) slog.Handler { return x.WithGroup(name) })
}

func (h both) with(add func(slog.Handler) slog.Handler) slog.Handler {
	return both{add(h.Handler), h.logs, append(h.added[:len(h.added):len(h.added)], add)}
}
