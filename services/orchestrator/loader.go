package orchestrator

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/round"
)

const (
	// maxLoads bounds the reads in flight, maxLoad the instances of one read.
	maxLoads = 4
	maxLoad  = 128
	// loadAgain is the delay after a failed read.
	loadAgain = 250 * time.Millisecond
)

// loaded is the outcome of a read.
type loaded struct {
	entries []*entry
	known   []round.Known
	// unread are the instances whose histories had no room: known has only their rows.
	unread map[string]bool
	err    error
}

// loader reads instances that are not in memory from the store, many at once. The goroutine of the
// loop calls its methods.
type loader struct {
	store   instanceStore
	room    *historyRoom
	timeout time.Duration // of one attempt
	measure func(x *loaded)
	log     *slog.Logger
	done    chan *loaded // to the loop

	waiting  []*entry
	inFlight int
	most     int // the most instances of one read, after a failed one; 0: maxLoad
}

// add has an instance read. One whose history had no room goes before those that were not tried.
func (r *loader) add(e *entry) {
	e.move(needLoad)
	at := len(r.waiting)
	if e.unread > 0 {
		if first := slices.IndexFunc(r.waiting, func(x *entry) bool { return x.unread == 0 }); first >= 0 {
			at = first
		}
	}
	r.waiting = slices.Insert(r.waiting, at, e)
}

// remove takes back an instance whose read has not started.
func (r *loader) remove(e *entry) {
	r.waiting = slices.DeleteFunc(r.waiting, func(x *entry) bool { return x == e })
	e.move(unqueue)
}

// start starts reads while there may be more of them, and there is room for the first history, as
// far as its size is known.
func (r *loader) start(ctx context.Context) {
	for len(r.waiting) > 0 && r.inFlight < maxLoads {
		n := min(len(r.waiting), maxLoad)
		if r.most > 0 {
			n = min(n, r.most)
		}
		fit := 0
		for fit < n && r.room.take(r.waiting[fit], r.waiting[fit].unread) {
			fit++
		}
		if n = fit; n == 0 {
			return // a decider that begins makes room
		}
		entries := append([]*entry(nil), r.waiting[:n]...)
		r.waiting = r.waiting[n:]
		ids := make([]string, n)
		for i, e := range entries {
			e.move(startLoad)
			ids[i] = e.id
		}
		r.inFlight++
		go func() {
			within, cancel := context.WithTimeout(ctx, r.timeout)
			defer cancel()
			x := &loaded{entries: entries}
			x.known, x.err = r.store.Load(within, ids, r.admit(x))
			r.done <- x
		}()
	}
}

// admit returns the function that says of which instances a load reads the histories.
func (r *loader) admit(x *loaded) func(id string, row round.Row) bool {
	entries := make(map[string]*entry, len(x.entries))
	for _, e := range x.entries {
		entries[e.id] = e
	}
	x.unread = make(map[string]bool)
	return func(id string, row round.Row) bool {
		if !round.CanRead(row) {
			return false
		}
		fits := r.room.take(entries[id], row.HistoryBytes)
		x.unread[id] = !fits
		return fits
	}
}

// land records the outcome of a read, which bounds the next ones.
func (r *loader) finish(x *loaded) {
	r.inFlight--
	r.most = nextLoad(r.most, len(x.entries), x.err != nil)
	if x.err != nil {
		r.log.Warn("instances could not be read; trying again", "instances", len(x.entries), "error", x.err)
	}
	r.measure(x)
}

// nextLoad returns the most instances of one read after a read of n instances, given the most
// before.
func nextLoad(most, n int, failed bool) int {
	switch {
	case failed: // one of them may be the cause, or they may be too much for the time limit
		return max(1, n/2)
	case n == most && n < maxLoad:
		return 2 * most
	default:
		return most
	}
}
