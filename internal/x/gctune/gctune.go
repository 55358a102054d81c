// Package gctune lets small heaps grow before the garbage collector runs.
//
// Go collects garbage when the heap has doubled. A service that keeps a few megabytes and allocates
// hundreds a second collects dozens of times a second then, which takes a tenth of its time and
// more. With some room it does so rarely, for a bounded price in memory; a heap that is larger than
// the room is collected as always.
package gctune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// Room is how many bytes of garbage there may be in any case.
const Room = 64 << 20

// usual is the default of GOGC, in percent of the live heap.
const usual = 100

// GiveRoom gives the heap of this process room, from now on. It does nothing if the operator has
// set GOGC. It does not change GOMEMLIMIT.
func GiveRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	watch(&cycle{room: Room, percent: usual, over: new(atomic.Bool)})
}

// cycle is unreachable as soon as it is made, so that its finalizer runs at the next collection.
type cycle struct {
	room    uint64
	percent int // as it is set
	over    *atomic.Bool
}

func watch(c *cycle) { runtime.SetFinalizer(c, collected) }

// collected lets the next collection begin when the heap has grown by the room, or has doubled.
func collected(c *cycle) {
	if c.over.Load() {
		return
	}
	// The documentation of GOGC names the parts that the percentage is of.
	parts := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(parts)
	var live uint64
	for _, p := range parts {
		live += p.Value.Uint64()
	}
	// Changing it stops the program for a moment, so small differences stay.
	if want := percentFor(live, c.room); want > c.percent+c.percent/4 || want < c.percent-c.percent/4 {
		c.percent = want
		debug.SetGCPercent(want)
	}
	watch(c)
}

// least is the size from which a heap is collected at 100 percent, even if less is live; at more
// percent, it is as many times that.
const least = 4 << 20

// percentFor is the percentage of the live heap by which the heap may grow.
func percentFor(live, room uint64) int {
	return int(max(usual, room*100/max(live, least)))
}
