package events_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// nested is JSON that is so many lists deep.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestPayloadsStandInJSONAsPeopleReadThem(t *testing.T) {
	tests := []struct{ name, payload, want string }{
		{"JSON", `{"a":"<&>"}`, `{"a":"<&>"}`},
		{"null", "null", "null"},
		{"text", `"a"`, `"a"`},
		{"JSON with white space", `{ "a": 1 }`, `{"$bytes":"eyAiYSI6IDEgfQ=="}`},
		{"JSON with white space in a text only", `"a \" b"`, `"a \" b"`},
		{"plain words", "plain words", `{"$bytes":"cGxhaW4gd29yZHM="}`},
		{"binary", "\x00\xff", `{"$bytes":"AP8="}`},
		{"what looks like binary", `{"$bytes":"AP8="}`, `{"$bytes":"eyIkYnl0ZXMiOiJBUDg9In0="}`},
		{"what looks like binary but is none", `{"$bytes":5}`, `{"$bytes":"eyIkYnl0ZXMiOjV9"}`},
		{"a binary value inside another", `[{"$bytes":"AP8="}]`, `[{"$bytes":"AP8="}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := eventExample{fact: &events.Completed{Output: payload(tt.payload)}}
			data := encodeEvent(t, x.event())
			if !strings.Contains(string(data), `"data":{"output":`+tt.want+`}`) {
				t.Errorf("got %s\nwant the output %s", data, tt.want)
			}
			decodesTo(t, data, x.event())
		})
	}
}

// A deep payload must never keep an event from being written or read.
func TestPayloadsMayNestAsDeepAsTheyLike(t *testing.T) {
	for _, depth := range []int{100, 8_990, 9_000, 9_001, 9_998, 9_999, 10_000, 10_001, 100_000} {
		for _, p := range []string{nested(depth), strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)} {
			x := eventExample{fact: &events.ActivityFailed{Schedule: 4, Error: huge("a", 7),
				Heartbeat: codec.Canonical([]byte(p))}}
			decodesTo(t, encodeEvent(t, x.event()), x.event())

			message := say(&events.TaskFailed{Ref: ref, Error: shortError(), Heartbeat: codec.Canonical([]byte(p))})
			w := wire(t, message)
			got, err := events.Decode("rondo", w.Subject, w.Header, w.Body, "")
			if c := message.Content.(*events.TaskFailed); len(c.Heartbeat) > events.MaxHeartbeat {
				c.Heartbeat = nil // too large for a header
			}
			if err != nil || !reflect.DeepEqual(got, message) {
				t.Errorf("at depth %d: the message is not read back: %v", depth, err)
			}
		}
	}
}

func TestDurationsReadWell(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: `"0s"`, 90 * time.Second: `"1m30s"`, -time.Millisecond: `"-1ms"`,
		math.MinInt64: `"-2562047h47m16.854775808s"`,
	} {
		data, err := json.Marshal(events.Duration(d))
		if err != nil || string(data) != want {
			t.Errorf("%d is written as %s, %v", d, data, err)
		}
		var back events.Duration
		if err := json.Unmarshal(data, &back); err != nil || back != events.Duration(d) {
			t.Errorf("%s is read as %d, %v", data, back, err)
		}
	}
	for _, text := range []string{"5", "null", `""`, `"five"`, `"5"`} {
		var d events.Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s is read as %v", text, d)
		}
	}
}
