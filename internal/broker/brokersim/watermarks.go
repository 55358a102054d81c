package brokersim

import (
	"context"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/signal"
	"github.com/rondo-run/rondo/pkg/events"
)

// mark waits until a lane has delivered all messages of an instance that were stored before a
// moment.
type mark struct {
	who  string
	at   time.Time
	told func(ctx context.Context, ok bool)
}

// newReceiver makes the receiver of a lane.
func (c *inbox) newReceiver(ahead bool) *receiver {
	return &receiver{c: c.link, ahead: ahead, until: time.Now().Add(c.b.inboxWait + 2*time.Second),
		came: make(chan struct{}, 1), tells: signal.New()}
}

// AwaitWatermark implements broker.Inbox.
func (c *inbox) AwaitWatermark(partition int, instance string, at time.Time,
	reached func(ctx context.Context, ok bool)) bool {
	c.b.mu.Lock()
	lanes := c.lanes[partition]
	told := broker.OfAll(len(lanes), reached)
	for _, r := range lanes {
		r.marks = append(r.marks, &mark{events.EncodeToken(instance), at, told})
	}
	c.b.mu.Unlock()
	for _, r := range lanes {
		r.tells.Set()
	}
	return len(lanes) > 0
}

// Crowded implements broker.Inbox.
func (*inbox) Crowded() error { return nil }

// takes calls take for a delivery to a lane.
func (c *inbox) takes(r *receiver, d broker.Delivery, take func(broker.Delivery)) {
	take(d)
	c.asking(func() {
		if m := c.b.find(d.Sequence); m != nil && m.holder == r {
			m.taken = true
		}
	})
	r.tells.Set()
}

// tell tells the marks of a lane until the context ends.
func (c *inbox) tell(ctx context.Context, r *receiver, partition int, what string) {
	for {
		c.b.mu.Lock()
		var passed []*mark
		r.marks = slices.DeleteFunc(r.marks, func(m *mark) bool {
			if c.b.awaits(r, partition, m) {
				return false
			}
			passed = append(passed, m)
			return true
		})
		changed := c.b.changed
		c.b.mu.Unlock()
		for _, m := range passed {
			c.path.Pause(what + " watermark")
			m.told(ctx, true)
		}
		select {
		case <-r.tells:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// awaits reports whether a message is still to come that a mark waits for. mu is held.
func (s *streams) awaits(r *receiver, partition int, m *mark) bool {
	return slices.ContainsFunc(s.inbox[partition], func(x *message) bool {
		moment := x.stored
		if x.notBefore.After(moment) {
			moment = x.notBefore
		}
		return x.ahead == r.ahead && x.who == m.who && moment.Before(m.at) &&
			(x.holder != r || !x.taken) && (!x.returned || x.returnedBy != r)
	})
}

// endMarks gives up the marks of a partition that is no longer received from.
func (c *inbox) endMarks(ctx context.Context, partition int, lanes ...*receiver) {
	var left []*mark
	c.asking(func() {
		if slices.Equal(c.lanes[partition], lanes) {
			delete(c.lanes, partition)
		}
		for _, r := range lanes {
			left = append(left, r.marks...)
			r.marks = nil
		}
	})
	for _, m := range left {
		m.told(ctx, false)
	}
}
