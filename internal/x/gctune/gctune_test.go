package gctune

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/slowtest"
)

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		live, room uint64
		want       int
	}{
		{1 << 20, 64 << 20, 1600}, // Go would not collect a heap before it has 4 MiB, at 100 percent
		{4 << 20, 64 << 20, 1600},
		{16 << 20, 64 << 20, 400},
		{64 << 20, 64 << 20, 100},
		{1 << 30, 64 << 20, 100}, // large heaps are collected as always
		{0, 64 << 20, 1600},
	} {
		if got := percentFor(c.live, c.room); got != c.want {
			t.Errorf("%d bytes live, room for %d: %d %%, want %d", c.live, c.room, got, c.want)
		}
	}
}

// TestRoomIsUsed makes garbage, and counts how often it is collected with room and without.
func TestRoomIsUsed(t *testing.T) {
	before := debug.SetGCPercent(usual)
	defer debug.SetGCPercent(before)
	over := new(atomic.Bool)
	defer func() { over.Store(true) }()
	var roomy, usually uint32
	// On a busy machine, much garbage is made while one collection runs. Then the test counts anew.
	if !slowtest.Until(time.Minute, func() bool {
		over.Store(true)
		debug.SetGCPercent(usual)
		usually = collections()
		over = new(atomic.Bool)
		debug.SetGCPercent(usual) // a collection may have called the cycle before
		watch(&cycle{room: 64 << 20, percent: usual, over: over})
		for percent := uint64(usual); percent == usual; { // the first collection measures the live heap
			runtime.GC()
			runtime.Gosched()
			percent = gogc()
		}
		roomy = collections()
		return roomy*3 <= usually
	}) {
		t.Errorf("%d collections with room, %d without: want less than a third", roomy, usually)
	}
	// The runtime calls back after a collection, on a busy machine after the next one has begun.
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	var room uint64
	if !slowtest.Until(time.Minute, func() bool {
		runtime.GC()
		metrics.Read(goal)
		room = goal[0].Value.Uint64() - goal[1].Value.Uint64()
		return room >= 32<<20 && room <= 96<<20
	}) {
		t.Errorf("the heap may grow by %d MiB; want about 64", room>>20)
	}
}

func gogc() uint64 {
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(percent)
	return percent[0].Value.Uint64()
}

var sink []byte

// collections makes garbage, and returns how often it was collected.
func collections() uint32 {
	var began, ended runtime.MemStats
	runtime.ReadMemStats(&began)
	for range 1 << 15 {
		sink = make([]byte, 16<<10)
	}
	runtime.ReadMemStats(&ended)
	return ended.NumGC - began.NumGC
}
