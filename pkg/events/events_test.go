package events_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// row writes an event as JSON by hand.
func row(kind, data string) string {
	return fmt.Sprintf(`{"id":7,"at":"2025-03-14T09:26:53Z","kind":%q,"data":%s}`, kind, data)
}

func TestEventsThatAreNotUnderstoodAreRefused(t *testing.T) {
	const head = `{"id":7,"at":"2025-03-14T09:26:53Z","kind":"completed"`
	tests := []struct {
		name, text string
		words      []string
	}{
		{"a good one", row("completed", `{}`), nil},
		{"nothing", "", []string{"unreadable event", "no data"}},
		{"not JSON", "hello", []string{"unreadable event", "invalid character"}},
		{"half of it", head, []string{"unreadable event", "unexpected EOF"}},
		{"an unknown field", head + `,"data":{},"color":"red"}`,
			[]string{"event 7", `"completed"`, "unknown field", "color"}},
		{"an unknown kind", row("exploded", `{}`), []string{"event 7", `"exploded"`, "newer version"}},
		{"no kind", `{"id":7,"at":"2025-03-14T09:26:53Z","data":{}}`, []string{"event 7", `unknown kind ""`}},
		{"no data", head + `}`, []string{"event 7", "completed", "no data"}},
		{"data behind it", row("completed", `{}`) + " x", []string{"event 7", `"completed"`, "unexpected data"}},
		{"another event behind it", row("completed", `{}`) + row("completed", `{}`),
			[]string{"event 7", "unexpected data"}},
		{"an id of another type", strings.Replace(row("completed", `{}`), "7", `"7"`, 1),
			[]string{`"completed"`, "id"}},
		{"no id", strings.Replace(row("completed", `{}`), `"id":7,`, "", 1),
			[]string{"event 0 (completed)", "start at 1"}},
		{"no time", `{"id":7,"kind":"completed","data":{}}`, []string{"event 7 (completed)", "no usable time"}},
		{"a time before all times", strings.Replace(row("completed", `{}`), "2025-03-14T09:26:53Z",
			"0000-01-01T00:00:00+01:00", 1), []string{"event 7 (completed)", "no usable time"}},
		{"a time after all times", strings.Replace(row("completed", `{}`), "2025-03-14T09:26:53Z",
			"9999-12-31T23:59:59-01:00", 1), []string{"event 7 (completed)", "no usable time"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := events.DecodeEvent([]byte(tt.text))
			wantError(t, err, tt.words...)
		})
	}
}

func TestNoFactMayHaveAnUnknownField(t *testing.T) {
	for _, kind := range events.Kinds() {
		_, err := events.DecodeEvent([]byte(row(string(kind), `{"color":"red"}`)))
		wantError(t, err, "event 7 ("+string(kind)+")", "unknown field", "color")
	}
}

func TestFactsThatMeanNothingAreRefused(t *testing.T) {
	const noError = "no error"
	tests := []struct{ kind, data, says string }{
		{"started", `{"version":"1.0.0","incarnation":"l","engine":1}`, "no orchestration name"},
		{"started", `{"name":"n","incarnation":"l","engine":1}`, "no version"},
		{"started", `{"name":"n","version":"1.0.0","engine":1}`, "no incarnation"},
		{"started", `{"name":"n","version":"1.0.0","incarnation":"l"}`, "engine 0"},
		{"started", `{"name":"n","version":"1.0.0","incarnation":"l","engine":1,"carried":-1}`, "-1 carried"},
		{"started", `{"name":"n","version":"1.0.0","incarnation":"l","engine":1,"previous":-1}`,
			"previous execution -1"},
		{"started", `{"name":"n","version":"1.0.0","incarnation":"l","engine":1,"parent":{}}`, "incomplete parent"},
		{"started", `{"name":"n","version":"1.0.0","incarnation":"l","engine":1,"parent":{"instance":"i","incarnation":"l","execution":1}}`, "incomplete parent"},
		{"started", `{"name":"n","version":"1.0.0","incarnation":"l","engine":1,"parent":{"color":"red"}}`,
			"unknown field"},
		{"failed", `{}`, noError},
		{"failed", `{"error":{"message":"no"}}`, "without a kind"},
		{"failed", `{"error":{"kind":"application","message":"no","cause":{"color":"red"}}}`, "unknown field"},
		{"cancelled", `{"error":{"message":"no"}}`, "without a kind"},
		{"continued_as_new", `{}`, "no name"},
		{"suspended", `{"error":{}}`, "without a kind"},
		{"activity_scheduled", `{"name":"n"}`, "attempt 0"},
		{"activity_scheduled", `{"name":"n","attempt":1,"first":-4}`, "event -4"},
		{"activity_scheduled", `{"attempt":1}`, "no name"},
		{"activity_scheduled", `{"name":"n","attempt":1,"retry":{}}`, "0 attempts"},
		{"activity_scheduled", `{"name":"n","attempt":1,"retry":{"attempts":2,"growth":"cubic"}}`, "cubic"},
		{"activity_scheduled", `{"name":"n","attempt":1,"start_to_close":5}`, "duration"},
		{"activity_scheduled", `{"name":"n","attempt":1,"input":{"$bytes":5}}`, "payload"},
		{"activity_begun", `{}`, "event 0"},
		{"activity_completed", `{"schedule":-1}`, "event -1"},
		{"activity_failed", `{"error":{"kind":"application"}}`, "event 0"},
		{"activity_failed", `{"schedule":4}`, noError},
		{"step_completed", `{"name":"n"}`, "event 0"},
		{"step_failed", `{"step":2,"name":"n"}`, noError},
		{"timer_created", `{}`, "no time"},
		{"timer_fired", `{}`, "event 0"},
		{"event_awaited", `{}`, "no name"},
		{"event_received", `{"wait":6}`, "no name"},
		{"event_received", `{"name":"n"}`, "event 0"},
		{"message_received", `{}`, "no name"},
		{"mailbox_read", `{}`, "no name"},
		{"child_started", `{"name":"n"}`, "no name"},
		{"child_started", `{"name":"n","instance":"i","parent_close":"explode"}`, `"explode"`},
		{"child_completed", `{}`, "event 0"},
		{"child_failed", `{"schedule":5}`, noError},
		{"launched", `{"instance":"i"}`, "no name"},
		{"sent", `{"instance":"i","name":"n"}`, `sent to ""`},
		{"sent", `{"instance":"i","name":"n","to":"moon"}`, `"moon"`},
		{"sent", `{"to":"mailbox","name":"n"}`, "no name"},
		{"dropped", `{}`, "nothing dropped"},
		{"status_set", `{}`, "status version 0"},
		{"value_set", `{"key":"k"}`, "no time"},
		{"value_set", `{"set":"2025-03-14T09:26:53Z"}`, "no name"},
		{"values_cleared", `{}`, "nothing cleared"},
		{"patched", `{}`, "no name"},
	}
	for _, tt := range tests {
		t.Run(tt.kind+" "+tt.says, func(t *testing.T) {
			_, err := events.DecodeEvent([]byte(row(tt.kind, tt.data)))
			wantError(t, err, "event 7 ("+tt.kind+")", tt.says)
		})
	}
}

func TestEventsThatMeanNothingAreNotWritten(t *testing.T) {
	done := &events.Completed{}
	tests := []struct {
		name  string
		event events.Event
		words []string
	}{
		{"no fact", events.Event{ID: 7, At: at}, []string{"event 7", "no fact"}},
		{"no id", events.Event{At: at, Fact: done}, []string{"event 0 (completed)", "start at 1"}},
		{"no time", events.Event{ID: 7, Fact: done}, []string{"event 7 (completed)", "no usable time"}},
		{"a time out of reach", events.Event{ID: 7, At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Fact: done},
			[]string{"event 7 (completed)", "no usable time"}},
		{"a time before all times", events.Event{ID: 7, At: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), Fact: done},
			[]string{"event 7 (completed)", "no usable time"}},
		{"a fact without what it needs", events.Event{ID: 7, At: at, Fact: &events.Failed{}},
			[]string{"event 7 (failed)", "no error"}},
		{"a time inside it that cannot be written", events.Event{ID: 7, At: at,
			Fact: &events.TimerCreated{FireAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
			[]string{"event 7 (timer_created)", "year"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := events.EncodeEvent(tt.event)
			wantError(t, err, tt.words...)
		})
	}
}

func TestTimesAreWrittenInWholeMicrosecondsOfUTC(t *testing.T) {
	east := time.FixedZone("east", 2*60*60)
	moment := time.Date(2025, 3, 14, 11, 26, 53, 123456789, east)
	want := time.Date(2025, 3, 14, 9, 26, 53, 123456000, time.UTC)
	if got := events.Instant(moment); got != want {
		t.Errorf("the instant is %v", got)
	}
	data := encodeEvent(t, events.Event{ID: 1, At: moment, Fact: &events.Completed{}})
	if !strings.Contains(string(data), `"at":"2025-03-14T09:26:53.123456Z"`) {
		t.Errorf("got %s", data)
	}
	e, err := events.DecodeEvent([]byte(strings.Replace(row("completed", "{}"), "09:26:53Z",
		"11:26:53.123456789+02:00", 1)))
	if err != nil || e.At != want {
		t.Errorf("got %v, %v", e.At, err)
	}
}

func TestFactsFromOutsideAndFactsThatEnd(t *testing.T) {
	outside := "started activity_begun activity_completed activity_failed step_completed step_failed timer_fired " +
		"event_received message_received " +
		"child_completed child_failed cancel_requested suspended resumed terminated"
	ends := "completed failed cancelled terminated continued_as_new"
	var gotOutside, gotEnds []string
	seen := map[events.Kind]bool{}
	for _, x := range eventExamples {
		kind := x.fact.Kind()
		if seen[kind] {
			continue
		}
		seen[kind] = true
		if events.FromOutside(x.fact) {
			gotOutside = append(gotOutside, string(kind))
		}
		if events.Ends(x.fact) {
			gotEnds = append(gotEnds, string(kind))
		}
	}
	sameNames(t, "facts from outside", gotOutside, strings.Fields(outside))
	sameNames(t, "facts that end", gotEnds, strings.Fields(ends))
}

func TestEveryKindIsListedOnce(t *testing.T) {
	seen := map[events.Kind]bool{}
	for _, kind := range events.Kinds() {
		if seen[kind] || kind == "" {
			t.Errorf("kind %q is listed twice or has no name", kind)
		}
		seen[kind] = true
	}
}

func TestSizeCountsTheDataOfUsers(t *testing.T) {
	p := payload(`"12345678"`) // 10 bytes
	e := &failure.Error{Kind: failure.Application, Message: "1234", Stack: "123", Details: p,
		Cause: failure.Errorf(failure.Timeout, "12")}
	const ofError = 4 + 3 + 10 + 2
	tests := []struct {
		fact events.Fact
		want int
	}{
		{&events.Started{Name: "n", Version: "1.0.0", Incarnation: "l", Input: p, Seen: []uint64{1, 2}}, 10 + 16},
		{&events.Completed{}, 0},
		{&events.Completed{Output: p}, 10},
		{&events.Failed{Error: e}, ofError},
		{&events.Cancelled{Output: p, Error: e}, 10 + ofError},
		{&events.Cancelled{}, 0},
		{&events.Suspended{Reason: "why", Error: e}, 3 + ofError},
		{&events.ActivityScheduled{Name: "n", Input: p, Heartbeat: p}, 20},
		{&events.ActivityFailed{Error: e, Heartbeat: p}, ofError + 10},
		{&events.ValueSet{Key: "key", Value: p}, 13},
		{&events.Dropped{Schedules: []int64{1, 2}, Steps: []int64{3}}, 24},
	}
	for _, tt := range tests {
		if got := tt.fact.Size(); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.fact.Kind(), got, tt.want)
		}
	}
}
