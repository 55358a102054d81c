package codec_test

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/codec"
)

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
	for _, s := range append(bareExamples, deep(50), deep(8_999), deep(9_001), strings.Repeat("[", 20_000)) {
		if got, want := codec.IsBare([]byte(s)), codec.SlowlyBare([]byte(s)); got != want {
			t.Errorf("%.60q: %v, want %v", s, got, want)
		}
	}
}

// isBare finds the same payloads as encoding/json and a second look.
func FuzzBare(f *testing.F) {
	for _, s := range bareExamples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if got, want := codec.IsBare(p), codec.SlowlyBare(p); got != want {
			t.Errorf("%q: %v, want %v", p, got, want)
		}
	})
}
