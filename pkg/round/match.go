package round

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// matchNext checks that what the code says is what history has next, and takes that event.
func (x *execution) matchNext(said events.Fact) (effects, bool) {
	for len(x.playback.rest) > 0 {
		e := x.playback.rest[0]
		difference := differs(e.Fact, said)
		if difference == "" {
			_, eff := x.next()
			x.playback.matched = e
			x.fault = x.noteChange(e, said)
			return eff, x.unreadable == nil && x.fault == nil
		}
		if _, ok := e.Fact.(*events.Patched); !ok {
			x.misfitAt(e, said)
			return effects{}, false
		}
		x.next() // a marker that the code no longer asks about
	}
	if !x.playback.openEnd {
		x.misfitAt(events.Event{ID: x.ledger.tail.lastID + 1}, said)
	}
	return effects{}, false
}

// differs names the difference between two facts that are not the same step of the code; empty if
// they are. It compares kinds and names, not the data: data may change with the code, and the
// recorded data stands.
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
	case *events.MailboxRead:
		s := said.(*events.MailboxRead)
		same = r.Mailbox == s.Mailbox && r.Again == s.Again
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
	default:
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
	default:
	}
	return nil
}

func short(p codec.Payload) string {
	s := p.String()
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}

// misfitAt notes that the code and its history part at an event: history has it, the code did
// something else (or nothing).
func (x *execution) misfitAt(e events.Event, said events.Fact) {
	expected, got := "nothing: the code was waiting here", "nothing: it waits"
	if e.Fact != nil {
		expected = Describe(e.Fact)
	}
	if said != nil {
		got = Describe(said)
	}
	x.fault = &failure.Error{
		Kind: failure.Nondeterminism, NonRetryable: true, Event: e.ID, Expected: expected, Got: got,
		Message: fmt.Sprintf("the code of %s %s does not fit the history of instance %s at event %d:\n"+
			"  history has  %s\n  the code did %s\n"+
			"If the code was changed: put the change behind ctx.Patched(\"…\"), or register it as a new version and "+
			"keep the old one until its instances have ended.\n"+
			"If it was not: it reads a clock, a random number, a map's order or something outside; use ctx.Now, "+
			"ctx.Rand, sorted keys, a step or an activity.",
			x.ledger.info.Name, x.ledger.info.Version, quote(x.id), e.ID, expected, got),
	}
}

// misfit halts (or fails) an instance whose code does not fit its history.
func (x *execution) misfit() {
	fault := x.fault
	x.fault = nil
	x.turn.Fault = fault
	x.turn.Steps, x.turn.DroppedSteps = nil, nil
	x.evict()
	switch {
	case x.config.FailNondeterminism:
		x.append(&events.Failed{Error: events.Bounded(fault)})
	case x.ledger.halt == nil:
		x.append(&events.Suspended{Error: events.Bounded(fault)})
	}
}

// Describe describes a fact in messages.
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
	case *events.MailboxRead:
		return "a read of mailbox " + quote(f.Mailbox)
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
	case *events.ActivityBegun, *events.ActivityCompleted, *events.ActivityFailed, *events.TimerFired,
		*events.EventReceived, *events.MessageReceived, *events.ChildCompleted, *events.ChildFailed,
		*events.CancelRequested, *events.Suspended, *events.Resumed, *events.Terminated:
		return string(f.Kind()) // the code does not say these
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

func kindOf(e *failure.Error) string {
	if e == nil {
		return "no error"
	}
	return strings.TrimSpace(string(e.Kind) + " " + e.Type)
}

func quote(s string) string { return strconv.Quote(s) }

// noteChange warns when the code does the same thing as before with other data. That is allowed,
// because code may change, but it can also be a sign of a clock or a random number where none
// should be. If the code is known to be the same, there is no other cause, and it is a fault.
func (r *recorder) noteChange(e events.Event, said events.Fact) *failure.Error {
	before, now := data(e.Fact), data(said)
	if bytes.Equal(before, now) || !json.Valid(before) || !json.Valid(now) {
		return nil // other payloads may be encrypted, and differ each time
	}
	show := events.Digest[codec.Payload] // warnings and faults are logged, and data is not
	if r.config.ShowPayloads {
		show = short
	}
	what, was, is := Describe(e.Fact), show(before), show(now)
	if r.own == 0 || e.ID < r.own {
		r.warn(fmt.Sprintf("event %d: %s was recorded with %s, the code now gives %s; what was recorded stands",
			e.ID, what, was, is))
		return nil
	}
	was, is = what+" with "+was, what+" with "+is
	return &failure.Error{
		Kind: failure.Nondeterminism, Type: failure.ChangedData, NonRetryable: true, Event: e.ID,
		Expected: was, Got: is,
		Message: fmt.Sprintf("the code of %s %s gives other data than before, and was not changed: "+
			"instance %s, event %d:\n  history has  %s\n  the code did %s\n"+
			"It reads a clock, a random number, a map's order or something outside; use ctx.Now, ctx.Rand, "+
			"sorted keys, a step or an activity.",
			r.ledger.info.Name, r.ledger.info.Version, quote(r.id), e.ID, was, is),
	}
}
