package coro

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Options say how an activity or an inline step is run.
type Options struct {
	Retry            *events.RetryPolicy
	StartToClose     time.Duration // one attempt, from its start
	ScheduleToStart  time.Duration // one attempt, until its start
	HeartbeatTimeout time.Duration // between two heartbeats
	ScheduleToClose  time.Duration // all attempts together
	Tag              string
	Session          string
}

// check returns an error if an option is not valid.
func (o *Options) check() *failure.Error {
	bad := func(what string) *failure.Error {
		return &failure.Error{Kind: failure.Application, Type: "invalid_options", NonRetryable: true, Message: what}
	}
	durations := []struct {
		name string
		d    time.Duration
	}{{"StartToClose", o.StartToClose}, {"ScheduleToStart", o.ScheduleToStart}, {"HeartbeatTimeout",
		o.HeartbeatTimeout},
		{"ScheduleToClose", o.ScheduleToClose}}
	for _, x := range durations {
		if x.d < 0 || x.d > events.MaxDelay {
			return bad(sprintf("%s: %v is not between 0 and %v", x.name, x.d, time.Duration(events.MaxDelay)))
		}
	}
	if o.Tag != "" {
		if err := events.CheckTag(o.Tag); err != nil {
			return bad(err.Error())
		}
	}
	if o.Session != "" {
		if err := events.CheckSession(o.Session); err != nil {
			return bad(err.Error())
		}
	}
	if o.Retry != nil {
		if err := o.Retry.Check(); err != nil {
			return bad(err.Error())
		}
	}
	return nil
}

// Part is a part of a program, or of a test of one: an orchestration or activity bound to its code.
type Part interface{ RondoPart() }

// ForProcess is a part that says how a process runs, which has no meaning in a test.
type ForProcess interface {
	Part
	OnlyForProcesses()
}

// Pinned is a part that says which version of an orchestration new instances take.
type Pinned interface {
	Part
	PinnedTo() (name, version string)
}
