package events_test

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
)

const aTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseTrace(t *testing.T) {
	for _, c := range []struct {
		name, in, out string
	}{
		{"sampled", aTrace, aTrace},
		{"not sampled", strings.TrimSuffix(aTrace, "01") + "00", strings.TrimSuffix(aTrace, "01") + "00"},
		{"other flags are not passed on", strings.TrimSuffix(aTrace, "01") + "03", aTrace},
		{"a later version", "01" + aTrace[2:] + "-more", aTrace},
		{"a later version without more", "cc" + aTrace[2:], aTrace},
		{"empty", "", ""},
		{"too short", aTrace[:54], ""},
		{"more behind version 00", aTrace + "-more", ""},
		{"more behind a later version, not separated", "01" + aTrace[2:] + "x", ""},
		{"the version that never is", "ff" + aTrace[2:], ""},
		{"capitals", strings.ToUpper(aTrace), ""},
		{"no trace", "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", ""},
		{"no span", "00-0af7651916cd43dd8448eb211c80319c-" + strings.Repeat("0", 16) + "-01", ""},
		{"no number", strings.Replace(aTrace, "a", "g", 1), ""},
		{"other separators", strings.ReplaceAll(aTrace, "-", "_"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := events.ParseTrace(c.in)
			if got.String() != c.out || ok != (c.out != "") {
				t.Errorf("%q is read as %q, %v; want %q", c.in, got, ok, c.out)
			}
		})
	}
}

func FuzzTrace(f *testing.F) {
	f.Add(aTrace)
	f.Add("01" + aTrace[2:] + "-x")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := events.ParseTrace(s)
		if ok == got.IsZero() {
			t.Fatalf("%q: %+v, %v", s, got, ok)
		}
		if again, stillOK := events.ParseTrace(got.String()); again != got || stillOK != ok {
			t.Errorf("%q is written as %q, and that is read as %+v", s, got, again)
		}
	})
}

// TestSpanIDs checks that nothing else has the id of a span, and that ids are what they always
// were: traces may go on over an upgrade.
func TestSpanIDs(t *testing.T) {
	ref := events.Ref{Incarnation: "l", Execution: 1, Event: 2}
	seen := make(map[[8]byte]string)
	for name, id := range map[string][8]byte{
		"itself":              events.SpanOf("activity", "a", ref),
		"another kind":        events.SpanOf("timer", "a", ref),
		"another instance":    events.SpanOf("activity", "b", ref),
		"another incarnation": events.SpanOf("activity", "a", events.Ref{Incarnation: "m", Execution: 1, Event: 2}),
		"another execution":   events.SpanOf("activity", "a", events.Ref{Incarnation: "l", Execution: 2, Event: 2}),
		"another event":       events.SpanOf("activity", "a", events.Ref{Incarnation: "l", Execution: 1, Event: 3}),
		"moved letters":       events.SpanOf("activitya", "", ref),
		"swapped numbers":     events.SpanOf("activity", "a", events.Ref{Incarnation: "l", Execution: 2, Event: 1}),
	} {
		if other, taken := seen[id]; taken {
			t.Errorf("%s and %s have the same id", name, other)
		}
		seen[id] = name
	}
	place := events.Trace{ID: events.TraceOf("order-7", "m-1"),
		Span:    events.SpanOf("execution", "order-7", events.Ref{Incarnation: "aa", Execution: 1, Event: 1}),
		Sampled: true}
	if got, want := place.String(), "00-77034255a766e3bd1ad11edbde354819-2a04b98f52fd1d1c-01"; got != want {
		t.Errorf("the trace is %s; it was %s", got, want)
	}
}
