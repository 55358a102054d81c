package orchestrator

import (
	"log/slog"
	"strings"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// about returns the log attributes that name a message: its subject, and its instance if known.
func about(d broker.Delivery) []any {
	about := []any{"subject", d.Subject}
	if to, err := events.DecodeToken(d.Subject[strings.LastIndexByte(d.Subject, '.')+1:]); err == nil &&
		events.CheckInstance(to) == nil {
		about = append(about, "instance", to)
	}
	return about
}

// placeOf returns the trace context of a message; zero if it has none.
func placeOf(d broker.Delivery) events.Trace {
	if v := d.Header[events.HeaderTrace]; len(v) > 0 {
		t, _ := events.ParseTrace(v[0])
		return t
	}
	return events.Trace{}
}

// turnLog writes what turns log.
type turnLog struct {
	code, service *slog.Logger
	texts         texts
}

// write writes the logs of the code, and warnings and faults for the operator.
func (l *turnLog) write(t *round.Turn) {
	telemetry.LogTurn(l.code, t)
	if t.LogsDropped == 0 && len(t.Warnings) == 0 && t.Fault == nil {
		return
	}
	log := telemetry.LogOf(l.service, t.Instance, t.Row)
	if t.LogsDropped > 0 {
		log.Warn("an orchestration logs too much in one round", "dropped", t.LogsDropped)
	}
	for _, w := range t.Warnings {
		log.Warn(w)
	}
	if t.Fault != nil {
		log.Error("instance failed or halted by the orchestrator; see rondo show",
			"status", t.Row.Status, "kind", t.Fault.Kind, "error", l.texts.fault(t.Fault))
	}
}

// texts returns the loggable forms of texts that may have users' data.
type texts struct{ payloads bool } // logs may have payloads

// fault returns the loggable text of a fault. The engine's own texts are logged as they are. Other
// texts, such as those of panics and decoding errors, may have users' data.
func (x texts) fault(e *failure.Error) string {
	switch e.Kind {
	case failure.Nondeterminism, failure.Runaway, failure.Deadlock, failure.LimitExceeded, failure.Unregistered,
		failure.Poison:
		return e.Error()
	default:
	}
	return x.text(e.Error())
}

// detail returns the loggable text of why a message was not taken. Most of these texts have only
// names and numbers; a decoding error has parts of the data.
func (x texts) detail(reason, detail string) string {
	switch r := round.Reason(reason); r {
	case round.CannotRead, round.TriedTooOften, reasonMalformed, reasonUnstorable:
		return x.text(detail)
	default:
	}
	return detail
}

// text returns s, which may have users' data, or its digest unless logs may have payloads.
func (x texts) text(s string) string {
	if x.payloads || s == "" {
		return s
	}
	return events.Digest(s)
}
