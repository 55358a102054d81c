package main

import (
	"errors"
	"strings"
	"testing"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A script must not take a truncated output for a complete one.
func TestFailedWriteFailsTheCommand(t *testing.T) {
	for _, args := range [][]string{
		{"--help"},
		{"check", "--help"},
		{"check", "../../examples/guide/testdata/order-ended.json"},
	} {
		var problems strings.Builder
		code := run(t.Context(), args, strings.NewReader(""), fullDisk{}, &problems)
		if code != failed || strings.Count(problems.String(), "no space left on device") != 1 {
			t.Errorf("rondo %s: exit code %d, want %d; it printed %q", strings.Join(args, " "), code, failed,
				problems.String())
		}
	}
}
