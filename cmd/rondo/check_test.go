package main

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/check"
)

func TestCheckSaysThatClocksDiffer(t *testing.T) {
	for ahead, want := range map[float64]string{
		200.5: "clock          that of this machine is 3m20.5s ahead of that of the database, which the check uses\n",
		-90:   "clock          that of this machine is 1m30s behind that of the database, which the check uses\n",
		0:     "",
	} {
		var out strings.Builder
		k := &checking{c: &cli{printer: printer{out: &out}}}
		if err := k.print(check.Report{ClockAhead: ahead}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "clock") != (want != "") {
			t.Errorf("%v s: printed is\n%s", ahead, out.String())
		}
	}
}
