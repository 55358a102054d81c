package coro

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Options say how an activity or an inline step is run.
type Options struct {
	Retry     *events.RetryPolicy
	Timeout   time.Duration // one attempt, from its start
	ToStart   time.Duration // one attempt, until its start
	Heartbeat time.Duration // between two signs of incarnation
	Overall   time.Duration // all attempts together
	Tag       string
	Session   string
	Priority  int
}

// check tells what is wrong with the options.
func (o *Options) check() *events.Error {
	bad := func(what string) *events.Error {
		return &events.Error{Kind: events.Application, Type: "invalid_options", Final: true, Message: what}
	}
	durations := []struct {
		name string
		d    time.Duration
	}{{"Timeout", o.Timeout}, {"TimeoutToStart", o.ToStart}, {"TimeoutHeartbeat", o.Heartbeat},
		{"TimeoutOverall", o.Overall}}
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

// ActivityOption and StepOption are what the options of package activity are.
type (
	ActivityOption interface{ ApplyActivity(*Options) }
	StepOption     interface{ ApplyStep(*Options) }
)

// CallOption is good for both.
type CallOption func(*Options)

// ApplyActivity implements ActivityOption.
func (f CallOption) ApplyActivity(o *Options) { f(o) }

// ApplyStep implements StepOption.
func (f CallOption) ApplyStep(o *Options) { f(o) }

// WorkOption is good for activities only.
type WorkOption func(*Options)

// ApplyActivity implements ActivityOption.
func (f WorkOption) ApplyActivity(o *Options) { f(o) }

// Part is what a program, or a test of one, is made of: orchestrations and activities bound to
// their code.
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
