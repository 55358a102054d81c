package main

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestOutputsAreCompared(t *testing.T) {
	all := newInstances("W0")
	all.add(plan{number: 1, count: 1})
	all.add(plan{number: 2, count: 1, open: true})
	o := &oracle{all: all}
	x, y := hundredBytes(1), hundredBytes(2)
	cases := []struct {
		instance string
		status   round.Status
		output   string
		want     string // part of the error; "" if there is none
	}{
		{"w0-00000001", round.Completed, `{"count":1,"data":"` + x + `"}`, ""},
		{"w0-00000001", round.Completed, `{"count":2,"data":"` + x + `"}`, "should have completed with"},
		{"w0-00000001", round.Completed, `{"count":1,"data":"` + y + `"}`, "should have completed with"},
		{"w0-00000001", round.Completed, `what?`, "the output of w0-00000001"},
		{"w0-00000001", round.Failed, ``, "should have completed with"},
		{"w0-00000001", round.Running, ``, "should have completed with"},
		{"w0-00000002", round.Running, ``, ""},
		{"w0-00000002", round.Failed, ``, "should be waiting"},
		{"w0-00000003", round.Completed, `{"count":1,"data":"` + x + `"}`, "nobody has started w0-00000003"},
		{"w1-00000001", round.Completed, `{"count":1,"data":"` + x + `"}`, "nobody has started w1-00000001"},
	}
	for _, c := range cases {
		err := o.checkOutput(history.Info{Instance: c.instance,
			Row: round.Row{Status: c.status, Output: codec.Payload(c.output)}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s with %q: %v, want %q", c.instance, c.status, c.output, err, c.want)
		}
	}
}
