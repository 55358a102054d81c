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
	err     error
}

// loader reads instances that are not in memory from the store, many at once. The goroutine of the
// loop calls its methods.
type loader struct {
	store   instanceStore
	timeout time.Duration // of one attempt
	measure func(x *loaded)
	log     *slog.Logger
	done    chan *loaded // to the loop

	waiting  []*entry
	inFlight int
	most     int // the most instances of one read, after a failed one; 0: maxLoad
}

// add has an instance read.
func (r *loader) add(e *entry) {
	e.move(needLoad)
	r.waiting = append(r.waiting, e)
}

// remove takes back an instance whose read has not started.
func (r *loader) remove(e *entry) {
	r.waiting = slices.DeleteFunc(r.waiting, func(x *entry) bool { return x == e })
	e.move(unqueue)
}

// start starts reads while there may be more of them.
func (r *loader) start(ctx context.Context) {
	for len(r.waiting) > 0 && r.inFlight < maxLoads {
		n := min(len(r.waiting), maxLoad)
		if r.most > 0 {
			n = min(n, r.most)
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
			known, err := r.store.Load(within, ids, func(_ string, row round.Row) bool { return round.CanRead(row) })
			r.done <- &loaded{entries, known, err}
		}()
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
