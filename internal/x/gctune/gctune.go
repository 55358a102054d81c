// Package gctune lets small heaps grow before they are collected.
//
// Go collects garbage when the heap has doubled. A service that keeps a few megabytes and makes
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

// usual is how much a heap grows without us, in percent of what lives.
const usual = 100

// GiveRoom gives the heap of this process room, from now on. Who has set GOGC has decided that
// himself. GOMEMLIMIT stays what it is.
func GiveRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	watch(&cycle{room: Room, percent: usual, over: new(atomic.Bool)})
}

// cycle is unreachable as soon as it is made, so that its finalizer tells that there was a
// collection.
type cycle struct {
	room    uint64
	percent int // as it is set
	over    *atomic.Bool
}

func watch(c *cycle) { runtime.SetFinalizer(c, collected) }

// collected has the next collection begin when the heap has grown by the room, or has doubled.
func collected(c *cycle) {
	if c.over.Load() {
		return
	}
	// What percentages are of, says the documentation of GOGC.
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

// least is from when on a heap is collected at 100 percent, however little lives; at more percent,
// it is as many times that.
const least = 4 << 20

// percentFor is by how many percent of what lives the heap may grow.
func percentFor(live, room uint64) int {
	return int(max(usual, room*100/max(live, least)))
}
