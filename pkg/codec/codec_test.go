package codec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/codec"
)

// deep is JSON that is so many lists deep.
func deep(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// wantError checks that an error has some words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one that says %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

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
			if got := codec.Canonical([]byte(tt.in)); string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if codec.Canonical([]byte{}) != nil {
		t.Error("nothing is not nil")
	}
}

func TestBinaryPayloadsAreReadFromIndentedJSON(t *testing.T) {
	var p codec.Payload
	if err := json.Unmarshal([]byte("{\n  \"$bytes\" : \"AP8=\"\n}"), &p); err != nil || string(p) != "\x00\xff" {
		t.Errorf("got %q, %v", p, err)
	}
}

func TestBinaryPayloadsThatAreBrokenAreRefused(t *testing.T) {
	for _, text := range []string{`{"$bytes":5}`, `{"$bytes":"?"}`, `{"$bytes":"AP8=","more":1}`} {
		var p codec.Payload
		wantError(t, json.Unmarshal([]byte(text), &p), "payload")
	}
}

func TestPayloadsArePrintable(t *testing.T) {
	for in, want := range map[string]string{"": "", `{"a":1}`: `{"a":1}`, "plain": "plain", "\x00\xff": "2 bytes"} {
		if got := codec.Payload(in).String(); got != want {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
}

func TestTheDefaultCodecIsJSON(t *testing.T) {
	type order struct {
		SKU string `json:"sku"`
	}
	p, err := codec.JSON{}.Encode(order{"<a&b>"})
	if err != nil || string(p) != `{"sku":"<a&b>"}` {
		t.Fatalf("got %s, %v", p, err)
	}
	var o order
	if err := (codec.JSON{}).Decode(p, &o); err != nil || o.SKU != "<a&b>" {
		t.Errorf("got %+v, %v", o, err)
	}
	if err := (codec.JSON{}).Decode(nil, &o); err != nil || o.SKU != "<a&b>" {
		t.Errorf("nothing changes the value to %+v, %v", o, err)
	}
	_, err = codec.JSON{}.Encode(math.Inf(1))
	wantError(t, err, "encode float64 as JSON")
}

func TestPlainWordsAreReadAsText(t *testing.T) {
	for in, want := range map[string]string{`"a b"`: "a b", "a b": "a b", "don't": "don't", `{"a": `: `{"a": `} {
		var s string
		if err := (codec.JSON{}).Decode(codec.Payload(in), &s); err != nil || s != want {
			t.Errorf("%q is read as %q, %v", in, s, err)
		}
	}
	var s string
	wantError(t, codec.JSON{}.Decode(codec.Payload("5"), &s), "decode 5 into *string")
	wantError(t, codec.JSON{}.Decode(codec.Payload("\xff"), &s), "decode 1 byte into *string")
	var n int
	wantError(t, codec.JSON{}.Decode(codec.Payload("five"), &n), "decode five into *int")
}

func TestADecodingErrorShowsTheBeginningOnly(t *testing.T) {
	var n int
	err := codec.JSON{}.Decode(codec.Payload(strings.Repeat("日", 1000)), &n)
	wantError(t, err, "日…")
	if len(err.Error()) > 200 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	var typeError *json.SyntaxError
	if !errors.As(err, &typeError) {
		t.Error("what encoding/json says is lost")
	}
}

// Texts are read and written as encoding/json does, whatever is in them.
func FuzzTextAsJSON(f *testing.F) {
	for _, s := range []string{"", "plain ~", `"`, `a"b`, `a\b`, "<&>", "\x7f", "\x00\n", "é\u2028", "\xff", `"a"`,
		`"a\u0041"`, `"a`, " \"a\" ", `"é"`, "\"\xff\"", "null"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := codec.JSON{}.Encode(s)
		var want strings.Builder
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if wantErr := enc.Encode(s); wantErr != nil || err != nil ||
			string(got) != strings.TrimSuffix(want.String(), "\n") {
			t.Errorf("%q is written as %s (%v), want %s (%v)", s, got, err, want.String(), wantErr)
		}
		var read, wantRead string
		wantErr := json.Unmarshal([]byte(s), &wantRead)
		if err := (codec.JSON{}).Decode(codec.Payload(s), &read); wantErr == nil && (err != nil || read != wantRead) {
			t.Errorf("%s is read as %q (%v), want %q", s, read, err, wantRead)
		}
	})
}

func TestStrictDecoding(t *testing.T) {
	type order struct {
		Cents int `json:"cents"`
	}
	for _, x := range []struct {
		data string
		into any
		want string // the value, or the error
	}{
		{`{"cents":5}`, new(order), "{5}"},
		{` {"cents":5} `, new(order), "{5}"},
		{`{"cents":5,"crdit":1}`, new(order), `unknown field "crdit"`},
		{`{"cents":5} {}`, new(order), "invalid character '{' after top-level value"},
		{`{"cents":"5"}`, new(order), "cannot unmarshal string"},
		{`null`, new(order), "a value is needed"},
		{``, new(order), "a value is needed"},
		{`"plain"`, new(string), "plain"},
		{`"a\u0062"`, new(string), "ab"},
		{`"open`, new(string), `"open`},
		{`a word`, new(string), "a word"},
		{`5`, new(string), "cannot unmarshal number"},
		{`5`, new(int), "5"},
		{`5 6`, new(int), "invalid character '6' after top-level value"},
	} {
		err := codec.JSON{}.DecodeStrict(codec.Payload(x.data), x.into)
		got := fmt.Sprint(reflect.ValueOf(x.into).Elem())
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, x.want) {
			t.Errorf("%s into %T: %s, want %s", x.data, x.into, got, x.want)
		}
	}
}
