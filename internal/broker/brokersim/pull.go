package brokersim

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// puller waits for messages of the broker, for receivers and takers.
type puller struct{ *link }

// await waits for the next message and takes it. If the broker's response is lost, the message
// counts as delivered but does not arrive; the broker redelivers it. A process that is paused asked
// before: the broker delivers up to most messages to it meanwhile.
func (c *puller) await(ctx context.Context, r *receiver, what string, most int,
	next func(now time.Time) (*message, time.Time)) (all []broker.Delivery, err error) {
	for {
		if c.path.Quiet() {
			return c.heap(ctx, r, what, most, next)
		}
		c.b.mu.Lock()
		now := c.b.now()
		soon := c.b.due(now)
		m, at := next(now)
		soon = earliest(soon, at)
		changed := c.b.changed
		c.b.mu.Unlock()
		if m != nil {
			break
		}
		if err := c.sleep(ctx, soon, changed, r.came); err != nil {
			return nil, err
		}
		if r.waits() {
			return nil, nil
		}
	}
	var d broker.Delivery
	var taken *message
	err = c.do(ctx, what, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := c.b.now()
		if taken, _ = next(now); taken != nil {
			d = c.b.handOut(taken, r, now)
		}
		return nil
	})
	if errors.Is(err, errLost) {
		c.asking(func() {
			if taken != nil && taken.holder == r {
				taken.holder = nil // newer messages of its instance wait for the redelivery
			}
		})
		return nil, nil
	}
	if err != nil || d.Hold == nil {
		return nil, err
	}
	return []broker.Delivery{d}, nil
}

// heap delivers messages to a process that is paused. The process finds them when it goes on.
func (c *puller) heap(ctx context.Context, r *receiver, what string, most int,
	next func(now time.Time) (*message, time.Time)) (all []broker.Delivery, err error) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.path.Stand(ctx, what)
	}()
	for {
		c.path.Pause("hand out to who stands still: " + what)
		if !c.path.Quiet() { // not over, which may close at the moment of a change
			<-over
			return all, nil
		}
		c.b.mu.Lock()
		now := c.b.now()
		soon := c.b.due(now)
		for len(all) < most {
			m, at := next(now)
			if m == nil {
				soon = earliest(soon, at)
				break
			}
			all = append(all, c.b.handOut(m, r, now))
			c.path.Note("handed to a process that stands still", m.wire.Subject)
		}
		changed := c.b.changed
		c.b.mu.Unlock()
		if len(all) == most {
			<-over
			return all, nil
		}
		if err := c.sleep(ctx, soon, changed, over); err != nil {
			return all, err
		}
	}
}

// sleep waits until something changes, a message arrives, or the time comes.
func (c *puller) sleep(ctx context.Context, until time.Time, changed, came <-chan struct{}) error {
	var timer <-chan time.Time
	if !until.IsZero() {
		c.b.mu.Lock()
		t := time.NewTimer(until.Sub(c.b.now()))
		c.b.mu.Unlock()
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-came:
	case <-timer:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	switch { // the end counts, even if a message came at the same moment
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.ctx.Err() != nil:
		return errClosed
	}
	return nil
}
