package activity

import (
	"time"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
)

// Option says how an activity is called. Those of type [CallOption] are good for inline steps, too.
type Option = coro.ActivityOption

// CallOption is an option for activities and for inline steps.
type CallOption = coro.CallOption

// Retry tries up to so many times altogether, the first time included. Unless told otherwise it
// waits 100 ms after the first failure, doubling up to 30 s, with a fifth of each delay left to
// chance.
//
//	activity.Retry(5)
//	activity.Retry(5, activity.Fixed(time.Second), activity.Except("card_declined"))
//
// Errors of the activity's own, panics and timeouts are tried again; what is [Final] is not.
func Retry(attempts int, opts ...RetryOption) CallOption {
	policy := events.RetryPolicy{
		Attempts: attempts, First: events.Duration(100 * time.Millisecond), Factor: 2,
		Most: events.Duration(30 * time.Second), Jitter: 0.2,
	}
	for _, opt := range opts {
		opt(&policy)
	}
	return func(o *coro.Options) { o.Retry = &policy }
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

// Except names types of errors that are not tried again.
func Except(types ...string) RetryOption {
	return func(p *events.RetryPolicy) { p.Except = append(p.Except, types...) }
}

// Timeout bounds one attempt, from when it begins to run. An attempt that takes longer is stopped,
// and tried again if the retry policy allows.
func Timeout(d time.Duration) CallOption { return func(o *coro.Options) { o.Timeout = d } }

// TimeoutOverall bounds all attempts together, with the delays between them, from the call on.
func TimeoutOverall(d time.Duration) CallOption { return func(o *coro.Options) { o.Overall = d } }

// TimeoutToStart bounds how long an attempt may wait for a worker.
func TimeoutToStart(d time.Duration) Option {
	return coro.WorkOption(func(o *coro.Options) { o.ToStart = d })
}

// TimeoutHeartbeat bounds the time between two heartbeats: a worker that hangs is noticed without
// waiting for the whole Timeout.
func TimeoutHeartbeat(d time.Duration) Option {
	return coro.WorkOption(func(o *coro.Options) { o.Heartbeat = d })
}

// Tag has the activity executed by a worker that takes work of this tag.
func Tag(tag string) Option { return coro.WorkOption(func(o *coro.Options) { o.Tag = tag }) }

// Session has all activities of the same session executed by the same worker, as long as it lives.
func Session(id string) Option {
	return coro.WorkOption(func(o *coro.Options) { o.Session = id })
}

// Priority says how urgent work is: higher is more urgent, the default is 0. It goes along to the
// worker; the queues of work do not look at it, and hand out the oldest first.
func Priority(p int) Option {
	return coro.WorkOption(func(o *coro.Options) { o.Priority = p })
}
