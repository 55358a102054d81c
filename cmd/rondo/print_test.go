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

// TestCheckOfNothing: a misspelt flag must not pass for a proof.
func TestCheckOfNothing(t *testing.T) {
	const file = "../../examples/guide/testdata/order-ended.json"
	for _, only := range [][]string{{"--name", "typo"}, {"--prefix-of-id", "typo"}} {
		var out, problems strings.Builder
		code := run(t.Context(), append([]string{"check", file}, only...), strings.NewReader(""), &out, &problems)
		if code != notFound || !strings.Contains(problems.String(), "no instance is as the flags say") ||
			strings.Contains(out.String(), "nothing is wrong") {
			t.Errorf("%v: exit code %d, %q and %q", only, code, out.String(), problems.String())
		}
	}
	for _, only := range [][]string{{"--status", "failed"}, {"--version", "9.9.9"},
		{"--name", "fulfil", "--created-before", "2001-01-01T00:00:00Z"}} {
		var out, problems strings.Builder
		code := run(t.Context(), append([]string{"check", file}, only...), strings.NewReader(""), &out, &problems)
		if code != 0 || !strings.Contains(out.String(), "no instance is as the flags say") || problems.Len() > 0 {
			t.Errorf("%v: exit code %d, %q and %q", only, code, out.String(), problems.String())
		}
	}
}

// One long id moves the rest of its own row, and no other row.
func TestALongCellWidensNoColumn(t *testing.T) {
	var out strings.Builder
	p := printer{out: &out}
	long := strings.Repeat("x", 200)
	if err := p.table([]string{"INSTANCE", "STATUS"}, [][]string{{"order-10ü", "failed"}, {long, "running"},
		{"a", "completed"}}); err != nil {
		t.Fatal(err)
	}
	want := "INSTANCE   STATUS\norder-10ü  failed\n" + long + "  running\na          completed\n"
	if out.String() != want {
		t.Errorf("the table is\n%s\nwant\n%s", out.String(), want)
	}
}
