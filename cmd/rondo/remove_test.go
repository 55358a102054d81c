package main

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/client"
)

// TestDeletedByForceIsPrinted: the command prints what a deletion by force has withdrawn, and what
// it has not.
func TestDeletedByForceIsPrinted(t *testing.T) {
	for want, w := range map[string]client.Withdrawn{
		"": {},
		"\n  terminated before: 2 instances; withdrawn: 1 activity task, 3 timers": {Instances: 2, Tasks: 1, Timers: 3},
		"\n  terminated before: 1 instance; withdrawn: 0 activity tasks, 0 timers" +
			"\n  not counted: what 1 instance had withdrawn" +
			"\n  not terminated in time: 2 instances; their activities may still be executed": {Instances: 1,
			Uncounted: 1, NotEnded: 2},
	} {
		var out strings.Builder
		c := removeCommands{&cli{printer: printer{out: &out}}}
		d := client.Removed{Instances: 2, Executions: 3, Events: 4, Withdrawn: w}
		if err := c.removed(d, "deleted"); err != nil {
			t.Fatal(err)
		}
		if got := "deleted: 2 instances, 3 executions, 4 events" + want + "\n"; out.String() != got {
			t.Errorf("printed %q, want %q", out.String(), got)
		}
	}
}
