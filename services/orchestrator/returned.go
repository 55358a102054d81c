package orchestrator

import (
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// This file keeps what nobody can take from holding up what somebody can: starts of orchestrations
// that no orchestrator has, messages to instances that do not exist. The broker keeps them, and
// this process remembers how often it has given each one back.

const (
	// returnRate bounds how many of them come again each second: the more there are, the longer
	// each waits.
	returnRate = 250
	// maxReturned bounds how many are remembered.
	maxReturned = 200_000
	// returnedFor is for how long after its time one is remembered that does not come again.
	returnedFor = time.Minute
	// forgetEvery is how often those are forgotten.
	forgetEvery = 10 * time.Second
)

// returned remembers what was given back on purpose, by its place. The broker counts a message that
// was given back as one that was handed out, like one whose process has died; so without this,
// patience would look like poison.
type returned struct {
	mu     sync.Mutex
	known  map[uint64]givenBack
	forgot time.Time
}

type givenBack struct {
	stored time.Time
	times  int
	until  time.Time
}

func newReturned() *returned { return &returned{known: make(map[uint64]givenBack), forgot: time.Now()} }

// times is how often this process has given a message back.
func (r *returned) times(d broker.Delivery) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.known[d.Sequence]; ok && g.stored.Equal(d.StoredAt) {
		return g.times
	}
	return 0
}

// note remembers that a message is given back for some time.
func (r *returned) note(d broker.Delivery, after time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetOld(now)
	g, ok := r.known[d.Sequence]
	switch {
	case !ok && len(r.known) >= maxReturned:
		return
	case !g.stored.Equal(d.StoredAt):
		g = givenBack{stored: d.StoredAt}
	}
	g.times++
	g.until = now.Add(after + returnedFor)
	r.known[d.Sequence] = g
}

// spread is how long a message that nobody can take waits at least, so that all of them do not come
// again too fast.
func (r *returned) spread() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(len(r.known)) * time.Second / returnRate
}

// forget forgets a message that was settled.
func (r *returned) forget(d broker.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, d.Sequence)
}

func (r *returned) forgetOld(now time.Time) {
	if now.Sub(r.forgot) < forgetEvery {
		return
	}
	r.forgot = now
	for place, g := range r.known {
		if now.After(g.until) {
			delete(r.known, place)
		}
	}
}
