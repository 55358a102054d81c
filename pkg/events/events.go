// Package events defines the events in the history of an orchestration, the messages between the
// services, and the formats of both. It imports the standard library only and does no I/O.
//
// # Two kinds of things
//
// An [Event] is remembered: it is one row of an instance's history, numbered from 1 within one
// execution and never changed afterwards. Its content is a [Fact].
//
// A [Message] travels: it is one message on a subject, with a [Content]. A message
// that changes something becomes an event; a message that changes nothing is forgotten.
//
//	message in            event(s) in history                     message out
//	──────────            ───────────────────                     ───────────
//	Start            ──►  Started, ActivityScheduled         ──►  Work
//	TaskDone         ──►  ActivityCompleted, TimerCreated    ──►  TimerDue (delayed)
//	TimerDue         ──►  TimerFired, Completed              ──►  ChildDone (to the parent, if there is one)
//
// # Two kinds of facts
//
// Some facts come from outside (a start, a completion, a timer that fired, a message):
// [FromOutside] tells. All others are said by the orchestration's code in answer to them. History
// alternates: one fact from outside, then everything the code said because of it, then the next.
// That is why a replay needs no marks of where a batch began or ended.
//
// # Ids
//
// The id of an event is its place in the history of its execution. A fact that opens something (an
// activity, a timer, a child, a wait) is answered by at most one later fact that carries the
// opener's id. Every message has an id made from what it means, so that the same message sent twice
// is the same message (see [Message]).
package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/x/jsonw"
)

// Engine is the version of the rules by which this engine reads and writes history. An execution is
// pinned to the engine that started it: an older engine must not read what a newer one wrote. It
// rises when a history written by this engine could be misread by the one before.
const Engine = 1

// Event is one thing that has happened: histories are lists of them.
type Event struct {
	ID   int64     // its place in the execution: 1, 2, 3, …
	At   time.Time // when it was decided, UTC, whole microseconds, never before the event before it
	Fact Fact      // what happened
}

// Fact is what an event says. The implementations are the pointer types of this package; there are
// no others.
type Fact interface {
	Kind() Kind
	// Size is the number of bytes of user data the fact carries, for the size limits.
	Size() int
	check() error
}

// Instant cuts a time to what history can hold: UTC, whole microseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// wireEvent is the JSON form of an event.
type wireEvent struct {
	ID   int64           `json:"id"`
	At   time.Time       `json:"at"`
	Kind Kind            `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// EncodeEvent writes an event as JSON.
func EncodeEvent(e Event) ([]byte, error) {
	b, err := AppendEvent(nil, e)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// AppendEvent appends the bytes of [EncodeEvent]. After an error, the bytes behind b are undefined.
func AppendEvent(b []byte, e Event) ([]byte, error) {
	if err := checkEvent(e); err != nil {
		return b, err
	}
	kind := e.Fact.Kind()
	b = slices.Grow(b, e.Fact.Size()+eventRoom)
	b = strconv.AppendInt(append(b, wireID...), e.ID, 10)
	b = Instant(e.At).AppendFormat(append(b, wireAt...), time.RFC3339Nano)
	b = append(append(b, wireKind...), kind...)
	b, err := appendFact(append(b, wireData...), e.Fact)
	if err != nil {
		return b, fmt.Errorf("event %d (%s): %w", e.ID, kind, err)
	}
	return append(b, '}'), nil
}

// eventRoom is what an event takes at most, as a rule, beside its fact's size.
const eventRoom = 256

// The punctuation of an event as EncodeEvent writes it.
const (
	wireID   = `{"id":`
	wireAt   = `,"at":"`
	wireKind = `","kind":"`
	wireData = `","data":`
)

// takeApart finds the parts of an event where EncodeEvent puts them. It reports false for any other
// form of the same JSON.
func takeApart(data []byte) (w wireEvent, ok bool) {
	rest, okStart := bytes.CutPrefix(data, []byte(wireID))
	id, rest, okID := bytes.Cut(rest, []byte(wireAt))
	at, rest, okAt := bytes.Cut(rest, []byte(wireKind))
	kind, fact, okKind := bytes.Cut(rest, []byte(wireData))
	fact, okEnd := bytes.CutSuffix(fact, []byte("}"))
	if !okStart || !okID || !okAt || !okKind || !okEnd || !isNumber(string(id)) {
		return w, false
	}
	var errID, errAt error
	w.ID, errID = strconv.ParseInt(string(id), 10, 64)
	w.At, errAt = time.Parse(time.RFC3339Nano, string(at))
	w.Kind, w.Data = Kind(kind), fact
	return w, errID == nil && errAt == nil
}

// DecodeEvent reads an event. Whatever it does not understand completely is an error: an unknown
// kind or field means that a newer engine wrote the event, and guessing would change what happened.
func DecodeEvent(data []byte) (Event, error) {
	if w, ok := takeApart(data); ok {
		if e, err := w.event(); err == nil {
			return e, nil
		}
	}
	var w wireEvent
	if err := jsonw.UnmarshalStrict(data, &w); err != nil {
		return Event{}, fmt.Errorf("unreadable event %d (kind %q): %w", w.ID, w.Kind, err)
	}
	return w.event()
}

// event reads the fact and checks that it all makes sense.
func (w wireEvent) event() (Event, error) {
	fact, ok := newFact(w.Kind)
	if !ok {
		return Event{}, fmt.Errorf("unreadable event %d: unknown kind %q (written by a newer version?)", w.ID, w.Kind)
	}
	if err := jsonw.UnmarshalStrict(w.Data, fact); err != nil {
		return Event{}, fmt.Errorf("unreadable event %d (%s): %w", w.ID, w.Kind, err)
	}
	e := Event{ID: w.ID, At: Instant(w.At), Fact: fact}
	return e, checkEvent(e)
}

func checkEvent(e Event) error {
	switch {
	case e.Fact == nil:
		return fmt.Errorf("event %d: no fact", e.ID)
	case e.ID < 1:
		return fmt.Errorf("event %d (%s): ids start at 1", e.ID, e.Fact.Kind())
	case e.At.IsZero() || e.At.UTC().Year() < 1 || e.At.UTC().Year() > 9999:
		return fmt.Errorf("event %d (%s): no usable time", e.ID, e.Fact.Kind())
	}
	if err := e.Fact.check(); err != nil {
		return fmt.Errorf("event %d (%s): %w", e.ID, e.Fact.Kind(), err)
	}
	return nil
}
