package round

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
)

// matchNext checks that what the code says is what history has next, and takes that event.
func (in *Instance) matchNext(said events.Fact) (effects, bool) {
	for len(in.rest) > 0 {
		e := in.rest[0]
		difference := differs(e.Fact, said)
		if difference == "" {
			_, eff := in.next()
			in.matched = e
			in.noteChange(e, said)
			return eff, in.unreadable == nil
		}
		if _, ok := e.Fact.(*events.Patched); !ok {
			in.misfitAt(e, said)
			return effects{}, false
		}
		in.next() // a marker that the code no longer asks about
	}
	if !in.openEnd {
		in.misfitAt(events.Event{ID: in.ledger.lastID + 1}, said)
	}
	return effects{}, false
}

// differs says in what way two facts are not the same step of the code; empty if they are. It looks
// at what kind of thing is done, and to what, not at the data that goes with it: data may change
// with the code, and what was recorded stands.
func differs(recorded, said events.Fact) string {
	if r, ok := recorded.(*events.CallRefused); ok {
		return differsRefused(r, said)
	}
	if recorded.Kind() != said.Kind() {
		return "kind"
	}
	same := true
	switch r := recorded.(type) {
	case *events.ActivityScheduled:
		s := said.(*events.ActivityScheduled)
		same = r.Name == s.Name && r.Tag == s.Tag && r.Session == s.Session && r.Attempt == s.Attempt &&
			r.First == s.First
	case *events.EventAwaited:
		s := said.(*events.EventAwaited)
		same = r.Name == s.Name && r.Again == s.Again
	case *events.QueueRead:
		s := said.(*events.QueueRead)
		same = r.Queue == s.Queue && r.Again == s.Again
	case *events.ChildStarted:
		s := said.(*events.ChildStarted)
		same = r.Name == s.Name && (s.Instance == "" || r.Instance == s.Instance)
	case *events.Launched:
		s := said.(*events.Launched)
		same = r.Name == s.Name && (s.Instance == "" || r.Instance == s.Instance)
	case *events.Sent:
		s := said.(*events.Sent)
		same = r.Instance == s.Instance && r.To == s.To && r.Name == s.Name
	case *events.Dropped:
		s := said.(*events.Dropped)
		same = slices.Equal(r.Schedules, s.Schedules) && slices.Equal(r.Steps, s.Steps)
	case *events.ValueSet:
		same = r.Key == said.(*events.ValueSet).Key
	case *events.ValuesCleared:
		same = slices.Equal(r.Keys, said.(*events.ValuesCleared).Keys)
	case *events.Patched:
		same = r.ID == said.(*events.Patched).ID
	case *events.ContinuedAsNew:
		same = r.Name == said.(*events.ContinuedAsNew).Name
	}
	if !same {
		return "name"
	}
	return ""
}

// differsRefused is differs for a call that was refused.
func differsRefused(recorded *events.CallRefused, said events.Fact) string {
	if recorded.Call != said.Kind() {
		return "kind"
	}
	if name, _ := callOf(said); recorded.Name != name {
		return "name"
	}
	return ""
}

// noteChange warns when the code does the same thing as before with other data. That is allowed,
// because code may change, but it can also be a sign of a clock or a random number where none
// should be.
func (in *Instance) noteChange(e events.Event, said events.Fact) {
	before, now := data(e.Fact), data(said)
	if bytes.Equal(before, now) || !json.Valid(before) || !json.Valid(now) {
		return // what is not JSON may be encrypted, and differ each time
	}
	show := events.Digest[events.Payload] // warnings are logged, and data is not
	if in.config.ShowPayloads {
		show = short
	}
	in.warn(fmt.Sprintf("event %d: %s was recorded with %s, the code now gives %s; what was recorded stands",
		e.ID, Describe(e.Fact), show(before), show(now)))
}

// warn tells the operator something.
func (in *Instance) warn(text string) {
	if len(in.turn.Warnings) < maxWarnings {
		in.turn.Warnings = append(in.turn.Warnings, text)
	}
}

// maxWarnings bounds the warnings of a turn; the first ones tell enough.
const maxWarnings = 20

// data is the user's data in a fact of the code's.
func data(f events.Fact) []byte {
	switch f := f.(type) {
	case *events.ActivityScheduled:
		return f.Input
	case *events.ChildStarted:
		return f.Input
	case *events.Launched:
		return f.Input
	case *events.Sent:
		return f.Data
	case *events.StatusSet:
		return f.Status
	case *events.ValueSet:
		return f.Value
	case *events.Completed:
		return f.Output
	case *events.ContinuedAsNew:
		return f.Input
	}
	return nil
}

func short(p events.Payload) string {
	s := p.String()
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}

// misfitAt notes that the code and its history part at an event: history has it, the code did
// something else (or nothing).
func (in *Instance) misfitAt(e events.Event, said events.Fact) {
	expected, got := "nothing: the code was waiting here", "nothing: it waits"
	if e.Fact != nil {
		expected = Describe(e.Fact)
	}
	if said != nil {
		got = Describe(said)
	}
	in.fault = &events.Error{
		Kind: events.Nondeterminism, Final: true, Event: e.ID, Expected: expected, Got: got,
		Message: fmt.Sprintf("the code of %s %s does not fit the history of instance %s at event %d:\n"+
			"  history has  %s\n  the code did %s\n"+
			"If the code was changed: put the change behind ctx.Patched(\"…\"), or register it as a new version and "+
			"keep the old one until its instances have ended.\n"+
			"If it was not: it reads a clock, a random number, a map's order or something outside; use ctx.Now, "+
			"ctx.Rand, sorted keys, a step or an activity.",
			in.ledger.info.Name, in.ledger.info.Version, quote(in.id), e.ID, expected, got),
	}
}

// misfit halts (or fails) an instance whose code does not fit its history.
func (in *Instance) misfit() {
	fault := in.fault
	in.fault = nil
	in.turn.Fault = fault
	in.turn.Steps, in.turn.DroppedSteps = nil, nil
	in.Evict()
	switch {
	case in.config.FailNondeterminism:
		in.append(&events.Failed{Error: fault.Bounded()})
	case in.ledger.halt == nil:
		in.append(&events.Suspended{Error: fault.Bounded()})
	}
}

// Describe says what a fact is, for people.
func Describe(f events.Fact) string {
	switch f := f.(type) {
	case *events.Started:
		return fmt.Sprintf("started %s %s", f.Name, f.Version)
	case *events.ActivityScheduled:
		s := "activity " + quote(f.Name)
		if f.Tag != "" {
			s += " with tag " + quote(f.Tag)
		}
		if f.Session != "" {
			s += " on session " + quote(f.Session)
		}
		if f.Attempt > 1 {
			s += ", attempt " + strconv.Itoa(f.Attempt)
		}
		return s
	case *events.TimerCreated:
		return "a timer"
	case *events.EventAwaited:
		return "a wait for event " + quote(f.Name)
	case *events.QueueRead:
		return "a read of queue " + quote(f.Queue)
	case *events.ChildStarted:
		return "child orchestration " + quote(f.Name) + " as " + quote(orElse(f.Instance, "(generated id)"))
	case *events.Launched:
		return "detached orchestration " + quote(f.Name) + " as " + quote(orElse(f.Instance, "(generated id)"))
	case *events.Sent:
		return fmt.Sprintf("a message to %s %q of instance %q", f.To, f.Name, f.Instance)
	case *events.Dropped:
		return "no longer waiting for " + listed(f)
	case *events.StatusSet:
		return "a custom status"
	case *events.ValueSet:
		return "value " + quote(f.Key) + " set"
	case *events.ValuesCleared:
		return fmt.Sprintf("values %q cleared", f.Keys)
	case *events.Patched:
		return "patch marker " + quote(f.ID)
	case *events.CallRefused:
		return fmt.Sprintf("a call that was refused (%s %q)", f.Call, f.Name)
	case *events.Completed:
		return "the orchestration completed"
	case *events.Failed:
		// and not the text, which is the user's, and no difference
		return "the orchestration failed with " + kindOf(f.Error)
	case *events.Cancelled:
		return "the orchestration ended as cancelled"
	case *events.ContinuedAsNew:
		return "continue as new with " + quote(f.Name)
	case *events.StepCompleted:
		return fmt.Sprintf("the result of inline step %d, %q", f.Step, f.Name)
	case *events.StepFailed:
		return fmt.Sprintf("a failure of inline step %d, %q", f.Step, f.Name)
	}
	return string(f.Kind())
}

func listed(f *events.Dropped) string {
	s := ""
	for _, id := range f.Schedules {
		s += fmt.Sprintf(", event %d", id)
	}
	for _, n := range f.Steps {
		s += fmt.Sprintf(", inline step %d", n)
	}
	if s == "" {
		return "anything"
	}
	return s[2:]
}

func kindOf(e *events.Error) string {
	if e == nil {
		return "no error"
	}
	return strings.TrimSpace(string(e.Kind) + " " + e.Type)
}

func quote(s string) string { return strconv.Quote(s) }
