package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// warnEvery bounds the warnings about a failing export: the first one is enough for an operator,
// and a collector may be away for hours.
const warnEvery = time.Minute

// warnings logs errors of the export, the first one at once, and then rarely. It implements the
// ErrorHandler of OpenTelemetry.
type warnings struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	next time.Time
	left int // errors that were not logged since
}

func newWarnings(log *slog.Logger) *warnings { return &warnings{log: log, now: time.Now} }

// Handle takes one more error.
func (w *warnings) Handle(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Before(w.next) {
		w.left++
		return
	}
	w.log.Warn("telemetry could not be sent; warnings of this are dropped for a minute", "error", err,
		"dropped", w.left)
	w.next, w.left = now.Add(warnEvery), 0
}
