package columns_test

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/columns"
)

func TestParagraphs(t *testing.T) {
	long := strings.Repeat("word ", 20)
	for text, want := range map[string]string{
		"":                       "",
		"one\ntwo\n\nthree":      "one two\n\nthree",
		"a list:\n\n  x  1\n  y": "a list:\n\n  x  1\n  y",
		long: strings.TrimSpace(strings.Repeat("word ", 16)) + "\n" +
			strings.TrimSpace(strings.Repeat("word ", 4)),
		"  " + long: "  " + strings.TrimSpace(strings.Repeat("word ", 15)) + "\n    " +
			strings.TrimSpace(strings.Repeat("word ", 5)),
		"  name   " + long: "  name   " + strings.TrimSpace(strings.Repeat("word ", 14)) + "\n         " +
			strings.TrimSpace(strings.Repeat("word ", 6)),
		strings.Repeat("x", 90): strings.Repeat("x", 90),
	} {
		if got := columns.Paragraphs(text); got != want {
			t.Errorf("%q becomes\n%s\nwant\n%s", text, got, want)
		}
	}
}

func TestRow(t *testing.T) {
	if got, want := columns.Row("dev", strings.Repeat("word ", 16), 8),
		"  dev   "+strings.TrimSpace(strings.Repeat("word ", 14))+"\n        word word"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := columns.Row("orchestrator", "it decides", 8), "  orchestrator\n        it decides"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
