package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has the rules about the executions of an instance, one after the other, and about their
// rows and values in the store.

// lineage follows an instance through its executions. Of former ones it remembers only the data
// that the next one is compared with.
type lineage struct {
	id       string
	former   *execution // without data that only a running execution needs
	now      *execution
	messages taken
	findings []Finding
	// Counts for the report.
	executions, events int64
}

func newLineage(id string) *lineage { return &lineage{id: id, messages: newTaken()} }

func (l *lineage) bad(f Finding) {
	f.Instance = l.id
	l.findings = append(l.findings, f)
}

// begin begins an execution. The events are then taken in portions.
func (l *lineage) begin(number int64) {
	l.now = newExecution(l, number)
	l.executions++
}

func (l *lineage) take(portion []events.Event) {
	for _, e := range portion {
		l.now.take(e)
	}
	l.events += int64(len(portion))
}

// finish ends an execution. What follows are those behind it.
func (l *lineage) finish() {
	if l.former != nil {
		l.judgeFormer()
	}
	l.former = l.now
}

// judgeFormer: an execution that has a successor and no end was abandoned half-way; a gap between
// two executions is a lost history.
func (l *lineage) judgeFormer() {
	if l.former.number+1 != l.now.number {
		l.bad(Finding{Rule: ExecutionMissing, Execution: l.former.number + 1,
			Expected: fmt.Sprintf("execution %d between those that are kept", l.former.number+1),
			Found:    fmt.Sprintf("execution %d behind execution %d", l.now.number, l.former.number)})
	}
	if l.former.end.Fact == nil {
		l.bad(Finding{Rule: NoEnd, Execution: l.former.number, Event: l.former.last.ID,
			Expected: fmt.Sprintf("an end, because execution %d has begun", l.now.number),
			Found:    plural.Count(l.former.last.ID, "event") + " without one"})
	}
}

// started compares how an execution begins with how the one before ended.
func (l *lineage) started(x *execution) {
	if x.started.Previous == 0 {
		l.messages = newTaken() // a new incarnation
	} else {
		l.messages.trim(maxTaken)
	}
	if l.former == nil || l.former.number+1 != x.number {
		return
	}
	next, continued := l.former.end.Fact.(*events.ContinuedAsNew)
	differs := func(expected, found string) { x.bad(ContinuedDiffers, 1, expected, found) }
	switch s := x.started; {
	case continued != (s.Previous != 0):
		differs(fmt.Sprintf("the successor of an execution that ended with %s", kindOf(l.former.end.Fact)),
			fmt.Sprintf("previous execution %d", s.Previous))
	case !continued:
	case s.Previous != l.former.number:
		differs(fmt.Sprintf("previous execution %d", l.former.number), fmt.Sprint(s.Previous))
	case s.Name != next.Name || s.Version != next.Version:
		differs(next.Name+" "+next.Version, s.Name+" "+s.Version)
	case !bytes.Equal(s.Input, next.Input):
		differs("input "+clip(next.Input), clip(s.Input))
	case l.former.started != nil && s.Incarnation != l.former.started.Incarnation:
		differs("incarnation "+l.former.started.Incarnation, s.Incarnation)
	case l.former.started != nil && !sameParent(s.Parent, l.former.started.Parent):
		differs("parent "+parentText(l.former.started.Parent), parentText(s.Parent))
	}
}

func kindOf(f events.Fact) events.Kind {
	if f == nil {
		return "no end"
	}
	return f.Kind()
}

// inherited compares the state with which an execution's code begins with the state at the end of
// the one before. A message that was read may be carried on or not: history does not show whether
// the code had looked at it.
func (l *lineage) inherited(x *execution) {
	f := l.former
	if x.started.Previous == 0 || f == nil || f.number != x.started.Previous {
		return
	}
	if !sameValues(f.values, x.values) {
		x.bad(CarriedDiffers, 1, "values "+valuesText(f.values), valuesText(x.values))
	}
	if !bytes.Equal(f.status, x.status) || f.statusVersion != x.statusVersion {
		x.bad(CarriedDiffers, 1, fmt.Sprintf("status %s, version %d", clip(f.status), f.statusVersion),
			fmt.Sprintf("%s, version %d", clip(x.status), x.statusVersion))
	}
	unread, read := f.mailboxes.rest()
	carried, _ := x.mailboxes.rest()
	for l, n := range unread {
		if carried[l] < n {
			x.bad(MailboxDropped, 1, fmt.Sprintf("unread %s, id %q", describeMailbox(l.mailbox), l.message),
				"it is not carried on")
		}
	}
	for l, n := range carried {
		if n > unread[l]+read[l] {
			x.bad(MailboxFromNowhere, 1, fmt.Sprintf("what execution %d had in its mailboxes", f.number),
				fmt.Sprintf("%s, id %q", describeMailbox(l.mailbox), l.message))
		}
	}
}

// ---- The store.

// compareRow compares the last execution with the row of the instance.
func (l *lineage) compareRow(row round.Row) {
	x := l.now
	differs := func(what string, expected, found any) {
		if e, f := fmt.Sprint(expected), fmt.Sprint(found); e != f {
			x.bad(RowDiffers, 0, what+" "+e+" as in history", f+" in the row")
		}
	}
	differs("last event", x.last.ID, row.LastEvent)
	differs("status", x.standing(), row.Status)
	differs("unread messages", x.mailboxes.waits(), row.Unread)
	if s := x.started; s != nil {
		differs("incarnation", s.Incarnation, row.Incarnation)
		differs("orchestration", s.Name+" "+s.Version, row.Name+" "+row.Version)
		differs("start message", s.Message, row.StartMessage)
		differs("parent", parentText(s.Parent), parentText(row.Parent))
	}
	output, failure := outcome(x.end.Fact)
	differs("output", clip(output), clip(row.Output))
	if x.end.Fact != nil {
		differs("error", errorText(failure), errorText(row.Error))
	} else if !x.halted {
		differs("error", errorText(nil), errorText(row.Error))
	}
	if !bytes.Equal(row.CustomStatus, x.status) || row.CustomStatusVersion != x.statusVersion {
		x.bad(StatusDiffers, 0, fmt.Sprintf("status %s, version %d, as in history", clip(x.status), x.statusVersion),
			fmt.Sprintf("%s, version %d, in the row", clip(row.CustomStatus), row.CustomStatusVersion))
	}
	l.willBeLookedAt(row)
}

// willBeLookedAt: if the message that an instance waits for is lost, only the wake time makes an
// orchestrator load the instance.
func (l *lineage) willBeLookedAt(row round.Row) {
	if row.Status.Ended() || !row.WakeAt.IsZero() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.now.open)) {
		if e := l.now.open[id]; owed(e.Fact) {
			l.now.bad(NoWake, id, fmt.Sprintf("a time to look at it again, because %s is open", e.Fact.Kind()),
				"no wake time")
			return
		}
	}
}

// owed reports whether a service or the clock owes the answer to an open event.
func owed(f events.Fact) bool {
	switch f := f.(type) {
	case *events.ActivityScheduled:
		return f.Name != passedOn
	case *events.TimerCreated, *events.ChildStarted:
		return true
	default:
	}
	return false
}

// compareValues compares the values in the store with those in history.
func (l *lineage) compareValues(values map[string]codec.Payload) {
	if !sameValues(values, l.now.values) {
		l.now.bad(ValuesDiffer, 0, "values "+valuesText(l.now.values)+" as in history",
			valuesText(values)+" in the store")
	}
}

// compareExecution compares a former execution with its row.
func (l *lineage) compareExecution(info history.ExecutionInfo) {
	x := l.now
	output, failure := outcome(x.end.Fact)
	said := fmt.Sprintf("%s after %s, output %s, error %s", x.standing(), plural.Count(x.last.ID, "event"),
		clip(output), errorText(failure))
	shown := fmt.Sprintf("%s after %s, output %s, error %s", info.Status, plural.Count(info.Events, "event"),
		clip(info.Output), errorText(info.Error))
	if said != shown {
		x.bad(RowDiffers, 0, said+", as in history", shown+" in its row")
	}
}

// standing is the status that follows from history.
func (x *execution) standing() round.Status {
	switch x.end.Fact.(type) {
	case *events.Completed:
		return round.Completed
	case *events.Failed:
		return round.Failed
	case *events.Cancelled:
		return round.Cancelled
	case *events.Terminated:
		return round.Terminated
	case *events.ContinuedAsNew:
		return round.ContinuedAsNew
	default:
	}
	switch {
	case x.halted:
		return round.Halted
	case x.suspended:
		return round.Suspended
	}
	return round.Running
}

// outcome is the result of the event that ends an execution. Cancellation and termination have
// errors of their own kind.
func outcome(f events.Fact) (codec.Payload, *failure.Error) {
	switch f := f.(type) {
	case *events.Completed:
		return f.Output, nil
	case *events.Failed:
		return nil, f.Error
	case *events.Cancelled:
		return f.Output, &failure.Error{Kind: failure.Cancelled}
	case *events.Terminated:
		return nil, &failure.Error{Kind: failure.Terminated}
	default:
	}
	return nil, nil
}

func errorText(e *failure.Error) string {
	switch {
	case e == nil:
		return "none"
	case e.Kind == failure.Cancelled || e.Kind == failure.Terminated:
		return string(e.Kind) // the message has the reason, in other words
	}
	data, err := json.Marshal(events.Bounded(e))
	if err != nil {
		return e.Error()
	}
	return string(data)
}

func sameParent(a, b *events.Parent) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func parentText(p *events.Parent) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%q, incarnation %s, execution %d, event %d", p.Instance, p.Incarnation, p.Execution, p.Event)
}

func sameValues(a, b map[string]codec.Payload) bool {
	return maps.EqualFunc(a, b, func(a, b codec.Payload) bool { return bytes.Equal(a, b) })
}

func valuesText(values map[string]codec.Payload) string {
	var b bytes.Buffer
	for i, k := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == 5 {
			fmt.Fprintf(&b, "and %s", plural.Count(len(values)-i, "other"))
			break
		}
		fmt.Fprintf(&b, "%s=%s", k, clip(values[k]))
	}
	if len(values) == 0 {
		return "none"
	}
	return b.String()
}

// clip shortens a payload for a finding. Differences behind the cut show in the length and the sum.
func clip(p codec.Payload) string {
	const most = 200
	s := p.String()
	if len(p) == 0 {
		return "none"
	}
	if len(s) > most {
		return fmt.Sprintf("%s… (%d bytes, sum %x)", s[:most], len(p), events.SeenHash(string(p)))
	}
	return s
}

// ---- Which messages were taken in.

// taken remembers message ids, oldest first.
type taken struct {
	ids   []string
	index map[string]bool
}

func newTaken() taken { return taken{index: make(map[string]bool)} }

func (t *taken) has(id string) bool { return t.index[id] }

func (t *taken) add(id string) {
	if !t.index[id] {
		t.ids, t.index[id] = append(t.ids, id), true
	}
}

// maxTaken bounds how many messages of an incarnation are compared with those that come later.
const maxTaken = 1 << 20

// trim drops all but the newest.
func (t *taken) trim(most int) {
	if len(t.ids) <= most {
		return
	}
	for _, id := range t.ids[:len(t.ids)-most] {
		delete(t.index, id)
	}
	t.ids = slices.Clone(t.ids[len(t.ids)-most:])
}
