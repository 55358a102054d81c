package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// State is a schedule: its definition, and all that it has decided. Its methods are not safe for
// concurrent use. They count moments in milliseconds.
type State struct {
	// ID is the id of the schedule. The jitter follows from it.
	ID   string `json:"id"`
	Spec Spec   `json:"spec"`
	// Action is the start message's content. This package does not read it.
	Action json.RawMessage `json:"action,omitempty"`
	// Created is the time of the first definition, Changed that of the present one.
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	// Edition counts the definitions, from 1.
	Edition int64 `json:"edition"`
	Paused  bool  `json:"paused,omitempty"`
	// Note is the reason of the pause.
	Note string `json:"note,omitempty"`

	// Cursor is the last occurrence that was decided. Without a nominal time, all until that moment
	// are decided.
	Cursor Occurrence `json:"cursor"`
	// Started, Missed and Skipped count occurrences.
	Started int64 `json:"started,omitempty"`
	Missed  int64 `json:"missed,omitempty"`
	Skipped int64 `json:"skipped,omitempty"`
	// Limited counts the starts for [Spec.Limit].
	Limited int64 `json:"limited,omitempty"`

	// Triggers are occurrences that [State.Trigger] has added, Buffered those that wait for the end
	// of a run, Backfills the ranges that [State.Backfill] has added.
	Triggers  []Pending `json:"triggers,omitempty"`
	Buffered  []Pending `json:"buffered,omitempty"`
	Backfills []Range   `json:"backfills,omitempty"`
	// Since is when the present wait for the end of a run began, Polled when its status was read.
	Since  time.Time `json:"since,omitzero"`
	Polled time.Time `json:"polled,omitzero"`

	// Runs are the last runs, and all that may still run, in the order of their starts.
	Runs []Run `json:"runs,omitempty"`
}

// Pending is an occurrence that is due and not decided, or waits for the end of a run.
type Pending struct {
	Occurrence
	Reason  Reason  `json:"reason"`
	Overlap Overlap `json:"overlap"`
}

// Range is a part of the past whose occurrences are started.
type Range struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Overlap Overlap   `json:"overlap"`
	// Cursor is the last occurrence that was decided.
	Cursor Occurrence `json:"cursor"`
}

// Run is an instance that the schedule has started.
type Run struct {
	Nominal  string `json:"nominal"`
	Instance string `json:"instance"`
	// Message is the id of the start message.
	Message string `json:"message"`
	// At is the moment of the occurrence, StartedAt when the schedule started the run.
	At        time.Time `json:"at"`
	StartedAt time.Time `json:"started_at"`
	// Seen says that the instance was found, Ended that it has ended, with its status.
	Seen   bool   `json:"seen,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Status string `json:"status,omitempty"`
	Reason Reason `json:"reason"`

	// Looked is the last time that the instance was looked for, Sent the last time that its start
	// message was sent.
	Looked time.Time `json:"looked,omitzero"`
	Sent   time.Time `json:"sent"`
	// Stop says how an overlapping occurrence ends the run, Told that the effect was returned.
	Stop Stop `json:"stop,omitempty"`
	Told bool `json:"told,omitempty"`
}

// Reason is why an occurrence is started.
type Reason string

// The reasons.
const (
	Scheduled Reason = "schedule"
	// CaughtUp is an occurrence that was found more than a minute late.
	CaughtUp   Reason = "catch-up"
	Triggered  Reason = "trigger"
	Backfilled Reason = "backfill"
)

// Stop is how a run is ended.
type Stop string

// The ways.
const (
	ByCancel    Stop = "cancel"
	ByTerminate Stop = "terminate"
)

// The bounds of a state.
const (
	maxBuffered  = 1_000
	maxTriggers  = 100
	maxRanges    = 10
	maxBackfill  = 10_000
	maxRunning   = 100
	keptRuns     = 20
	maxCounted   = 10_000
	stepSize     = 100
	backfillSize = 10
)

// New returns a schedule that counts from now.
func New(id string, now time.Time, spec Spec, action json.RawMessage, paused bool) *State {
	s := &State{ID: id}
	s.Put(now, spec, action, paused)
	return s
}

// Decode reads a state that [State.Encode] has written.
func Decode(data []byte) (*State, error) {
	s := new(State)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("decode schedule: %w", err)
	}
	return s, nil
}

// Encode writes the state as JSON. It leaves the action as it is, but for spaces.
func (s *State) Encode() ([]byte, error) {
	data, err := encode(s)
	if err != nil {
		return nil, fmt.Errorf("encode schedule %q: %w", s.ID, err)
	}
	return data, nil
}

// encode writes JSON without the escapes for HTML, which would change the action.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// moment is a time as a state keeps it.
func moment(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Put defines the schedule, and reports whether that changes it. The caller has checked the
// specification. With another specification, occurrences count from now. What the former one has
// buffered is skipped, and its backfills end; runs and triggers stay, and starts keep counting for
// the limit. With another action alone, nothing that is due is dropped.
func (s *State) Put(now time.Time, spec Spec, action json.RawMessage, paused bool) (changed bool) {
	now = moment(now)
	spec = spec.normal()
	respecified := s.Edition == 0 || !s.Spec.equal(spec)
	action = compact(action)
	redefined := respecified || !bytes.Equal(compact(s.Action), action)
	if redefined {
		s.Spec, s.Action, s.Changed = spec, action, now
		s.Edition++
	}
	if s.Edition == 1 && redefined {
		s.Created = now
	}
	if respecified {
		s.Cursor = Occurrence{At: later(now, s.Cursor.At)}
		s.Backfills = nil
		s.Buffered = slices.DeleteFunc(s.Buffered, func(b Pending) bool {
			drop := b.Reason != Triggered
			if drop {
				s.Skipped++
			}
			return drop
		})
	}
	if paused {
		return s.pause(s.Note) || redefined
	}
	return s.Resume(now) || redefined
}

// compact returns JSON without spaces.
func compact(action json.RawMessage) json.RawMessage {
	if data, err := encode(action); err == nil && len(action) > 0 {
		return data
	}
	return action
}

// Pause keeps the schedule from starting runs, and reports whether that changes it. The caller can
// still trigger it and backfill it.
func (s *State) Pause(note string) (changed bool) { return s.pause(note) }

func (s *State) pause(note string) bool {
	changed := !s.Paused || s.Note != note
	s.Paused, s.Note = true, note
	return changed
}

// Resume ends a pause, and reports whether that changes the schedule. Occurrences count from now:
// those that came due during the pause are not started. Those that were buffered before are.
func (s *State) Resume(now time.Time) (changed bool) {
	if !s.Paused {
		return false
	}
	s.Paused, s.Note = false, ""
	s.Cursor = Occurrence{At: later(moment(now), s.Cursor.At)}
	return true
}

// Trigger adds an occurrence of its own, at this moment, and returns it. It is subject to the
// overlap policy; "" is the one of the schedule. It counts neither for the limit nor for the pause.
func (s *State) Trigger(now time.Time, overlap Overlap) (Occurrence, error) {
	if err := overlap.Check(); err != nil {
		return Occurrence{}, fmt.Errorf("trigger schedule %q: %w", s.ID, err)
	}
	if len(s.Triggers) >= maxTriggers {
		return Occurrence{}, fmt.Errorf("trigger schedule %q: %w", s.ID, events.Limit("triggers to decide",
			int64(len(s.Triggers)+1), maxTriggers, "try again in a second"))
	}
	if overlap == "" {
		overlap = s.Spec.normal().Overlap
	}
	at := moment(now)
	for s.named(at.Format(triggerForm)) {
		at = at.Add(time.Millisecond)
	}
	o := Occurrence{Nominal: at.Format(triggerForm), At: at}
	s.Triggers = append(s.Triggers, Pending{o, Triggered, overlap})
	return o, nil
}

// named tells whether an occurrence of a name is pending or in the runs.
func (s *State) named(nominal string) bool {
	is := func(p Pending) bool { return p.Nominal == nominal }
	return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Nominal == nominal }) ||
		slices.ContainsFunc(s.Buffered, is) || slices.ContainsFunc(s.Triggers, is)
}

// Backfill starts the occurrences of a part of the past, from one moment until before another, one
// after the other. "" as overlap is [BufferAll]. With [BufferAll] and [Allow], occurrences wait and
// are not skipped. Those that the schedule has not decided itself are left to it.
func (s *State) Backfill(now, from, to time.Time, overlap Overlap) error {
	if err := s.backfill(moment(now), bare(from), bare(to), overlap); err != nil {
		return fmt.Errorf("backfill schedule %q: %w", s.ID, err)
	}
	return nil
}

func (s *State) backfill(now, from, to time.Time, overlap Overlap) error {
	if err := overlap.Check(); err != nil {
		return err
	}
	p, err := s.Spec.compile(s.Created)
	switch {
	case err != nil:
		return err
	case from.IsZero() || !from.Before(to):
		return fmt.Errorf("from %s is not before to %s; write an earlier from or a later to",
			from.Format(time.RFC3339), to.Format(time.RFC3339))
	case to.After(now.Add(time.Millisecond)): // a moment counts in whole milliseconds
		return fmt.Errorf("to %s is in the future; write %s or earlier", to.Format(time.RFC3339),
			now.Format(time.RFC3339))
	case len(s.Backfills) >= maxRanges:
		return events.Limit("backfills of a schedule", maxRanges+1, maxRanges, "wait until one has ended")
	}
	if overlap == "" {
		overlap = BufferAll
	}
	r := Range{From: from, To: to, Overlap: overlap, Cursor: Occurrence{At: from.Add(-1)}}
	n := int64(0)
	for o, ok := p.next(r.Cursor); ok && o.At.Before(to); o, ok = p.next(o) {
		if n++; n > maxBackfill {
			return events.Limit("occurrences of a backfill", n, maxBackfill, "choose a shorter range")
		}
	}
	switch {
	case n == 0:
		return errors.New("no occurrence is in the range; choose another from and to")
	case len(s.Backfills) == 0 && len(s.waiting()) == 0:
		s.Since, s.Polled = now, now
	}
	s.Backfills = append(s.Backfills, r)
	return nil
}

// Upcoming returns the next occurrences after now, n at most. There are none while the schedule is
// paused, or after its limit.
func (s *State) Upcoming(now time.Time, n int) []Occurrence {
	p, err := s.Spec.compile(s.Created)
	if err != nil || s.Paused {
		return nil
	}
	if s.Spec.Limit > 0 {
		n = min(n, s.left())
	}
	o := s.Cursor
	if now := (Occurrence{At: moment(now)}); now.covers(o) {
		o = now
	}
	var all []Occurrence
	for len(all) < n {
		var ok bool
		if o, ok = p.next(o); !ok {
			break
		}
		all = append(all, o)
	}
	return all
}

// Finished tells whether the schedule will never start a run again, unless it is changed.
func (s *State) Finished() bool {
	if len(s.Triggers)+len(s.Buffered)+len(s.Backfills) > 0 ||
		slices.ContainsFunc(s.Runs, func(r Run) bool { return !r.Seen && !r.Ended }) {
		return false
	}
	if s.Spec.Limit > 0 && s.left() == 0 {
		return true
	}
	p, err := s.Spec.compile(s.Created)
	if err != nil {
		return false
	}
	_, more := p.next(s.Cursor)
	return !more
}

// left is how many starts the limit leaves. Buffered occurrences count as started.
func (s *State) left() int {
	n := int64(s.Spec.Limit) - s.Limited
	for _, b := range s.Buffered {
		if b.Reason.limited() {
			n--
		}
	}
	return int(max(0, n))
}

// limited tells whether a start counts for the limit, and waits for the end of a pause.
func (r Reason) limited() bool { return r == Scheduled || r == CaughtUp }

// active tells whether the schedule decides occurrences.
func (s *State) active() bool { return !s.Paused && (s.Spec.Limit == 0 || s.left() > 0) }

// waiting are the indexes of the buffered occurrences that only wait for the end of a run.
func (s *State) waiting() (all []int) {
	for i, b := range s.Buffered {
		if !s.Paused || !b.Reason.limited() {
			all = append(all, i)
		}
	}
	return all
}

// running counts the runs that have not ended.
func (s *State) running() (n int) {
	for _, r := range s.Runs {
		if !r.Ended {
			n++
		}
	}
	return n
}

// due returns when an occurrence starts: at its moment, or after a delay that follows from the ids.
func (s *State) due(o Occurrence) time.Time {
	return o.At.Add(delay(s.ID, o.Nominal, time.Duration(s.Spec.Jitter)))
}

// delay spreads starts evenly from 0 until before most.
func delay(id, nominal string, most time.Duration) time.Duration {
	if most < time.Millisecond {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id + "\x00" + nominal)) // a hash takes everything
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // similar names have similar hashes: mix the bits
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return time.Duration(x%uint64(most/time.Millisecond)) * time.Millisecond
}

// message is the id of a start message. A backfill may start an instance again that has ended, so
// that its message is another one.
func (s *State) message(nominal string, reason Reason) string {
	id := events.ScheduleIDs + events.EncodeToken(s.ID) + "/" + strconv.FormatInt(s.Edition, 10) + "/" + nominal
	if reason == Backfilled {
		id += "/" + strconv.FormatInt(s.Started+1, 10)
	}
	return id
}
