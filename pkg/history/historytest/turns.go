package historytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Began is when everything begins in these tests.
var Began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Actor is an instance whose turns a test makes up. A real one gets them from package round; here
// they say whatever the test needs, and only keep to the rules that a store relies on. Each method
// gives the next turn and takes the actor there, as if the turn were committed; Back undoes the
// last.
type Actor struct {
	ID           string
	Row          round.Row
	Events       map[int64][]events.Event // by execution, as they should be in the store
	now          time.Time
	before       *Actor
	incarnations map[int64]string // of the former executions that are kept, where a test needs that
}

// NewActor makes an instance that does not exist yet.
func NewActor(id string) *Actor {
	return &Actor{ID: id, Events: make(map[int64][]events.Event), now: Began}
}

// At moves the actor's clock.
func (a *Actor) At(now time.Time) *Actor {
	a.now = now
	return a
}

// Now is the actor's clock.
func (a *Actor) Now() time.Time { return a.now }

// Clone is an actor at the same place that goes its own way from here.
func (a *Actor) Clone() *Actor {
	c := *a
	c.Events = make(map[int64][]events.Event, len(a.Events))
	for x, list := range a.Events {
		c.Events[x] = append([]events.Event(nil), list...)
	}
	return &c
}

// Back takes the last turn back, because it was not committed.
func (a *Actor) Back() { *a = *a.before }

// Option changes the event Started of a start.
type Option func(*events.Started)

// WithParent makes it a child.
func WithParent(p *Actor) Option {
	return func(s *events.Started) {
		s.Parent = &events.Parent{Instance: p.ID, Incarnation: p.Row.Incarnation, Execution: p.Row.Execution,
			Event: p.Row.LastEvent}
	}
}

// WithAttributes sets attributes.
func WithAttributes(attributes map[string]string) Option {
	return func(s *events.Started) { s.Attributes = attributes }
}

// WithName names the orchestration.
func WithName(name, version string) Option {
	return func(s *events.Started) { s.Name, s.Version = name, version }
}

// WithMessage sets the id of the message that starts it.
func WithMessage(id string) Option { return func(s *events.Started) { s.Message = id } }

// Start begins the instance, or begins it anew: a first incarnation if there was none, another one
// otherwise.
func (a *Actor) Start(options ...Option) *round.Turn {
	t := a.turn()
	started := &events.Started{Name: "orders", Version: "1.0.0", Input: codec.Payload(`{"n":1}`),
		Engine: events.Engine, Message: "start-" + a.ID + "-" + fmt.Sprint(a.Row.Execution)}
	for _, o := range options {
		o(started)
	}
	execution := a.Row.Execution + 1
	started.Incarnation = events.IncarnationOf(a.ID, started.Message, a.now.UnixMicro())
	if a.Row.Execution > 0 {
		t.ClearValues = true
		t.Former = append(t.Former, a.Row)
	}
	a.Row = round.Row{
		Execution: execution, Incarnation: started.Incarnation, Engine: started.Engine, Name: started.Name,
		Version:    started.Version,
		Parent:     started.Parent,
		Attributes: started.Attributes, Trace: started.Trace, StartMessage: started.Message, Status: round.Running,
		StartedAt: a.now, UpdatedAt: a.now,
	}
	a.say(t, started)
	return a.done(t)
}

// Call schedules an activity: what the code says in its first round.
func (a *Actor) Call(name string) *events.ActivityScheduled {
	return &events.ActivityScheduled{Name: name, Input: codec.Payload(`{"sku":"a1"}`), Attempt: 1}
}

// StartAndCall is a whole first round: it starts and schedules an activity.
func (a *Actor) StartAndCall(options ...Option) *round.Turn {
	t := a.Start(options...)
	before := a.before
	a.say(t, a.Call("charge"))
	t.Messages = append(t.Messages, events.Message{
		ID: events.MessageID(events.VerbTask, a.ID, a.ref()), Instance: a.ID,
		Content: &events.Task{Ref: a.ref(), Orchestration: a.Row.Name, Version: a.Row.Version, Activity: "charge",
			Input: codec.Payload(`{"sku":"a1"}`), Attempt: 1},
	})
	a.Row.WakeAt = a.now.Add(time.Minute)
	t.Row = a.Row
	a.before = before
	return t
}

func (a *Actor) ref() events.Ref {
	return events.Ref{Incarnation: a.Row.Incarnation, Execution: a.Row.Execution, Event: a.Row.LastEvent}
}

// Say appends facts to the current execution.
func (a *Actor) Say(facts ...events.Fact) *round.Turn {
	t := a.turn()
	for _, f := range facts {
		a.say(t, f)
	}
	return a.done(t)
}

// Note appends an event that says nothing of importance.
func (a *Actor) Note() *round.Turn {
	return a.Say(&events.EventReceived{Wait: 1, Name: "note", Data: codec.Payload(fmt.Sprint(a.Row.LastEvent))})
}

// Complete ends the instance with an output.
func (a *Actor) Complete(output string) *round.Turn {
	return a.end(round.Completed, codec.Payload(output), nil, &events.Completed{Output: codec.Payload(output)})
}

// Fail ends it with an error.
func (a *Actor) Fail(message string) *round.Turn {
	err := &failure.Error{Kind: failure.Application, Message: message}
	return a.end(round.Failed, nil, err, &events.Failed{Error: err})
}

// Terminate ends it from outside.
func (a *Actor) Terminate(reason string) *round.Turn {
	return a.end(round.Terminated, nil, &failure.Error{Kind: failure.Terminated, Message: reason},
		&events.Terminated{Reason: reason})
}

func (a *Actor) end(s round.Status, output codec.Payload, err *failure.Error, f events.Fact) *round.Turn {
	t := a.turn()
	a.say(t, f)
	a.Row.Status, a.Row.Output, a.Row.Error, a.Row.EndedAt, a.Row.WakeAt = s, output, err, a.now, time.Time{}
	return a.done(t)
}

// ContinueAsNew ends the current execution and begins the next one.
func (a *Actor) ContinueAsNew() *round.Turn {
	t := a.turn()
	a.say(t, &events.ContinuedAsNew{Name: a.Row.Name, Version: a.Row.Version, Input: codec.Payload("2")})
	former := a.Row
	former.Status, former.EndedAt, former.WakeAt, former.UpdatedAt = round.ContinuedAsNew, a.now, time.Time{}, a.now
	t.Former = append(t.Former, former)
	a.Row.Execution++
	a.Row.LastEvent, a.Row.HistoryBytes, a.Row.StartedAt = 0, 0, a.now
	a.say(t, &events.Started{
		Name: a.Row.Name, Version: a.Row.Version, Incarnation: a.Row.Incarnation, Engine: a.Row.Engine,
		Message:    a.Row.StartMessage,
		Parent:     a.Row.Parent,
		Attributes: a.Row.Attributes, Previous: former.Execution,
	})
	return a.done(t)
}

// Set sets a value, Remove removes one. Both add to a turn; an event tells of each.
func (a *Actor) Set(key, value string) *round.Turn {
	t := a.Say(&events.ValueSet{Key: key, Value: codec.Payload(value), Set: a.now})
	t.Values = append(t.Values,
		round.ValueChange{Key: key, Value: codec.Payload(value), Execution: a.Row.Execution, Set: a.now})
	return t
}

// Remove removes values.
func (a *Actor) Remove(keys ...string) *round.Turn {
	t := a.Say(&events.ValuesCleared{Keys: keys})
	for _, k := range keys {
		t.Values = append(t.Values, round.ValueChange{Key: k, Removed: true})
	}
	return t
}

// SetStatus sets the custom status; an empty one clears it.
func (a *Actor) SetStatus(status string) *round.Turn {
	t := a.turn()
	a.Row.CustomStatus = nil
	if status != "" {
		a.Row.CustomStatus = codec.Payload(status)
	}
	a.Row.CustomStatusVersion++
	a.say(t, &events.StatusSet{Status: a.Row.CustomStatus, Version: a.Row.CustomStatusVersion})
	return a.done(t)
}

// Wake sets when the instance must be looked at again.
func (a *Actor) Wake(at time.Time) *round.Turn {
	t := a.Note()
	a.Row.WakeAt = at
	t.Row = a.Row
	return t
}

// Sends adds a message to a turn.
func Sends(t *round.Turn, id, to string) *round.Turn {
	t.Messages = append(t.Messages, events.Message{ID: id, Instance: to,
		Content: &events.EventRaised{Name: "go", Data: codec.Payload(`"` + id + `"`)}})
	return t
}

func (a *Actor) turn() *round.Turn {
	a.before = a.Clone()
	return &round.Turn{Instance: a.ID, Expected: a.Row.RowVersion()}
}

func (a *Actor) say(t *round.Turn, f events.Fact) {
	e := events.Event{ID: a.Row.LastEvent + 1, At: a.now, Fact: f}
	if n := len(t.Executions); n == 0 || t.Executions[n-1].ID != a.Row.Execution {
		t.Executions = append(t.Executions, round.Execution{ID: a.Row.Execution})
	}
	x := &t.Executions[len(t.Executions)-1]
	x.Events = append(x.Events, e)
	a.Events[a.Row.Execution] = append(a.Events[a.Row.Execution], e)
	a.Row.LastEvent = e.ID
	a.Row.HistoryBytes += int64(f.Size())
	a.Row.UpdatedAt = a.now
}

func (a *Actor) done(t *round.Turn) *round.Turn {
	t.Row = a.Row
	return t
}

// Decided is a turn with its messages as the broker takes them.
func Decided(tb testing.TB, t *round.Turn) history.Decided {
	tb.Helper()
	d := history.Decided{Turn: t}
	for _, m := range t.Messages {
		w, err := events.Encode(events.DefaultPrefix, m)
		if err != nil {
			tb.Fatal(err)
		}
		d.Messages = append(d.Messages, w)
	}
	return d
}

// Batch is turns as a batch.
func Batch(tb testing.TB, turns ...*round.Turn) history.Batch {
	tb.Helper()
	var b history.Batch
	for _, t := range turns {
		b.Turns = append(b.Turns, Decided(tb, t))
	}
	return b
}

// asJSON prints a value for comparisons.
func asJSON(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Together makes one turn of turns that an actor took one after the other.
func Together(turns ...*round.Turn) *round.Turn {
	all := *turns[0]
	all.Executions, all.Values = slices.Clone(all.Executions), slices.Clone(all.Values)
	for _, t := range turns[1:] {
		for _, x := range t.Executions {
			if last := &all.Executions[len(all.Executions)-1]; last.ID == x.ID {
				last.Events = append(last.Events[:len(last.Events):len(last.Events)], x.Events...)
			} else {
				all.Executions = append(all.Executions, x)
			}
		}
		all.Row = t.Row
		all.Former = append(all.Former, t.Former...)
		all.Messages = append(all.Messages, t.Messages...)
		all.ClearValues = all.ClearValues || t.ClearValues
		for _, v := range t.Values {
			all.Values = slices.DeleteFunc(all.Values, func(w round.ValueChange) bool { return w.Key == v.Key })
			all.Values = append(all.Values, v)
		}
	}
	return &all
}

// Resume makes an actor of an instance that was loaded from a store.
func Resume(known round.Known, now time.Time) *Actor {
	a := NewActor(known.Instance).At(now)
	a.Row = known.Row
	if len(known.History) > 0 {
		a.Events[known.Row.Execution] = known.History
	}
	return a
}
