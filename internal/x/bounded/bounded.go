// Package bounded waits for functions that take no context.
package bounded

import "time"

// Wait calls f in a goroutine of its own, and waits for f, for a time at most. It reports whether f
// has returned. If f has not, its goroutine goes on.
func Wait(most time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		return false
	}
}
