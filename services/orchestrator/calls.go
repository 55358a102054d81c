package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/x/last"
)

// calls are functions that other goroutines have the loop call.
type calls struct {
	lifetime context.Context // of the service
	waiting  chan func()
	ended    chan struct{} // closed when the loop has ended

	mu      sync.Mutex
	delayed []delayedCall // the earliest first
}

// delayedCall is a function that the loop executes at a time.
type delayedCall struct {
	at time.Time
	f  func()
}

func newCalls(lifetime context.Context) *calls {
	return &calls{lifetime: lifetime, waiting: make(chan func(), 1024), ended: make(chan struct{})}
}

// run has the loop execute f. It gives up when the context or the loop ends.
func (c *calls) run(ctx context.Context, f func()) {
	if ctx.Err() != nil {
		return // a select would choose by chance
	}
	select {
	case c.waiting <- f:
	case <-c.ended:
	case <-ctx.Done():
	}
}

// ask has the loop execute f and waits for it. It reports false if the context or the loop ends
// first.
func (c *calls) ask(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	c.run(ctx, func() {
		f()
		close(done)
	})
	select {
	case <-done:
		return true
	case <-c.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

// after has the loop execute f after a delay. The loop executes functions with the same time in the
// order of the calls of after.
func (c *calls) after(d time.Duration, f func()) {
	x := delayedCall{time.Now().Add(d), f}
	c.mu.Lock()
	i := len(c.delayed)
	for i > 0 && c.delayed[i-1].at.After(x.at) {
		i--
	}
	c.delayed = slices.Insert(c.delayed, i, x)
	c.mu.Unlock()
	// There is one timer for each function, but the timers expire in no order: each runs the first.
	time.AfterFunc(d, func() { c.run(c.lifetime, c.runFirst) })
}

// runFirst executes the earliest delayed function, which is due: so many functions are due as
// timers have expired.
func (c *calls) runFirst() {
	c.mu.Lock()
	first := c.delayed[0]
	c.delayed[0] = delayedCall{}
	c.delayed = c.delayed[1:]
	c.mu.Unlock()
	first.f()
}

// pulse is when the loop began its last iteration. Any goroutine may use it.
type pulse struct{ at last.Time }

func (p *pulse) beat() { p.at.Set(time.Now()) }

// liveWithin is the longest time that an iteration of the loop may take.
const liveWithin = 15 * time.Second

// live returns an error if the loop hangs.
func (p *pulse) live() error {
	at := p.at.Get()
	if age := time.Since(at); !at.IsZero() && age > liveWithin {
		return fmt.Errorf("the loop has not turned for %v", age.Round(time.Second))
	}
	return nil
}
