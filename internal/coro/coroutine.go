package coro

import (
	"iter"
	"sync"
)

// coroutine runs one branch after the other.
type coroutine struct {
	home  *Coroutines
	run   func() (clean bool) // the branch; false if it was unwound, or has panicked
	yield func(bool) bool
	next  func() (parked, ok bool)
	stop  func()
}

// live is what the coroutine does. It yields true when a branch parks, and false when one has
// ended.
func (c *coroutine) live(yield func(bool) bool) {
	c.yield = yield
	for {
		clean := c.run()
		c.run = nil
		if !clean || !yield(false) {
			return
		}
	}
}

// resume lets the branch go on until it parks (true) or has ended (false). Then it must not be used
// any more.
func (c *coroutine) resume() (parked bool) {
	parked, ok := c.next()
	if ok && !parked && !c.home.keep(c) {
		c.stop()
	}
	return parked
}

// Coroutines are some that have nothing to do just now. To make one and let its stack grow costs
// more than most branches do with it, so that a process which runs many executions keeps a few.
// Which one a branch gets makes no difference to it. It is safe for concurrent use; nil keeps none.
type Coroutines struct {
	mu    sync.Mutex
	idle  []*coroutine
	ended bool
}

// maxIdle is how many are kept.
const maxIdle = 512

// begin gives a coroutine that will run a branch.
func (k *Coroutines) begin(run func() (clean bool)) *coroutine {
	c := k.take()
	if c == nil {
		c = &coroutine{home: k}
		c.next, c.stop = iter.Pull(c.live)
	}
	c.run = run
	return c
}

func (k *Coroutines) take() (c *coroutine) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if last := len(k.idle) - 1; last >= 0 {
		c, k.idle[last] = k.idle[last], nil
		k.idle = k.idle[:last]
	}
	return c
}

func (k *Coroutines) keep(c *coroutine) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended || len(k.idle) >= maxIdle {
		return false
	}
	k.idle = append(k.idle, c)
	return true
}

// End ends those that have nothing to do. None is kept from now on.
func (k *Coroutines) End() {
	k.mu.Lock()
	idle := k.idle
	k.idle, k.ended = nil, true
	k.mu.Unlock()
	for _, c := range idle {
		c.stop()
	}
}
