package app

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/telemetry"
)

// logs is where a process logs to.
type logs struct {
	// level is that of what the services say.
	level *telemetry.Level
	// written is what makes lines of records.
	written slog.Handler
	// sent gets all records, too, once there is somebody to send them to.
	sent atomic.Pointer[slog.Handler]
}

// openLogs begins to log.
func (a *App) openLogs() {
	l := &logs{}
	o := &slog.HandlerOptions{Level: slog.Level(-1 << 15)} // what is of which level is decided before
	if a.config.Log.JSON {
		l.written = slog.NewJSONHandler(a.config.stderr(), o)
	} else {
		l.written = slog.NewTextHandler(a.config.stderr(), o)
	}
	a.logs = l
	l.level = telemetry.NewLevel(a.config.Log.Level, func(change string) { a.log.Info(change) })
	a.log = l.logger(l.level)
}

// logger makes a logger that shows what is of a level or above.
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

// leveled shows what is of a level or above, which may change.
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

// both writes a record, and sends it if somebody is there to get it. Loggers are made before that
// is known, so what is added to them is kept.
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
	_ = sent.Handle(ctx, r) // it is queued; what cannot be sent is told by the SDK
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

// answerLevel lets people tell and change the level over NATS. Without the right to hear the
// question the process works all the same.
func (a *App) answerLevel(b broker.RollCalls, names ...string) (stop func()) {
	stop, err := process.AnswerLevel(b, string(a.config.Command), names, a.logs.level)
	if err != nil {
		a.log.Warn("the log level cannot be changed over NATS", "error", err)
		return func() {}
	}
	return stop
}
