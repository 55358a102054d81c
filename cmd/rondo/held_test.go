package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
)

// show explains activity tasks that no worker has, such as those of a worker that has died.
func TestTasksThatNoWorkerHasAreExplained(t *testing.T) {
	now := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	wait := func(name string, age time.Duration) client.Wait {
		return client.Wait{Kind: client.WaitsForActivity, Name: name, Since: now.Add(-age)}
	}
	waits := []client.Wait{wait("work", time.Minute), wait("work", time.Minute), wait("work", 10*time.Second),
		wait("charge", time.Minute), wait("ship", time.Second), // it has just been sent
		{Kind: client.WaitsForTimer, Since: now.Add(-time.Hour)}}
	held := func(instance, name string) client.Held {
		return client.Held{Instance: instance, Activity: name}
	}
	worker := func(more int, holds ...client.Held) client.Process {
		return client.Process{Kind: client.KindWorker, Works: &client.Works{Holds: holds, More: more}}
	}
	const of = "no worker that answers has "
	for what, c := range map[string]struct {
		all   []client.Process
		want  []string // beginnings
		known []string
	}{
		"no worker": {nil, []string{of + `3 of 3 tasks for activity "work"`, of + `1 of 1 task for activity "charge"`}, nil},
		"no worker takes them": {nil, []string{of + `3 of 3 tasks for activity "work"`},
			[]string{`no worker takes activity "charge" with tag "bank"`}},
		"one is missing": {[]client.Process{worker(0, held("i", "work"), held("i", "charge"), held("j", "work")),
			worker(0, held("i", "work"))}, []string{of + `1 of 3 tasks for activity "work": each waits in its queue, or, ` +
			`if its worker has died, is redelivered 30s after the last sign of that worker (--task-ack-wait)`}, nil},
		"all are held": {[]client.Process{worker(0, held("i", "work"), held("i", "work"), held("i", "work"),
			held("i", "charge"))}, nil, nil},
		"a worker lists only some": {[]client.Process{worker(1)}, nil, nil},
	} {
		got := notHeld("i", awaited(waits, now), c.known, c.all)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q; want %q", what, got, c.want)
		}
	}
}
