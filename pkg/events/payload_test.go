package events_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// nested is JSON that is so many lists deep.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestPayloadsAreKeptWithoutIdleWhiteSpace(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"compact JSON", `{"a":1}`, `{"a":1}`},
		{"JSON with white space", " {\n\t\"a\" : [ 1 , 2 ] }\r\n", `{"a":[1,2]}`},
		{"white space inside strings", `{"a b" : " c "}`, `{"a b":" c "}`},
		{"escapes and order are left alone", `{"b":"\u003c\/","a":1.0e+2,"a":2}`, `{"b":"\u003c\/","a":1.0e+2,"a":2}`},
		{"plain words", " plain  words ", " plain  words "},
		{"white space only", " \n", " \n"},
		{"half of JSON", `{"a": `, `{"a": `},
		{"two values", `1 2`, `1 2`},
		{"not UTF-8", "\"a\xff\" ", "\"a\xff\" "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := events.Canonical([]byte(tt.in)); string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if events.Canonical([]byte{}) != nil {
		t.Error("nothing is not nil")
	}
}

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
				Heartbeat: events.Canonical([]byte(p))}}
			decodesTo(t, encodeEvent(t, x.event()), x.event())

			message := say(&events.WorkFailed{Ref: ref, Error: shortError(), Heartbeat: events.Canonical([]byte(p))})
			w := wire(t, message)
			got, err := events.Decode("rondo", w.Subject, w.Header, w.Body, "")
			if c := message.Content.(*events.WorkFailed); len(c.Heartbeat) > events.MaxHeartbeat {
				c.Heartbeat = nil // too large for a header
			}
			if err != nil || !reflect.DeepEqual(got, message) {
				t.Errorf("at depth %d: the message is not read back: %v", depth, err)
			}
		}
	}
}

func TestBinaryPayloadsAreReadFromIndentedJSON(t *testing.T) {
	var p events.Payload
	if err := json.Unmarshal([]byte("{\n  \"$bytes\" : \"AP8=\"\n}"), &p); err != nil || string(p) != "\x00\xff" {
		t.Errorf("got %q, %v", p, err)
	}
}

func TestBinaryPayloadsThatAreBrokenAreRefused(t *testing.T) {
	for _, text := range []string{`{"$bytes":5}`, `{"$bytes":"?"}`, `{"$bytes":"AP8=","more":1}`} {
		var p events.Payload
		wantError(t, json.Unmarshal([]byte(text), &p), "payload")
	}
}

func TestPayloadsArePrintable(t *testing.T) {
	for in, want := range map[string]string{"": "", `{"a":1}`: `{"a":1}`, "plain": "plain", "\x00\xff": "2 bytes"} {
		if got := payload(in).String(); got != want {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
}

func TestTheDefaultCodecIsJSON(t *testing.T) {
	type order struct {
		SKU string `json:"sku"`
	}
	p, err := events.JSON{}.Encode(order{"<a&b>"})
	if err != nil || string(p) != `{"sku":"<a&b>"}` {
		t.Fatalf("got %s, %v", p, err)
	}
	var o order
	if err := (events.JSON{}).Decode(p, &o); err != nil || o.SKU != "<a&b>" {
		t.Errorf("got %+v, %v", o, err)
	}
	if err := (events.JSON{}).Decode(nil, &o); err != nil || o.SKU != "<a&b>" {
		t.Errorf("nothing changes the value to %+v, %v", o, err)
	}
	_, err = events.JSON{}.Encode(math.Inf(1))
	wantError(t, err, "encode float64 as JSON")
}

func TestPlainWordsAreReadAsText(t *testing.T) {
	for in, want := range map[string]string{`"a b"`: "a b", "a b": "a b", "don't": "don't", `{"a": `: `{"a": `} {
		var s string
		if err := (events.JSON{}).Decode(payload(in), &s); err != nil || s != want {
			t.Errorf("%q is read as %q, %v", in, s, err)
		}
	}
	var s string
	wantError(t, events.JSON{}.Decode(payload("5"), &s), "decode 5 into *string")
	wantError(t, events.JSON{}.Decode(payload("\xff"), &s), "decode 1 bytes into *string")
	var n int
	wantError(t, events.JSON{}.Decode(payload("five"), &n), "decode five into *int")
}

func TestADecodingErrorShowsTheBeginningOnly(t *testing.T) {
	var n int
	err := events.JSON{}.Decode(payload(strings.Repeat("日", 1000)), &n)
	wantError(t, err, "日…")
	if len(err.Error()) > 200 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	var typeError *json.SyntaxError
	if !errors.As(err, &typeError) {
		t.Error("what encoding/json says is lost")
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

// Texts are read and written as encoding/json does, whatever is in them.
func FuzzTextAsJSON(f *testing.F) {
	for _, s := range []string{"", "plain ~", `"`, `a"b`, `a\b`, "<&>", "\x7f", "\x00\n", "é\u2028", "\xff", `"a"`,
		`"a\u0041"`, `"a`, " \"a\" ", `"é"`, "\"\xff\"", "null"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := events.JSON{}.Encode(s)
		var want strings.Builder
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if wantErr := enc.Encode(s); wantErr != nil || err != nil ||
			string(got) != strings.TrimSuffix(want.String(), "\n") {
			t.Errorf("%q is written as %s (%v), want %s (%v)", s, got, err, want.String(), wantErr)
		}
		var read, wantRead string
		wantErr := json.Unmarshal([]byte(s), &wantRead)
		if err := (events.JSON{}).Decode(events.Payload(s), &read); wantErr == nil && (err != nil || read != wantRead) {
			t.Errorf("%s is read as %q (%v), want %q", s, read, err, wantRead)
		}
	})
}
