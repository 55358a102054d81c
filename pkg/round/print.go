package round

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// String prints a turn: the appended facts, the sent messages, the state of the instance and the
// receipts, in the order of their effects.
func (t Turn) String() string {
	var b strings.Builder
	for _, x := range t.Executions {
		fmt.Fprintf(&b, "append to execution %d\n", x.ID)
		for _, e := range x.Events {
			fmt.Fprintf(&b, "  %d %s %s\n", e.ID, e.Fact.Kind(), asJSON(e.Fact))
		}
	}
	if len(t.Executions) > 0 {
		b.WriteString("row " + t.Row.String() + "\n")
	}
	if t.ClearValues {
		b.WriteString("clear all values\n")
	}
	for _, v := range t.Values {
		if v.Removed {
			fmt.Fprintf(&b, "value %s removed\n", v.Key)
		} else {
			fmt.Fprintf(&b, "value %s = %s\n", v.Key, v.Value)
		}
	}
	for _, m := range t.Messages {
		b.WriteString(printMessage(m) + "\n")
	}
	for _, s := range t.Steps {
		if !s.Repeated {
			b.WriteString(printStep(s) + "\n")
		}
	}
	for _, s := range t.DroppedSteps {
		fmt.Fprintf(&b, "drop step %d\n", s.Number)
	}
	for _, r := range t.Receipts {
		b.WriteString("receipt " + r.String() + "\n")
	}
	for _, r := range t.Logs {
		b.WriteString(printLog(r.Record) + "\n")
	}
	for _, x := range t.Emitted {
		b.WriteString(x.String() + "\n")
	}
	for _, o := range t.Over {
		b.WriteString(o.String() + "\n")
	}
	for _, w := range t.Warnings {
		b.WriteString("warning: " + w + "\n")
	}
	if t.Fault != nil {
		fmt.Fprintf(&b, "fault: %s: %s\n", t.Fault.Kind, t.Fault.Message)
	}
	if t.Again {
		b.WriteString("again\n")
	}
	if q := t.Question; q != nil {
		fmt.Fprintf(&b, "question: what was taken in before execution %d and sent at %s\n", q.Execution,
			q.Sent.Format(time.RFC3339Nano))
	}
	if !t.Awaits.IsZero() {
		b.WriteString("awaits the watermark " + t.Awaits.Format(time.RFC3339Nano) + "\n")
	}
	if t.Evict {
		b.WriteString("evict\n")
	}
	return b.String()
}

func asJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// String prints the most important columns of a row.
func (r Row) String() string {
	s := fmt.Sprintf("%s, execution %d, last event %d", r.Status, r.Execution, r.LastEvent)
	if len(r.Output) > 0 {
		s += ", output " + r.Output.String()
	}
	if r.Error != nil {
		what := firstLine(r.Error.Error())
		if !strings.HasPrefix(what, string(r.Error.Kind)) {
			what = string(r.Error.Kind) + ": " + what
		}
		s += ", error " + what
	}
	if r.CustomStatusVersion > 0 {
		s += fmt.Sprintf(", custom status %s (version %d)", orElse(r.CustomStatus.String(), "removed"),
			r.CustomStatusVersion)
	}
	if r.Unread > 0 {
		s += fmt.Sprintf(", %d unread", r.Unread)
	}
	if !r.WakeAt.IsZero() {
		s += ", wake at " + r.WakeAt.Format(time.RFC3339Nano)
	}
	return s
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func printMessage(m events.Message) string {
	w, err := events.Encode(events.DefaultPrefix, m)
	if err != nil {
		return "unsendable: " + err.Error()
	}
	what := "publish "
	if w.Purge {
		what = "withdraw "
	}
	s := what + w.Subject
	if len(w.Body) > 0 {
		s += " " + codec.Payload(w.Body).String()
	}
	if c, ok := m.Content.(*events.Start); ok {
		s += printStart(c)
	}
	if t, _ := events.ParseTrace(m.Trace); t.Sampled {
		s += " in " + t.String()
	}
	switch {
	case w.NotBefore.IsZero():
	case w.Purge:
		s += " (due at " + w.NotBefore.Format(time.RFC3339Nano) + ")"
	default:
		s += " at " + w.NotBefore.Format(time.RFC3339Nano)
	}
	return s
}

// printStart prints the options of a start.
func printStart(c *events.Start) (s string) {
	if c.Conflict != events.KeepExisting {
		s += " conflict=" + string(c.Conflict)
	}
	for _, k := range sortedKeys(c.Attributes) {
		s += " " + k + "=" + quote(c.Attributes[k])
	}
	for _, m := range c.Messages {
		s += " with " + m.Mailbox + ":" + m.Data.String()
	}
	return s
}

func printStep(s Step) string {
	out := fmt.Sprintf("run step %d %q attempt %d", s.StepRef.Number, s.Name, s.Attempt)
	if !s.NotBefore.IsZero() {
		out += " at " + s.NotBefore.Format(time.RFC3339Nano)
	}
	return out
}

func printLog(r slog.Record) string {
	s := fmt.Sprintf("log %s %q", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		s += " " + a.String()
		return true
	})
	return s
}

// String prints a receipt.
func (r Receipt) String() string {
	s := fmt.Sprintf("%s (%s)", r.Verdict, r.Reason)
	if r.After > 0 {
		s += " after " + r.After.String()
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// String names a verdict.
func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case Ignored:
		return "ignored"
	case Returned:
		return "returned"
	case Again:
		return "again"
	case Dead:
		return "dead"
	}
	return "no verdict"
}

// String prints what the code tells about itself.
func (t Emitted) String() string {
	var s string
	switch t.Kind {
	case coro.EmittedSpan:
		s = fmt.Sprintf("span %d %q after %v", t.Number, t.Name, t.Ended.Sub(t.Begun))
	case coro.EmittedCount:
		s = fmt.Sprintf("count %q %v", t.Name, t.Value)
	case coro.EmittedValue:
		s = fmt.Sprintf("measure %q %v", t.Name, t.Value)
	}
	for _, a := range t.About {
		s += " " + a.String()
	}
	if t.Error != nil {
		s += ": " + firstLine(t.Error.Error())
	}
	return s
}
