package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// warnEvery bounds how often it is logged that nothing can be sent: whoever is told for the first
// time knows what to do, and a collector may be away for hours.
const warnEvery = time.Minute

// warnings logs what goes wrong with telling, the first time at once, and then rarely. It
// implements the ErrorHandler of OpenTelemetry.
type warnings struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	next time.Time
	left int // what was not logged since
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
