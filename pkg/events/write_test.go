package events_test

import (
	"bytes"
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
			Retry: &events.RetryPolicy{Factor: x, Jitter: x, NonRetryableTypes: []string{}}})
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
