package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/process"
)

// TestDoctorSaysWhatItCompared: the line about the system says which ids doctor has seen. It calls
// nothing good that it has not seen.
func TestDoctorSaysWhatItCompared(t *testing.T) {
	t.Parallel()
	const (
		here = "ONEONEONEONE"
		one  = "one:ONEONEONEONE"
		two  = "two:TWOTWOTWOTWO"
	)
	for name, c := range map[string]struct {
		inNATS        string
		orchestrators []string // the id, and the system of the database
		want          string
	}{
		"no orchestrator": {here, nil, "look  system         not compared, since no orchestrator names the system " +
			"of its database; NATS has system oneoneon, whose last beat was at 2027-01-01T12:00:00Z"},
		"nothing": {"", nil, "look  system         not compared, since no orchestrator"},
		"agreement": {here, []string{one}, "ok    system         the databases of the orchestrators have " +
			"system oneoneon; NATS has system oneoneon"},
		"another database": {here, []string{two},
			"bad   system         the databases of the orchestrators have the systems twotwotw of two; NATS has " +
				"system oneoneon"},
		"two databases": {here, []string{one, two},
			"bad   system         the databases of the orchestrators have the systems oneoneon of one; " +
				"twotwotw of two"},
		"nothing in NATS": {"", []string{one},
			"look  system         the databases of the orchestrators have system oneoneon; NATS has no system"},
		"an older build": {here, []string{one, "old:"},
			"look  system         the databases of the orchestrators have system oneoneon; 1 more do not name theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			b := natstest.Connect(t, server, natsbroker.Config{})
			if c.inNATS != "" {
				entry := fmt.Sprintf(`{"system":%q,"beats":7,"beat_at":"2027-01-01T12:00:00Z"}`, c.inNATS)
				if err := b.Put(t.Context(), broker.KeySystem, []byte(entry), 0); err != nil {
					t.Fatal(err)
				}
			}
			for _, o := range c.orchestrators {
				id, system, _ := strings.Cut(o, ":")
				stop, err := process.Handle(b, func(context.Context) process.Process {
					return process.Process{Kind: process.Orchestrator, ID: id, System: system}
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stop)
			}
			d := &deployed{t: t, where: []string{"--nats", server.URL()}}
			_, text := d.say("doctor")
			if !strings.Contains(text, c.want) || !strings.Contains(text, "says in its log why") {
				t.Errorf("doctor says\n%s\nwant %s", text, c.want)
			}
		})
	}
}
