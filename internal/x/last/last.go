// Package last keeps when something was done last. It keeps times with their monotonic readings, so
// steps of the wall clock do not matter.
package last

import (
	"sync/atomic"
	"time"
)

// Time is when something was done last. The zero value is never. It may be used concurrently.
type Time struct{ at atomic.Pointer[time.Time] }

// Set records the time.
func (t *Time) Set(now time.Time) { t.at.Store(&now) }

// Forget makes it never.
func (t *Time) Forget() { t.at.Store(nil) }

// Get returns the time, or the zero time.
func (t *Time) Get() time.Time {
	if at := t.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Due reports whether it was at least an interval ago, or never, and records now as the time if so.
// It returns true to one of several callers.
func (t *Time) Due(now time.Time, every time.Duration) bool {
	at := t.at.Load()
	return (at == nil || now.Sub(*at) >= every) && t.at.CompareAndSwap(at, &now)
}
