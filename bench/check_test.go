package main

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestOutputsAreCompared(t *testing.T) {
	r := &run{system: &system{driver: &driver{begun: map[string]*begun{
		"a": {instance: "a", want: echoed{1, "x"}},
		"b": {instance: "b", want: echoed{1, "x"}, open: true},
	}}}}
	cases := []struct {
		instance string
		status   round.Status
		output   string
		want     string // part of the error; "" if there is none
	}{
		{"a", round.Completed, `{"count":1,"data":"x"}`, ""},
		{"a", round.Completed, `{"count":2,"data":"x"}`, "should have completed with"},
		{"a", round.Completed, `{"count":1,"data":"y"}`, "should have completed with"},
		{"a", round.Completed, `what?`, "the output of a"},
		{"a", round.Failed, ``, "should have completed with"},
		{"a", round.Running, ``, "should have completed with"},
		{"b", round.Running, ``, ""},
		{"b", round.Failed, ``, "should be waiting"},
		{"c", round.Completed, `{"count":1,"data":"x"}`, "nobody has started c"},
	}
	for _, c := range cases {
		err := r.checkOutput(history.Info{Instance: c.instance, Row: round.Row{Status: c.status, Output: events.Payload(c.output)}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s with %q: %v, want %q", c.instance, c.status, c.output, err, c.want)
		}
	}
}
