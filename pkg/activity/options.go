package activity

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Option configures a call of an activity. The functions of this package make options. Those of
// type [CallOption] configure inline steps, too.
type Option interface {
	// ApplyActivity changes the settings of a call.
	ApplyActivity(o *orchestration.CallOptions)
}

// CallOption is an option for activities and for inline steps.
type CallOption struct {
	apply func(*orchestration.CallOptions)
}

// ApplyActivity implements [Option].
func (c CallOption) ApplyActivity(o *orchestration.CallOptions) { c.apply(o) }

// ApplyStep implements [orchestration.StepOption].
func (c CallOption) ApplyStep(o *orchestration.CallOptions) { c.apply(o) }

// taskOption is an option for activities only.
type taskOption func(*orchestration.CallOptions)

func (t taskOption) ApplyActivity(o *orchestration.CallOptions) { t(o) }

// Retry sets the maximum number of attempts, the first included. Default delays: 100 ms after the
// first failure, doubling up to 30 s, with 20 % jitter.
//
//	activity.Retry(5)
//	activity.Retry(5, activity.Fixed(time.Second), activity.NonRetryableTypes("card_declined"))
//
// Errors of the activity, panics and timeouts are retried; [NonRetryable] errors are not. Without
// Retry or [RetryForever] there is one attempt.
func Retry(attempts int, opts ...RetryOption) CallOption {
	return retry(max(0, attempts), opts) // the policy refuses 0
}

// RetryForever is [Retry] without a maximum of attempts: the call ends with a result, with an error
// that is not retried, or at its [ScheduleToClose]. Each attempt adds events to the history, which
// has a limit, so a call that may fail for days needs long delays:
//
//	activity.RetryForever(activity.Exponential(time.Second, 2, 10*time.Minute))
func RetryForever(opts ...RetryOption) CallOption { return retry(events.UnlimitedAttempts, opts) }

func retry(attempts int, opts []RetryOption) CallOption {
	policy := events.RetryPolicy{
		Attempts: attempts, First: events.Duration(100 * time.Millisecond), Factor: 2,
		Most: events.Duration(30 * time.Second), Jitter: 0.2,
	}
	for _, opt := range opts {
		opt(&policy)
	}
	return CallOption{func(o *orchestration.CallOptions) { o.Retry = &policy }}
}

// RetryOption refines [Retry].
type RetryOption func(*events.RetryPolicy)

// Fixed waits the same time before each attempt, apart from what [Jitter] takes off.
func Fixed(d time.Duration) RetryOption {
	return func(p *events.RetryPolicy) {
		p.Growth, p.First, p.Factor, p.Most, p.Jitter = events.Fixed, events.Duration(d), 0, 0, 0
	}
}

// Linear waits d, 2d, 3d, … up to most.
func Linear(d, most time.Duration) RetryOption {
	return func(p *events.RetryPolicy) {
		p.Growth, p.First, p.Factor, p.Most = events.Linear, events.Duration(d), 0, events.Duration(most)
	}
}

// Exponential waits d, then each time factor times as long, up to most.
func Exponential(d time.Duration, factor float64, most time.Duration) RetryOption {
	return func(p *events.RetryPolicy) {
		p.Growth, p.First, p.Factor, p.Most = events.Exponential, events.Duration(d), factor, events.Duration(most)
	}
}

// Jitter leaves a share of each delay to chance: 0 none, 1 all of it. Chance is drawn from the
// call's place in history, so a replay draws the same.
func Jitter(share float64) RetryOption { return func(p *events.RetryPolicy) { p.Jitter = share } }

// NonRetryableTypes names types of errors that are not retried.
func NonRetryableTypes(types ...string) RetryOption {
	return func(p *events.RetryPolicy) { p.NonRetryableTypes = append(p.NonRetryableTypes, types...) }
}

// StartToClose bounds one attempt, from when it begins to run. An attempt that takes longer is
// stopped, and tried again if the retry policy allows.
func StartToClose(d time.Duration) CallOption {
	return CallOption{func(o *orchestration.CallOptions) { o.StartToClose = d }}
}

// ScheduleToClose bounds all attempts together, with the delays between them, from the call on.
func ScheduleToClose(d time.Duration) CallOption {
	return CallOption{func(o *orchestration.CallOptions) { o.ScheduleToClose = d }}
}

// ScheduleToStart bounds how long an attempt may wait for a worker.
func ScheduleToStart(d time.Duration) Option {
	return taskOption(func(o *orchestration.CallOptions) { o.ScheduleToStart = d })
}

// HeartbeatTimeout bounds the time between two heartbeats: a worker that hangs is noticed without
// waiting for all of [StartToClose].
func HeartbeatTimeout(d time.Duration) Option {
	return taskOption(func(o *orchestration.CallOptions) { o.HeartbeatTimeout = d })
}

// Tag has the activity executed by a worker that takes work of this tag.
func Tag(tag string) Option { return taskOption(func(o *orchestration.CallOptions) { o.Tag = tag }) }

// Session has one worker execute all activities of a session, until that worker ends.
func Session(id string) Option {
	return taskOption(func(o *orchestration.CallOptions) { o.Session = id })
}
