package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestDoctorTellsOfManyThatWaitInOneLine: of each reason, however many instances wait, and however
// many orchestrators have seen them.
func TestDoctorTellsOfManyThatWaitInOneLine(t *testing.T) {
	var e examination
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("report@%02d", i), fmt.Sprintf("report@%02d", i))
	}
	e.waiting(map[string][]string{`no orchestrator has "report"`: many, `no orchestrator has "a"`: {"x", "y", "x"},
		"it is newer": {"z", "z"}})
	var got []string
	for _, f := range e.found {
		got = append(got, f.Detail)
	}
	want := []string{"z waits: it is newer", `x, y wait: no orchestrator has "a"`,
		`report@00, report@01, report@02 and 47 more wait: no orchestrator has "report"`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}
