package main

import (
	"iter"
	"time"
)

// pace is how long this machine takes to switch a coroutine, at its best of some tries: something
// that has to do with nothing but the processor. On a machine that shares its processors with
// others it may double from one hour to the next, and so does everything else.
func pace() time.Duration {
	const tries, switches = 20, 20_000
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		for yield(struct{}{}) {
		}
	})
	defer stop()
	best := time.Hour
	for range tries {
		begun := time.Now()
		for range switches {
			next()
		}
		best = min(best, time.Since(begun))
	}
	return best / switches
}
