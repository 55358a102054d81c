package round

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// host is the execution as its code sees it.
type host struct{ *execution }

var _ coro.Host = host{}

// Record implements coro.Host: in a replay the fact must be what history has next, otherwise it
// is appended.
func (h host) Record(f events.Fact) (events.Event, []coro.Answer, bool) {
	x := h.execution
	if x.fault != nil || x.unreadable != nil {
		return events.Event{}, nil, false
	}
	if x.playback.on {
		eff, ok := x.matchNext(f)
		return x.playback.matched, eff.answers, ok
	}
	l := limits{&x.ledger, x.said, x.clock}
	if err := l.breach(f); err != nil {
		x.fault = err
		return events.Event{}, nil, false
	}
	f = x.unlessRefused(f, l.refusal(f))
	x.said++
	x.complete(f)
	e, eff := x.append(f)
	return e, eff.answers, true
}

// unlessRefused gives what a call means: the fact, or that it was refused because of a limit. That
// is an error of the call, so that the code can do something about it.
func (x *execution) unlessRefused(f events.Fact, err *failure.Error) events.Fact {
	if err == nil {
		return f
	}
	call, source := callOf(f)
	err.Source = source
	x.warn("a call was refused: " + err.Message)
	return &events.CallRefused{Call: f.Kind(), Name: call, Error: events.Bounded(err)}
}

// callOf names what a fact is about, and whose error it is if it is refused; those that open
// something know that themselves.
func callOf(f events.Fact) (name, source string) {
	switch f := f.(type) {
	case *events.ActivityScheduled:
		return f.Name, ""
	case *events.ChildStarted:
		return f.Name, ""
	case *events.EventAwaited:
		return f.Name, ""
	case *events.MailboxRead:
		return f.Mailbox, ""
	case *events.Launched:
		return f.Name, "orchestration " + quote(f.Name)
	case *events.Sent:
		return f.Name, "message to " + quote(f.Instance)
	case *events.StatusSet:
		return "", "custom status"
	case *events.ValueSet:
		name = shortKey(f.Key)
		return name, "value " + quote(name)
	default:
	}
	return "", ""
}

// shortKey is as much of a key as is written down of one that is refused.
func shortKey(key string) string {
	const most = 80
	key = strings.ToValidUTF8(key, "?")
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	return key
}

// StartStep implements coro.Host.
func (h host) StartStep(s coro.Step) {
	if !h.playback.on {
		h.turn.Steps = append(h.turn.Steps, h.step(s, false))
	}
}

// DropStep implements coro.Host.
func (h host) DropStep(number int64) {
	if !h.playback.on {
		h.turn.DroppedSteps = append(h.turn.DroppedSteps, h.stepRef(number))
	}
}

// Consumed implements coro.Host.
func (h host) Consumed(read int64) { h.ledger.mail.consumed(read) }

// Patched implements coro.Host. In a replay the marker must stand just here, otherwise the code
// was here before the change.
func (h host) Patched(id string) bool {
	if !h.playback.on {
		return true
	}
	for _, e := range h.playback.rest { // there may be others before it that the code no longer asks about
		marker, ok := e.Fact.(*events.Patched)
		if !ok || marker.ID == id {
			return ok
		}
	}
	return false
}

// WaitedAgain implements coro.Host.
func (h host) WaitedAgain(wait int64) bool {
	if len(h.playback.rest) == 0 {
		return false
	}
	switch f := h.playback.rest[0].Fact.(type) {
	case *events.EventAwaited:
		return f.Again == wait
	case *events.MailboxRead:
		return f.Again == wait
	default:
	}
	return false
}

// Warn implements coro.Host.
func (h host) Warn(text string) {
	if !h.playback.on && len(h.turn.Warnings) < maxWarnings {
		h.turn.Warnings = append(h.turn.Warnings, text)
	}
}

// Log implements coro.Host.
func (h host) Log(r slog.Record) {
	if h.playback.on {
		return
	}
	if len(h.turn.Logs) >= events.MaxTurnLogs {
		h.turn.LogsDropped++
		return
	}
	h.turn.Logs = append(h.turn.Logs, Log{Record: r, Execution: h.ledger.info.Execution})
}

// Emit implements coro.Host. Spans are for sampled traces.
func (h host) Emit(t coro.Emitted) {
	switch {
	case h.playback.on, t.Kind == coro.EmittedSpan && !h.ledger.trace.from.Sampled:
	case len(h.turn.Emitted) >= events.MaxTurnLogs:
		h.turn.LogsDropped++
	default:
		h.turn.Emitted = append(h.turn.Emitted,
			Emitted{Emitted: t, Incarnation: h.ledger.info.Incarnation, Execution: h.ledger.info.Execution})
	}
}

// Describe implements coro.Host: also in a replay, because history does not have it.
func (h host) Describe(about []slog.Attr) {
	for _, a := range about {
		a.Value = a.Value.Resolve()
		i := slices.IndexFunc(h.ledger.about, func(b slog.Attr) bool { return a.Key == b.Key })
		switch {
		case i >= 0:
			h.ledger.about[i] = a
		case len(h.ledger.about) < maxAbout:
			h.ledger.about = append(h.ledger.about, a)
		}
	}
}

// maxAbout bounds what the code says about a whole execution.
const maxAbout = 64

// Info implements coro.Host.
func (h host) Info() coro.Info { return h.ledger.info }

// Now implements coro.Host: the time of the fact from outside that the code is answering.
func (h host) Now() time.Time { return h.clock }

// Replaying implements coro.Host.
func (h host) Replaying() bool { return h.playback.on }

// HistorySize implements coro.Host.
func (h host) HistorySize() (int64, int64) { return h.ledger.tail.lastID, h.ledger.tail.bytes }

// Inherited implements coro.Host: what of the history the execution did not make itself.
func (h host) Inherited() (int64, int64) { return h.ledger.tail.baseID, h.ledger.tail.baseBytes }

// Codec implements coro.Host.
func (h host) Codec() codec.Codec { return h.config.codec() }

// Unread implements coro.Host.
func (h host) Unread(mailbox string) int { return h.ledger.mail.count(mailboxOf(mailbox)) }

// Status implements coro.Host.
func (h host) Status() codec.Payload { return h.ledger.values.status }

// Value implements coro.Host.
func (h host) Value(key string) (codec.Payload, bool) {
	v, ok := h.ledger.values.all[key]
	return v.data, ok
}

// Values implements coro.Host.
func (h host) Values() map[string]time.Time {
	set := make(map[string]time.Time, len(h.ledger.values.all))
	for k, v := range h.ledger.values.all {
		set[k] = v.set
	}
	return set
}
