package orchestrator

import (
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// This file keeps messages that no orchestrator can take from delaying the others: starts of
// orchestrations that no orchestrator has, messages to instances that do not exist. The broker
// keeps them, and this process remembers how often it has nacked each one.

const (
	// returnRate bounds the redeliveries of such messages a second: the more there are, the longer
	// each waits.
	returnRate = 250
	// maxReturned bounds the messages that are remembered.
	maxReturned = 200_000
	// returnedFor is how long a message is remembered after the end of its delay.
	returnedFor = time.Minute
	// forgetEvery is the interval of forgetting those that were not redelivered.
	forgetEvery = 10 * time.Second
)

// returned remembers the messages that were nacked on purpose, by sequence. The broker counts a
// nacked delivery like one whose process has died. So without this memory, a message that waits
// would look like poison.
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

// times is how often this process has nacked a message.
func (r *returned) times(d broker.Delivery) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.known[d.Sequence]; ok && g.stored.Equal(d.StoredAt) {
		return g.times
	}
	return 0
}

// note remembers that a message is nacked with a delay.
func (r *returned) note(d broker.Delivery, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(d, after)
}

// delay returns the delay of a message that no orchestrator can take, and remembers that it is
// nacked so. Both happen at once: of messages that come together, each waits longer than the one
// before.
func (r *returned) delay(d broker.Delivery, atLeast time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := max(atLeast, r.spread())
	r.add(d, after)
	return after
}

// add adds a message. The caller has the lock.
func (r *returned) add(d broker.Delivery, after time.Duration) {
	now := time.Now()
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

// spread is the shortest delay of a message that no orchestrator can take, so that the redeliveries
// of all of them stay below the rate. The caller has the lock.
func (r *returned) spread() time.Duration {
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
