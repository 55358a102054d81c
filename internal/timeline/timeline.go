// Package timeline prints a history as text: one line for each event, with the time since the first
// one, its number, and an arrow if it came from outside and not from the code.
//
//	0.000s    1  → fulfil 1 is started with {"sku":"piano"}
//	0.000s    2    reserve is to be executed with {"sku":"piano"}
//	0.021s    3  → the result of 2 (reserve) is "r-7"
package timeline

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/x/printable"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Options are options of the text. The zero value is good.
type Options struct {
	// Width is the number of characters of a payload that are shown; 0 shows 200, -1 all of it.
	Width int
	// Absolute shows the time of the clock (UTC) instead of the time since the first event.
	Absolute bool
}

const defaultWidth = 200

// Printer prints events one after the other. It remembers the subjects of the events before.
type Printer struct {
	o     Options
	began time.Time
	names map[int64]string // the name of each operation, by the event that began it
}

// New makes a Printer for one execution.
func New(o Options) *Printer {
	if o.Width == 0 {
		o.Width = defaultWidth
	}
	return &Printer{o: o, names: make(map[int64]string)}
}

// Write prints a whole execution.
func Write(w io.Writer, x events.Export, o Options) error {
	t := New(o)
	for _, e := range x.Events {
		if _, err := fmt.Fprintln(w, t.Line(e)); err != nil {
			return err
		}
	}
	return nil
}

// Line prints one event. Events must come in their order.
func (t *Printer) Line(e events.Event) string {
	if t.began.IsZero() {
		t.began = e.At
	}
	at := t.since(e.At)
	if t.o.Absolute {
		at = clock(e.At)
	}
	mark := "  "
	if events.FromOutside(e.Fact) {
		mark = "→ "
	}
	return printable.Line(fmt.Sprintf("%9s  %3d  %s%s", at, e.ID, mark, t.words(e)))
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") }

// since formats a time: seconds, and for long ones days, hours and minutes, too.
func (t *Printer) since(at time.Time) string {
	return length(at.Sub(t.began))
}

// length formats a duration as since does.
func length(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("%.3fs", d.Seconds())
	}
	if d < time.Hour {
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	if d < 24*time.Hour {
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh%02dm", d/(24*time.Hour), d%(24*time.Hour)/time.Hour, d%time.Hour/time.Minute)
}

// words describes an event.
func (t *Printer) words(e events.Event) string {
	switch f := e.Fact.(type) {
	case *events.Started:
		return t.started(f)
	case *events.Completed:
		return "it is completed with " + t.payload(f.Output)
	case *events.Failed:
		return "it has failed: " + t.problem(f.Error)
	case *events.Cancelled:
		return "it is cancelled" + t.also(f.Output) + t.error(f.Error) + t.reason(f.Reason)
	case *events.Terminated:
		return "it is terminated" + t.reason(f.Reason)
	case *events.ContinuedAsNew:
		return fmt.Sprintf("it continues as new: %s %s with %s", f.Name, f.Version, t.payload(f.Input))
	case *events.CancelRequested:
		return "it is asked to stop" + t.reason(f.Reason)
	case *events.Suspended:
		return "it is suspended" + t.error(f.Error) + t.reason(f.Reason)
	case *events.Resumed:
		if f.Healed {
			if f.Reason == "the code fits its history again" { // as the engine says it
				return "it goes on: its code fits again"
			}
			return "it goes on: its code fits again" + t.reason(f.Reason)
		}
		return "it goes on" + t.reason(f.Reason)
	case *events.StatusSet:
		if len(f.Status) == 0 {
			return "its status is removed"
		}
		return "its status is " + t.payload(f.Status)
	case *events.ValueSet:
		return fmt.Sprintf("the value %s is %s", f.Key, t.payload(f.Value))
	case *events.ValuesCleared:
		return "the values " + strings.Join(f.Keys, ", ") + " are removed"
	case *events.CallRefused:
		return "a call is refused: " + f.Error.Error()
	case *events.Patched:
		return "it takes the new path of " + f.ID
	case *events.Dropped:
		return "no longer wanted: " + t.dropped(f)
	default:
	}
	return t.exchange(e)
}

// exchange describes events of activities, steps, timers, events, mailboxes and other instances.
func (t *Printer) exchange(e events.Event) string {
	switch f := e.Fact.(type) {
	case *events.ActivityScheduled:
		t.names[e.ID] = f.Name
		return t.scheduled(e.At, f)
	case *events.ActivityBegun:
		if f.Pending {
			return fmt.Sprintf("%s is to be completed later by somebody else%s", t.name(f.Schedule), by(f.Worker))
		}
		return t.name(f.Schedule) + " is begun" + by(f.Worker)
	case *events.ActivityCompleted:
		return fmt.Sprintf("the result of %s is %s%s", t.name(f.Schedule), t.payload(f.Result), by(f.Worker))
	case *events.ActivityFailed:
		return t.name(f.Schedule) + " has failed: " + t.problem(f.Error) + by(f.Worker)
	case *events.StepCompleted:
		return fmt.Sprintf("the step %s gives %s", f.Name, t.payload(f.Result))
	case *events.StepFailed:
		return fmt.Sprintf("attempt %d of the step %s has failed: %s", f.Attempt, f.Name, t.problem(f.Error))
	case *events.TimerCreated:
		t.names[e.ID] = "timer"
		if t.o.Absolute {
			return "a timer is set to " + clock(f.FireAt)
		}
		return "a timer of " + length(f.FireAt.Sub(e.At)) + " is set"
	case *events.TimerFired:
		return t.name(f.Timer) + " is over"
	case *events.EventAwaited:
		if f.Kept != 0 {
			return fmt.Sprintf("it takes event %d, a kept %s%s", f.Kept, f.Name, again(f.Again))
		}
		t.names[e.ID] = f.Name
		return "it waits for the event " + f.Name + again(f.Again)
	case *events.EventReceived:
		if f.Wait == 0 {
			return fmt.Sprintf("the event %s comes early, and is kept%s: %s", f.Name, instead(f.Instead),
				t.payload(f.Data))
		}
		return fmt.Sprintf("the event %s comes: %s", f.Name, t.payload(f.Data))
	case *events.MessageReceived:
		return fmt.Sprintf("a message comes into the mailbox %s: %s", f.Mailbox, t.payload(f.Data))
	case *events.MailboxRead:
		if f.Message == 0 {
			t.names[e.ID] = f.Mailbox
			return "it waits for a message in the mailbox " + f.Mailbox + again(f.Again)
		}
		return fmt.Sprintf("it takes message %d from the mailbox %s%s", f.Message, f.Mailbox, again(f.Again))
	case *events.ChildStarted:
		t.names[e.ID] = cmp.Or(f.Instance, f.Name)
		return fmt.Sprintf("the child %s is started: %s with %s%s", f.Instance, named(f.Name, f.Version),
			t.payload(f.Input), t.attributes(f.Attributes))
	case *events.ChildCompleted:
		return fmt.Sprintf("the child %s is completed with %s", t.name(f.Schedule), t.payload(f.Output))
	case *events.ChildFailed:
		return fmt.Sprintf("the child %s has failed: %s", t.name(f.Schedule), t.problem(f.Error))
	case *events.Launched:
		return t.launched(e.At, f)
	case *events.Sent:
		return fmt.Sprintf("it sends to the %s %s of %s: %s", f.To, f.Name, f.Instance, t.payload(f.Data))
	default:
	}
	return string(e.Fact.Kind()) // one that is newer than this
}

// again explains why another wait follows a wait.
func instead(kept int64) string {
	if kept == 0 {
		return ""
	}
	return fmt.Sprintf(" instead of event %d", kept)
}

func again(wait int64) string {
	if wait == 0 {
		return ""
	}
	return fmt.Sprintf(" again: what answered %d is of another type, and was skipped", wait)
}

func (t *Printer) started(f *events.Started) string {
	s := fmt.Sprintf("%s is started with %s", named(f.Name, f.Version), t.payload(f.Input))
	if f.Previous > 0 {
		s = fmt.Sprintf("%s goes on after execution %d, with %s", named(f.Name, f.Version), f.Previous,
			t.payload(f.Input))
	}
	if f.Parent != nil {
		s += fmt.Sprintf(", by event %d of %s", f.Parent.Event, f.Parent.Instance)
	}
	return s
}

func (t *Printer) scheduled(at time.Time, f *events.ActivityScheduled) string {
	var where string
	if f.Tag != "" {
		where += ", by a worker with the tag " + f.Tag
	}
	if f.Session != "" {
		where += ", in the session " + f.Session
	}
	if f.Attempt > 1 {
		s := fmt.Sprintf("%s is to be tried again, attempt %d", f.Name, f.Attempt)
		return s + t.notBefore(at, f.NotBefore) + where
	}
	return fmt.Sprintf("%s is to be executed with %s%s", f.Name, t.payload(f.Input), where)
}

// launched describes a detached start with its options.
func (t *Printer) launched(at time.Time, f *events.Launched) string {
	s := fmt.Sprintf("%s is started on its own: %s with %s%s", f.Instance, named(f.Name, f.Version),
		t.payload(f.Input), t.attributes(f.Attributes))
	for _, m := range f.Messages {
		s += fmt.Sprintf(", message for the mailbox %s: %s", m.Mailbox, t.payload(m.Data))
	}
	s += t.notBefore(at, f.NotBefore)
	switch f.Conflict {
	case events.RestartFinished:
		s += ", also if one of the id has ended"
	case events.ReplaceRunning:
		s += ", in place of one that runs"
	case events.KeepExisting, events.RejectExisting: // an existing one stays
	}
	return s
}

func (t *Printer) attributes(all map[string]string) string {
	if len(all) == 0 {
		return ""
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		list = append(list, k+"="+all[k])
	}
	return ", attributes " + t.cut(strings.Join(list, " "))
}

func (t *Printer) dropped(f *events.Dropped) string {
	var what []string
	for _, s := range f.Schedules {
		what = append(what, t.name(s))
	}
	for _, s := range f.Steps {
		what = append(what, fmt.Sprintf("step %d", s))
	}
	return strings.Join(what, ", ")
}

// name is the number of an event with the name of its operation.
func (t *Printer) name(event int64) string {
	if n := t.names[event]; n != "" {
		return fmt.Sprintf("%d (%s)", event, n)
	}
	return fmt.Sprint(event)
}

// notBefore says by how long something is delayed, or until when.
func (t *Printer) notBefore(at, until time.Time) string {
	switch {
	case until.IsZero():
		return ""
	case t.o.Absolute:
		return ", not before " + clock(until)
	}
	return ", after a delay of " + length(until.Sub(at))
}

func (t *Printer) payload(p codec.Payload) string {
	if len(p) == 0 {
		return "nothing"
	}
	return t.cut(p.String())
}

// cut shortens a text to the width, and keeps it on one line.
func (t *Printer) cut(s string) string {
	s = strings.NewReplacer("\r\n", "⏎", "\n", "⏎", "\r", "⏎", "\t", " ").Replace(s)
	if t.o.Width < 0 || utf8.RuneCountInString(s) <= t.o.Width {
		return s
	}
	runes := []rune(s)
	return fmt.Sprintf("%s… (%d bytes)", string(runes[:t.o.Width]), len(s))
}

func (t *Printer) problem(err *failure.Error) string {
	if err == nil {
		return "nobody says why"
	}
	if at := err.Place(); at != "" {
		return t.cut(err.Error()) + " (at " + at + ")"
	}
	return t.cut(err.Error())
}

func (t *Printer) error(err *failure.Error) string {
	if err == nil {
		return ""
	}
	return ": " + t.cut(err.Error())
}

func (t *Printer) reason(r string) string {
	if r == "" {
		return ""
	}
	return ", because: " + t.cut(r)
}

func (t *Printer) also(p codec.Payload) string {
	if len(p) == 0 {
		return ""
	}
	return " with " + t.payload(p)
}

func by(worker string) string {
	if worker == "" {
		return ""
	}
	return " [" + worker + "]"
}

func named(name, version string) string {
	if version == "" {
		return name
	}
	return name + " " + version
}
