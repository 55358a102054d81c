package printable_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/x/printable"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"plain\n\ttext":                 "plain\n\ttext",
		"Grüße, 世界 ⏎ 👩‍🚀":               "Grüße, 世界 ⏎ 👩‍🚀",
		"\x1b[31mred\x1b[0m":            `\u001b[31mred\u001b[0m`,
		"\x1b]0;title\a":                `\u001b]0;title\u0007`,
		"failed\rcompleted":             `failed\u000dcompleted`,
		"failed\b\b\x7f":                `failed\u0008\u0008\u007f`,
		"C1: \u009b31m":                 `C1: \u009b31m`,
		"order-\u202e1":                 `order-\u202e1`,
		"a\u2028b\u2029c\u2066d\u200fe": `a\u2028b\u2029c\u2066d\u200fe`,
		"no UTF-8: \xff\x9b":            `no UTF-8: \ufffd\ufffd`,
		"\ufffd":                        "\ufffd",
	} {
		if got := printable.Text(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

func TestLineAndBelow(t *testing.T) {
	if got := printable.Line("a\n\tb\r"); got != `a\u000a\u0009b\u000d` {
		t.Errorf("%q", got)
	}
	if got := printable.Below("a\nb\x1b\nc", "  "); got != "a\n  b\\u001b\n  c" {
		t.Errorf("%q", got)
	}
}

// JSON that was made printable has the values it had.
func TestJSONKeepsItsMeaning(t *testing.T) {
	const text = "a\u009b\u202e\u007f\\u1b \u2028 ü"
	form := `{"x":"` + strings.ReplaceAll(text, `\`, `\\`) + `"}`
	var got struct{ X string }
	if err := json.Unmarshal([]byte(printable.Text(form)), &got); err != nil || got.X != text {
		t.Errorf("%q, %v; want %q", got.X, err, text)
	}
}

// A character whose bytes come in several writes stays whole.
func TestWriterInAnyPieces(t *testing.T) {
	const text = "Grüße 👩‍🚀\x1b[2J\xffz\xe4\xb8\n"
	for size := 1; size <= len(text); size++ {
		var out strings.Builder
		w := printable.To(&out)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := w.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		if got, want := out.String(), printable.Text(text); got != want {
			t.Errorf("in pieces of %d: %q; want %q", size, got, want)
		}
	}
}
