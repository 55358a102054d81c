package main

import (
	"context"
	"time"
)

// This file notices when the disk stands still: something waits for it, and it finishes nothing. On
// a virtual machine, that is mostly because of its neighbours, and everything that commits waits
// for as long.

// diskState is how many requests a disk has finished so far, and how many wait for it.
type diskState struct{ finished, waiting int64 }

// stall is a time in which a disk stood still.
type stall struct{ from, to time.Time }

// stallsFrom is how long it has to stand still for that to count. What these processes write at
// once takes some ten milliseconds, and something is finished all the time.
const stallsFrom = 50 * time.Millisecond

// diskWatch looks again and again at a disk.
type diskWatch struct {
	stalls       []stall
	before       diskState
	since, until time.Time // from when until when it was seen to finish nothing, although something waited
}

// see adds the state of the disk at a moment.
func (w *diskWatch) see(at time.Time, now diskState) {
	if now.finished != w.before.finished || w.before.waiting == 0 {
		w.end()
		w.since = at
	}
	w.until, w.before = at, now
}

// end notes a stall, if there was one until it was last seen.
func (w *diskWatch) end() {
	if w.until.Sub(w.since) >= stallsFrom {
		w.stalls = append(w.stalls, stall{w.since, w.until})
	}
	w.since = w.until
}

// watchDisk watches the disk that a directory is on, until it is stopped. If the system has no
// counters of the disk, there are no stalls.
func watchDisk(ctx context.Context, dir string) (stop func() []stall) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan []stall, 1)
	go func() {
		var w diskWatch
		defer func() {
			w.end()
			ended <- w.stalls
		}()
		look, err := diskOf(dir)
		if err != nil {
			return
		}
		tick := time.NewTicker(stallsFrom / 5)
		defer tick.Stop()
		for {
			now, err := look()
			if err != nil {
				return
			}
			w.see(time.Now(), now)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() []stall {
		cancel()
		return <-ended
	}
}

// noteStalls notes for how long the disk stood still in all, and at the longest.
func (c *conditions) noteStalls(all []stall) {
	var sum, longest time.Duration
	for _, s := range all {
		took := s.to.Sub(s.from)
		sum, longest = sum+took, max(longest, took)
	}
	c.Stalled, c.LongestStall = rounded(inMilliseconds(sum), 0), rounded(inMilliseconds(longest), 0)
}
