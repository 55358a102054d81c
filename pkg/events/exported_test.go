package events_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
)

// exported has every example of an event.
func exported() events.Export {
	x := events.Export{Instance: "order-7", Execution: 2}
	for i, example := range eventExamples {
		e := example.event()
		e.ID = int64(i + 1)
		x.Events = append(x.Events, e)
	}
	return x
}

func TestAnExportedHistoryIsReadAsItWas(t *testing.T) {
	want := exported()
	var compact bytes.Buffer
	spaced := indented(t, want)
	if err := json.Compact(&compact, spaced); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"indented": spaced, "compact": compact.Bytes()} {
		var got events.Export
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sameExport(t, name, got, want)
	}
}

// json.Marshal escapes < > & for HTML. A history written that way means the same, but its payloads
// are not the same bytes.
func TestAnExportedHistoryMayBeEscapedForHTML(t *testing.T) {
	data, err := json.Marshal(exported())
	if err != nil {
		t.Fatal(err)
	}
	var x events.Export
	if err := json.Unmarshal(data, &x); err != nil {
		t.Fatal(err)
	}
	var got, want any
	for _, pair := range []struct {
		x   events.Export
		out *any
	}{{x, &got}, {exported(), &want}} {
		if err := json.Unmarshal(indented(t, pair.x), pair.out); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func sameExport(t *testing.T, name string, got, want events.Export) {
	t.Helper()
	if len(got.Events) != len(want.Events) || got.Instance != want.Instance || got.Execution != want.Execution {
		t.Fatalf("%s: got %d events of %s, execution %d", name, len(got.Events), got.Instance, got.Execution)
	}
	for i, e := range got.Events {
		if !reflect.DeepEqual(e, want.Events[i]) {
			t.Errorf("%s: read as\n%+v\nwant\n%+v", name, e.Fact, want.Events[i].Fact)
		}
	}
}

func TestAnExportedHistoryThatIsNotUnderstoodIsRefused(t *testing.T) {
	tests := []struct {
		name, text string
		words      []string
	}{
		{"no events", `{"instance":"i","execution":1}`, nil},
		{"an unknown field", `{"instance":"i","color":"red"}`, []string{"exported history", "unknown field", "color"}},
		{"an unknown kind", `{"instance":"i","execution":1,"events":[` + row("exploded", "{}") + `]}`,
			[]string{"exported history", "event 7", `"exploded"`}},
		{"an event that means nothing", `{"events":[` + row("failed", "{}") + `]}`,
			[]string{"exported history", "event 7 (failed)", "no error"}},
		{"another form", `[1]`, []string{"exported history"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var x events.Export
			wantError(t, json.Unmarshal([]byte(tt.text), &x), tt.words...)
		})
	}
	_, err := json.Marshal(events.Export{Events: []events.Event{{ID: 7, At: at, Fact: &events.Failed{}}}})
	wantError(t, err, "event 7 (failed)", "no error")
}
