package events_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// sameAsMarshal wants a fact to be written as encoding/json writes it.
func sameAsMarshal(t *testing.T, f events.Fact) {
	t.Helper()
	want, wantErr := events.Marshal(f)
	got, err := events.AppendFact(nil, f)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%+v: error %v, want %v", f, err, wantErr)
	}
	if err == nil && !bytes.Equal(got, want) {
		t.Errorf("written as\n%s\nwant\n%s", got, want)
	}
}

func TestFactsAreWrittenAsByEncodingJSON(t *testing.T) {
	for _, x := range eventExamples {
		sameAsMarshal(t, x.fact)
	}
	for _, s := range []string{"", "plain", `"quoted"`, `back\slash`, "tab\t", "\x00\x7f", "<html>&", "日本",
		"\u2028", "\xff"} {
		sameAsMarshal(t, &events.EventReceived{Wait: 1, Name: s, Message: s, Data: payload(s)})
		sameAsMarshal(t, &events.Started{Name: s, Version: s, Incarnation: s, Trace: s,
			Attributes: map[string]string{s: s}})
	}
	for _, d := range []events.Duration{1, 1500, 60 * sec, -sec} {
		sameAsMarshal(t, &events.ActivityScheduled{Name: "n", StartToClose: d,
			Retry: &events.RetryPolicy{Attempts: 1, First: d}})
	}
	for _, x := range []float64{0, 1, 2.5, 0.2, 1e-7, 1e21, 1e300, -1, 100} {
		sameAsMarshal(t, &events.ActivityScheduled{Name: "n",
			Retry: &events.RetryPolicy{Factor: x, Jitter: x, Except: []string{}}})
	}
	for _, at := range []string{"0001-01-01T00:00:00Z", "2025-03-14T09:26:53.5+02:00", "9999-12-31T23:59:59.999999Z",
		"2025-03-14T09:26:53Z"} {
		sameAsMarshal(t, &events.TimerCreated{FireAt: parsed(t, at)})
		sameAsMarshal(t, &events.ActivityScheduled{Name: "n", Deadline: parsed(t, at)})
	}
}

func parsed(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

var bareExamples = []string{
	"", " ", "0", "-0", "01", "-", "1.", "1.5", ".5", "1e5", "1E+5", "1e", "1e+", "-1.25e-3", "1 ", " 1", "1,2", "true",
	"tru", "truex", "false", "null", "nul",
	`""`, `"a"`, `"a`, `"\n"`, `"\x"`, `"\u12aF"`, `"\u12a"`, `"\u12ag"`, "\"\n\"", "\"\x7f\"", "\"\xff\"", `"\`,
	`"\"`, `"日本"`,
	"{}", "{ }", `{"a":1}`, `{"a":1,}`, `{"a" :1}`, `{"a": 1}`, `{"a":1,"b":[1,{"c":null}]}`, `{,}`, `{"a"}`, `{"a":}`,
	`{1:2}`, `{"a":1]`, `{"a":1}}`, `{"a":1,"a":2}`,
	"[]", "[1,2]", "[1,]", "[,1]", "[1 ,2]", "[1", "]", "[}", "[[[]]]", "[[[]]", "[]1", "[1][2]", "\ufeff1",
	"{\"$bytes\":\"\"}", "nan", "Infinity",
}

func TestBare(t *testing.T) {
	for _, s := range append(bareExamples, nested(50), nested(8_999), nested(9_001), strings.Repeat("[", 20_000)) {
		if got, want := events.IsBare([]byte(s)), events.SlowlyBare([]byte(s)); got != want {
			t.Errorf("%.60q: %v, want %v", s, got, want)
		}
	}
}

// What is found bare at one look is what encoding/json and a second look find.
func FuzzBare(f *testing.F) {
	for _, s := range bareExamples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if got, want := events.IsBare(p), events.SlowlyBare(p); got != want {
			t.Errorf("%q: %v, want %v", p, got, want)
		}
	})
}
