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
