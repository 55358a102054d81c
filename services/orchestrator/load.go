package orchestrator

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/round"
)

const (
	// maxLoads is how many reads are under way at once, maxLoad how many instances one of them
	// reads.
	maxLoads = 4
	maxLoad  = 128
	// loadAgain is how long a read that failed waits.
	loadAgain = 250 * time.Millisecond
)

// loaded is what a read has brought.
type loaded struct {
	entries []*entry
	known   []round.Known
	err     error
}

// startLoads reads what is known of instances that are not in memory, many at once.
func (l *loop) startLoads(ctx context.Context) {
	for len(l.toLoad) > 0 && l.loads < maxLoads {
		n := min(len(l.toLoad), maxLoad)
		if l.loadMost > 0 {
			n = min(n, l.loadMost)
		}
		entries := append([]*entry(nil), l.toLoad[:n]...)
		l.toLoad = l.toLoad[n:]
		ids := make([]string, n)
		for i, e := range entries {
			e.stage = loading
			ids[i] = e.id
		}
		l.loads++
		go func() {
			within, cancel := context.WithTimeout(ctx, l.o.config.LoadTimeout)
			defer cancel()
			known, err := l.o.store.Load(within, ids, func(_ string, row round.Row) bool { return round.CanRead(row) })
			l.loaded <- &loaded{entries, known, err}
		}()
	}
}

// takeLoaded goes on with instances that were read.
func (l *loop) takeLoaded(x *loaded) {
	l.loads--
	switch n := len(x.entries); {
	case x.err != nil: // one of them may be why, or they may be too much for the time limit
		l.loadMost = max(1, n/2)
	case n == l.loadMost && n < maxLoad:
		l.loadMost *= 2
	}
	if x.err != nil {
		l.o.log.Warn("instances could not be read; trying again", "instances", len(x.entries), "error", x.err)
	}
	l.o.measureLoaded(x)
	for i, e := range x.entries {
		e.stage = idle
		switch {
		case x.err != nil && !l.draining:
			l.pause(e, loadAgain)
		case x.err != nil:
			l.advance(e)
		default:
			l.enliven(e, x.known[i])
			l.advance(e)
		}
	}
}
