package orchestrator

import (
	"log/slog"
	"strings"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// of gives the logger for what is said about an instance.
func (l *loop) of(e *entry) *slog.Logger { return telemetry.LogOf(l.o.log, e.id, e.known.row()) }

// about is what a message that was not taken is about.
func about(d broker.Delivery) []any {
	about := []any{"subject", d.Subject}
	if to, err := events.DecodeToken(d.Subject[strings.LastIndexByte(d.Subject, '.')+1:]); err == nil &&
		events.CheckInstance(to) == nil {
		about = append(about, "instance", to)
	}
	return about
}

// placeOf is the place in a trace that a message names; none if it names none.
func placeOf(d broker.Delivery) events.Trace {
	if v := d.Header[events.HeaderTrace]; len(v) > 0 {
		t, _ := events.ParseTrace(v[0])
		return t
	}
	return events.Trace{}
}

// log writes what the code has logged, and what an operator should know.
func (l *loop) log(t *round.Turn) {
	telemetry.LogTurn(l.o.config.CodeLogger, t)
	if t.LogsDropped == 0 && len(t.Warnings) == 0 && t.Fault == nil {
		return
	}
	log := telemetry.LogOf(l.o.log, t.Instance, t.Row)
	if t.LogsDropped > 0 {
		log.Warn("an orchestration logs too much in one round", "dropped", t.LogsDropped)
	}
	for _, w := range t.Warnings {
		log.Warn(w)
	}
	if t.Fault != nil {
		log.Error("an instance was stopped by the engine", "status", t.Row.Status, "kind", t.Fault.Kind, "error",
			l.o.fault(t.Fault))
	}
}

// fault is what is logged of why an instance was stopped. The text is the engine's own, or that of
// a panic, or of what could not be read: then it may be or have the data of users.
func (o *Orchestrator) fault(e *events.Error) string {
	switch e.Kind {
	case events.Nondeterminism, events.Runaway, events.Deadlock, events.LimitExceeded, events.Unregistered,
		events.Poison:
		return e.Error()
	}
	return o.text(e.Error())
}

// detail is what is logged of why a message was not taken. Most of it is made of names and numbers;
// what a decoder says has parts of what it could not decode.
func (o *Orchestrator) detail(reason, detail string) string {
	switch r := round.Reason(reason); r {
	case round.CannotRead, round.TriedTooOften, reasonMalformed, reasonUnstorable:
		return o.text(detail)
	}
	return detail
}

// text is what is logged of a text that may have the data of users in it.
func (o *Orchestrator) text(s string) string {
	if o.config.LogPayloads || s == "" {
		return s
	}
	return events.Digest(s)
}

// Why messages are dead-lettered before a round has seen them, or after it.
const (
	reasonMalformed  = "malformed"
	reasonUnstorable = "unstorable"
)
