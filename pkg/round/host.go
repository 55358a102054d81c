package round

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// host is the instance as its code sees it.
type host struct{ *Instance }

var _ coro.Host = host{}

// Record implements coro.Host: in a replay the fact must be what history has next, otherwise it
// is appended.
func (h host) Record(f events.Fact) (events.Event, []coro.Answer, bool) {
	in := h.Instance
	if in.fault != nil || in.unreadable != nil {
		return events.Event{}, nil, false
	}
	if in.replaying {
		eff, ok := in.matchNext(f)
		return in.matched, eff.answers, ok
	}
	if err := in.breach(f); err != nil {
		in.fault = err
		return events.Event{}, nil, false
	}
	f = in.unlessRefused(f)
	in.said++
	in.complete(f)
	e, eff := in.append(f)
	return e, eff.answers, true
}

// complete fills in what only the instance knows.
func (in *Instance) complete(f events.Fact) {
	switch f := f.(type) {
	case *events.ChildStarted:
		if f.Instance == "" {
			f.Instance = events.ChildID(in.id, in.ledger.info.Execution, in.ledger.lastID+1)
		}
	case *events.Launched:
		if f.Instance == "" {
			f.Instance = events.ChildID(in.id, in.ledger.info.Execution, in.ledger.lastID+1)
		}
	case *events.QueueRead:
		f.Message = in.ledger.oldest(f.Queue)
	case *events.StatusSet:
		f.Version = in.ledger.customVersion + 1
	case *events.ValueSet:
		f.Set = in.now
	}
}

// breach tells which limit ends the execution: those after which nothing more can be written down,
// or for which no call could give an error.
func (in *Instance) breach(f events.Fact) *events.Error {
	if in.said >= events.MaxTurnEvents {
		return events.Limit("things said by the code without waiting", int64(in.said)+1, events.MaxTurnEvents,
			"wait for some of them before starting more, or is there an endless loop?")
	}
	if err := in.overHistory(); err != nil {
		return err
	}
	switch f := f.(type) {
	case *events.Patched:
		return notText("id of a patch", f.ID)
	case *events.ValueSet:
		if len(f.Key) <= events.MaxValueKey { // a longer one is refused
			return notText("key of a value", f.Key)
		}
	}
	return nil
}

// unlessRefused gives what a call means: the fact, or that it was refused because of a limit. That
// is an error of the call, so that the code can do something about it.
func (in *Instance) unlessRefused(f events.Fact) events.Fact {
	err := in.refusal(f)
	if err == nil {
		return f
	}
	call, source := callOf(f)
	err.Source = source
	in.warn("a call was refused: " + err.Message)
	return &events.CallRefused{Call: f.Kind(), Name: call, Error: err.Bounded()}
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
	case *events.QueueRead:
		return f.Queue, ""
	case *events.Launched:
		return f.Name, "orchestration " + quote(f.Name)
	case *events.Sent:
		return f.Name, "message to " + quote(f.Instance)
	case *events.StatusSet:
		return "", "custom status"
	case *events.ValueSet:
		name = shortKey(f.Key)
		return name, "value " + quote(name)
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

// refusal tells which limit a call would break.
func (in *Instance) refusal(f events.Fact) *events.Error {
	switch f := f.(type) {
	case *events.ActivityScheduled:
		return either(in.overOpen(), events.CheckPayload("input of activity "+quote(f.Name), f.Input))
	case *events.ChildStarted:
		return either(in.overOpen(), events.CheckPayload("input of orchestration "+quote(f.Name), f.Input))
	case *events.TimerCreated:
		if d := f.FireAt.Sub(in.clock); d > events.MaxDelay {
			return events.Limit("delay of a timer (hours)", int64(d/time.Hour), int64(events.MaxDelay/time.Hour),
				"check its unit; for no time limit leave the timer out")
		}
		return in.overOpen()
	case *events.EventAwaited, *events.QueueRead:
		return in.overOpen()
	case *events.Launched:
		return events.CheckPayload("input of orchestration "+quote(f.Name), f.Input)
	case *events.Sent:
		return events.CheckPayload("message for "+string(f.To)+" "+quote(f.Name), f.Data)
	case *events.StatusSet:
		if n := len(f.Status); n > events.MaxStatus {
			return events.Limit("custom status (bytes)", int64(n), events.MaxStatus, "keep it to what people look at")
		}
	case *events.ValueSet:
		return in.refusalOfValue(f)
	}
	return nil
}

func (in *Instance) refusalOfValue(f *events.ValueSet) *events.Error {
	if n := len(f.Key); n > events.MaxValueKey {
		return events.Limit("key of a value (bytes)", int64(n), events.MaxValueKey, "use a shorter key")
	}
	if n := len(f.Value); n > events.MaxValue {
		return events.Limit("value of key "+quote(f.Key)+" (bytes)", int64(n), events.MaxValue,
			"keep the data in a store and a reference to it here")
	}
	if _, exists := in.ledger.values[f.Key]; !exists && len(in.ledger.values) >= events.MaxValues {
		return events.Limit("values of an instance", int64(len(in.ledger.values))+1, events.MaxValues,
			"clear what is no longer needed (ctx.PruneValues does), or use several instances")
	}
	return nil
}

// notText refuses what would come back from history as something else.
func notText(what, s string) *events.Error {
	if err := events.CheckText(what, s); err != nil {
		return &events.Error{Kind: events.Application, Type: "invalid_call", Final: true, Message: err.Error()}
	}
	return nil
}

func (in *Instance) overOpen() *events.Error {
	if n := in.ledger.open.Len(); n >= events.MaxOpen {
		return events.Limit("activities, timers, children and waits going on at once", int64(n)+1, events.MaxOpen,
			"start them in portions, or split the work over children")
	}
	return nil
}

func either(a, b *events.Error) *events.Error {
	if a != nil {
		return a
	}
	return b
}

// StartStep implements coro.Host.
func (h host) StartStep(s coro.Step) {
	if !h.replaying {
		h.turn.Steps = append(h.turn.Steps, h.step(s, false))
	}
}

// step is what is to be run of an inline step.
func (in *Instance) step(s coro.Step, repeated bool) Step {
	l := &in.ledger
	return Step{StepRef: in.stepRef(s.Number), Step: s, Trace: in.traceOf(OverExecution, l.ref(1)),
		TraceState: l.besides().state, Baggage: l.besides().baggage, Repeated: repeated}
}

// DropStep implements coro.Host.
func (h host) DropStep(number int64) {
	if !h.replaying {
		h.turn.DroppedSteps = append(h.turn.DroppedSteps, h.stepRef(number))
	}
}

// Consumed implements coro.Host.
func (h host) Consumed(read int64) { h.ledger.consumed(read) }

// Patched implements coro.Host. In a replay the marker must stand just here, otherwise the code
// was here before the change.
func (h host) Patched(id string) bool {
	if !h.replaying {
		return true
	}
	for _, e := range h.rest { // there may be others before it that the code no longer asks about
		marker, ok := e.Fact.(*events.Patched)
		if !ok || marker.ID == id {
			return ok
		}
	}
	return false
}

// WaitedAgain implements coro.Host.
func (h host) WaitedAgain(wait int64) bool {
	if len(h.rest) == 0 {
		return false
	}
	switch f := h.rest[0].Fact.(type) {
	case *events.EventAwaited:
		return f.Again == wait
	case *events.QueueRead:
		return f.Again == wait
	}
	return false
}

// Warn implements coro.Host.
func (h host) Warn(text string) {
	if !h.replaying && len(h.turn.Warnings) < maxWarnings {
		h.turn.Warnings = append(h.turn.Warnings, text)
	}
}

// Log implements coro.Host.
func (h host) Log(r slog.Record) {
	if h.replaying {
		return
	}
	if len(h.turn.Logs) >= events.MaxTurnLogs {
		h.turn.LogsDropped++
		return
	}
	h.turn.Logs = append(h.turn.Logs, Log{Record: r, Execution: h.ledger.info.Execution})
}

// Tell implements coro.Host. Spans are for those who follow the trace.
func (h host) Tell(t coro.Told) {
	switch {
	case h.replaying, t.Kind == coro.ToldSpan && !h.ledger.from.Sampled:
	case len(h.turn.Told) >= events.MaxTurnLogs:
		h.turn.LogsDropped++
	default:
		h.turn.Told = append(h.turn.Told,
			Told{Told: t, Incarnation: h.ledger.info.Incarnation, Execution: h.ledger.info.Execution})
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
func (h host) Replaying() bool { return h.replaying }

// HistorySize implements coro.Host.
func (h host) HistorySize() (int64, int64) { return h.ledger.lastID, h.ledger.bytes }

// Inherited implements coro.Host: what of the history the execution did not make itself.
func (h host) Inherited() (int64, int64) { return h.ledger.baseID, h.ledger.baseBytes }

// Codec implements coro.Host.
func (h host) Codec() events.Codec { return h.config.codec() }

func (c *Config) codec() events.Codec {
	if c.Codec == nil {
		return events.JSON{}
	}
	return c.Codec
}

// Unread implements coro.Host.
func (h host) Unread(queue string) int {
	if q := h.ledger.queues[queue]; q != nil {
		return len(q.letters)
	}
	return 0
}

// Status implements coro.Host.
func (h host) Status() events.Payload { return h.ledger.custom }

// Value implements coro.Host.
func (h host) Value(key string) (events.Payload, bool) {
	v, ok := h.ledger.values[key]
	return v.data, ok
}

// Values implements coro.Host.
func (h host) Values() map[string]time.Time {
	set := make(map[string]time.Time, len(h.ledger.values))
	for k, v := range h.ledger.values {
		set[k] = v.set
	}
	return set
}
