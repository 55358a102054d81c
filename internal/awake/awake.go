// Package awake measures time in which this process did not stand still. When a process was stopped
// (SIGSTOP), or its machine was paused, everything seems to have taken too long by the wall clock.
// A timeout by that clock would harm work that was paused, too.
package awake

import (
	"sync"
	"time"
)

// Clock advances with its ticks, by two periods at most for each: a pause counts as one tick,
// however long it was. It may be used concurrently.
type Clock struct {
	period time.Duration

	mu   sync.Mutex
	at   time.Time // of the last tick
	went time.Duration
}

// New makes a clock that is to be ticked once each period.
func New(period time.Duration) *Clock { return &Clock{period: period, at: time.Now()} }

// Tick advances the clock.
func (c *Clock) Tick(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.went += c.bounded(now)
	c.at = now
}

// Now is how long the process has been awake since the clock was made.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.went + c.bounded(time.Now())
}

// bounded is the part of the time since the last tick that counts.
func (c *Clock) bounded(now time.Time) time.Duration { return Passed(c.period, now.Sub(c.at)) }

// Passed is the part of the time between two ticks that counts.
func Passed(period, passed time.Duration) time.Duration { return max(0, min(passed, 2*period)) }
