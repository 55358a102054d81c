package worker

import (
	"log/slog"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
)

// log gives the logger for what is said about an attempt: its records belong to the attempt's span
// once it has one, and before that to that of whoever asked for the work.
func (a *attempt) log() *slog.Logger {
	var of []any
	if a.m.Instance != "" { // it could be read
		of = append(of, "instance", a.m.Instance)
	}
	if k := a.work; k != nil {
		of = append(of, "execution", k.Ref.Execution, "orchestration", k.Orchestration)
	}
	of = append(of, "activity", a.q.name.Activity)
	if k := a.work; k != nil {
		of = append(of, "attempt", k.Attempt)
	}
	a.mu.Lock()
	from := a.from
	a.mu.Unlock()
	if from == "" {
		from = a.m.Trace
	}
	at, _ := events.ParseTrace(from)
	return telemetry.LogAt(a.w.log.With(of...), at)
}
