package sqljobs

import (
	"context"
	"sync"
)

// turns lets one after another do something with a queue.
type turns struct {
	mu     sync.Mutex
	queues map[string]*turn // those with a holder
}

type turn struct {
	taken chan struct{}
	those int // the holder and those that wait
}

// enter waits for a turn. The holder leaves it.
func (t *turns) enter(ctx context.Context, name string) (leave func(), err error) {
	t.mu.Lock()
	x := t.queues[name]
	if x == nil {
		if t.queues == nil {
			t.queues = make(map[string]*turn)
		}
		x = &turn{taken: make(chan struct{}, 1)}
		t.queues[name] = x
	}
	x.those++
	t.mu.Unlock()
	away := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if x.those--; x.those == 0 {
			delete(t.queues, name)
		}
	}
	select {
	case x.taken <- struct{}{}:
		return func() { <-x.taken; away() }, nil
	case <-ctx.Done():
		away()
		return nil, ctx.Err()
	}
}
