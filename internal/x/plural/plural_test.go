package plural_test

import (
	"testing"

	"github.com/rondo-run/rondo/internal/x/plural"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0 tasks", 1: "1 task", 2: "2 tasks", -1: "-1 tasks"} {
		if got := plural.Count(n, "task"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
