package events_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// The examples are short on purpose, so that the fuzzer tries many; large and deep ones are in the
// other tests.

// Each decoded message can be encoded, and is decoded again as the same.
func FuzzDecodeEvent(f *testing.F) {
	for _, x := range eventExamples {
		f.Add(encodeEvent(f, x.event()))
	}
	for _, s := range []string{
		"", "null", "{}", "[]", row("completed", "null"), row("completed", `{"output":{"$bytes":""}}`),
		row("completed", `{"output":{ "$bytes" : null}}`),
		row("completed", `{"output": { "a" : 1 } }`), row("completed", "{\"output\":\"\xff\"}"),
		row("completed", `{"output":"\ud800"}`),
		row("completed", `{"output":`+nested(50)+`}`), row("completed", `{"OUTPUT":1,"output":2}`),
		row("started", `{"name":"n","version":"v","incarnation":"l","engine":1,"seen":[],"attributes":{}}`),
		row("activity_scheduled",
			`{"name":"n","attempt":1,"not_before":"0001-01-01T00:00:00Z","start_by":"2025-03-14T09:26:53.1234567891+02:00"}`),
		row("activity_scheduled",
			`{"name":"n","attempt":1,"retry":{"attempts":1,"factor":1e-0,"jitter":-0,"non_retryable_types":[]}}`),
		row("failed", `{"error":{"kind":"k","cause":{"cause":{}},"details":null}}`),
		row("dropped", `{"schedules":[],"steps":[1]}`),
		`{"id":1,"at":"0000-01-01T00:00:00+01:00","kind":"completed","data":{}}`,
		`{"id":1,"at":"9999-12-31T23:59:59-01:00","kind":"completed","data":{}}`,
		`{"id":1,"at":"0001-01-01T00:00:00.0000001Z","kind":"completed","data":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := events.DecodeEvent(data)
		if err != nil {
			return
		}
		written := encodeEvent(t, first)
		sameAsMarshal(t, first.Fact)
		second, err := events.DecodeEvent(written)
		if err != nil {
			t.Fatalf("what was written is not read: %v\n%s", err, written)
		}
		if again := encodeEvent(t, second); !bytes.Equal(written, again) {
			t.Errorf("written once as\n%s\nthen as\n%s", written, again)
		}
		if !reflect.DeepEqual(normal(&first), normal(&second)) {
			t.Errorf("read first as\n%+v\nthen as\n%+v", first.Fact, second.Fact)
		}
	})
}

// lines writes headers as the fuzzer changes them: one value a line.
func lines(h events.Header) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[key] {
			fmt.Fprintf(&b, "%s: %s\n", key, value)
		}
	}
	return b.String()
}

func fromLines(s string) events.Header {
	h := events.Header{}
	for line := range strings.Lines(s) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
			h[key] = append(h[key], value)
		}
	}
	return h
}

func FuzzDecodeMessage(f *testing.F) {
	for _, x := range messageExamples {
		w := wire(f, x.message)
		f.Add(w.Subject, lines(w.Header), w.Body)
	}
	const incarnation = "Rondo-Incarnation: l\n"
	for _, m := range []struct{ subject, header, body string }{
		{"rondo", "", ""}, {"rondo..", "", ""}, {"rondo.wake..x", "", ""}, {"rondo.start.a.%", "", ""},
		{"rondo.wake.%ff.x", "", ""}, {"rondo.task..a.1-1.x", incarnation + "Rondo-Attempt: 1\n", ""},
		{"rondo.task.%5F.*.1-1.>", incarnation + "Rondo-Attempt: +1\n", ""},
		{"rondo.control.cancel.x", "", `"\"quoted\""`}, {"rondo.control.cancel.x", "", ` "a" `},
		{"rondo.control.cancel.x", "", `"null"`}, {"rondo.control.cancel.x", "", "\"a\xff"},
		{"rondo.task-failed.1-1.x", incarnation, ""},
		{"rondo.task-failed.1-1.x", incarnation, `{"message":"m","cause":{"kind":""}}`},
		{"rondo.task-failed.1-1.x", incarnation, `{"kind":"k","details":{"$bytes":""}}`},
		{"rondo.task-failed.1-1.x", incarnation + "Rondo-Heartbeat: {\"$bytes\":\"\"}\n", "\x00\xff\u2028"},
		{"rondo.task-failed.1-1.x", incarnation + "Rondo-Heartbeat: null\n", strings.Repeat("\x01", 50)},
		{"rondo.timer-due.1-1.x", incarnation + "Rondo-Due: 9999-12-31T23:59:59-23:00\n", ""},
		{"rondo.timer-due.1-1.x", incarnation + "Rondo-Due: 0000-01-01T00:00:00+01:00\n", ""},
		{"rondo.timer-due.1-1.x", incarnation + "Rondo-Due: 0001-01-01T00:00:00Z\n", ""},
		{"rondo.timer-due.01-01.x", "Rondo-Incarnation: \xff\n", ""},
		{"rondo.child-ended.1-1.x", incarnation + "Rondo-Outcome: done\n", `{ "$bytes": 5 }`},
		{"rondo.internal_start.a.x", "Rondo-Parent: 1-1.l.a.b\ntraceparent: \xff\n", "{ }"},
		{"rondo.internal_start.a.x~1%2E1", "Rondo-Id: start/1-1/l/x\n", "1 2"},
		{"rondo.start.a.x", "Rondo-Attributes: {}\nNats-Msg-Id: a\x00\n", ""},
		{"rondo.start.a.x", "Rondo-Attributes: {\"a\":null}\nce-id: \xff\n", ""},
		{"rondo.task._.a.1-1.x",
			incarnation + "Rondo-Attempt: 1\nRondo-Start-To-Close: " +
				"-9223372036854775808ns\nRondo-Version: \xff\n", nested(50)},
	} {
		f.Add(m.subject, m.header, []byte(m.body))
	}
	f.Fuzz(func(t *testing.T, subject, header string, body []byte) {
		first, err := events.Decode(events.DefaultPrefix, subject, fromLines(header), body, "fallback")
		if err != nil {
			return
		}
		w := wire(t, first)
		if in := subject[strings.LastIndexByte(subject, '.')+1:]; in != events.EncodeToken(first.Instance) {
			t.Errorf("%q is read as the instance %q, which belongs to another partition", in, first.Instance)
		}
		if strings.ContainsAny(w.Subject, "*> \t\r\n\x00") || strings.Contains(w.Subject, "..") ||
			!utf8.ValidString(w.Subject) {
			t.Errorf("the subject %q is none that NATS takes", w.Subject)
		}
		second, err := events.Decode(events.DefaultPrefix, w.Subject, w.Header, w.Body, "another fallback")
		if err != nil {
			t.Fatalf("what was written is not read: %v\n%s", err, printed(w))
		}
		if !reflect.DeepEqual(normal(&first), normal(&second)) {
			t.Errorf("read first as\n%+v %+v\nthen as\n%+v %+v", first, first.Content, second, second.Content)
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "order-7", "a.b", "%", "%2E", "*", ">", " ", "\x00\x7f\xff", "日本",
		"a/b:c@d+e=f,g~h_i"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := events.EncodeToken(s)
		for i := range len(token) {
			if c := token[i]; c <= ' ' || c >= 0x7f || c == '.' || c == '*' || c == '>' {
				t.Errorf("%q is encoded as %q, with the byte %q", s, token, c)
			}
		}
		if back, err := events.DecodeToken(token); back != s || err != nil {
			t.Errorf("%q is encoded as %q and decoded as %q, %v", s, token, back, err)
		}
		if text, err := events.DecodeToken(s); err == nil {
			if back, err := events.DecodeToken(events.EncodeToken(text)); back != text || err != nil {
				t.Errorf("%q is decoded as %q, then as %q, %v", s, text, back, err)
			}
		}
	})
}

// Code sees the same bytes before and after a replay.
func FuzzPayload(f *testing.F) {
	for _, s := range []string{
		"", "null", " ", "plain words", `{"a":1}`, ` { "a" : [ 1 , 2 ] } `, `"a \" b"`, `"\\"`, "\"\u2028<&>\"", "\xff",
		"\"\xff\"", "1 2", "-0", "1e999", `"\ud800"`,
		`{"$bytes":"AP8="}`, `{"$bytes":5}`, `{"$bytes":`, ` { "$bytes" : "AP8=" } `, `{"$bytes" :"AP8="}`,
		`{"\u0024bytes":"AP8="}`, nested(50),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		given := bytes.Clone(data)
		canonical := codec.Canonical(data)
		if !bytes.Equal(data, given) {
			t.Fatal("the bytes given have been changed")
		}
		if again := codec.Canonical(canonical); !bytes.Equal(again, canonical) {
			t.Errorf("%q becomes %q, then %q", data, canonical, again)
		}
		for _, p := range []codec.Payload{canonical, data} {
			fact := &events.ActivityFailed{Schedule: 1, Error: &failure.Error{Kind: "k", Details: p}, Heartbeat: p}
			e, err := events.DecodeEvent(encodeEvent(t, eventExample{fact: fact}.event()))
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Fact.(*events.ActivityFailed); !bytes.Equal(got.Heartbeat, p) ||
				!bytes.Equal(got.Error.Details, p) {
				t.Errorf("%q is read back as %q and %q", p, got.Heartbeat, got.Error.Details)
			}
		}
	})
}
