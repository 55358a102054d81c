package brokersim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// inbox implements broker.Inbox.
type inbox struct {
	*puller
	results *directResults
	lanes   map[int][]*receiver // of each partition that this process receives from; b.mu guards it
}

func newInbox(p *puller, r *directResults) *inbox {
	return &inbox{puller: p, results: r, lanes: make(map[int][]*receiver)}
}

// Partitions implements broker.Inbox.
func (c *inbox) Partitions(ctx context.Context) (p broker.Partitions, err error) {
	err = c.do(ctx, "partitions", func() error {
		p.Count = c.b.partitions
		for n, list := range c.b.inbox {
			if n >= p.Count && len(list) > 0 {
				p.Draining = append(p.Draining, n)
			}
		}
		slices.Sort(p.Draining)
		return nil
	})
	return p, err
}

// SetPartitions changes how many partitions there are.
func (c *inbox) SetPartitions(_ context.Context, n int) error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.partitions = n
	c.b.change()
	return nil
}

// Receive implements broker.Inbox.
func (c *inbox) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	c.asking(func() { c.b.receivers[partition]++ })
	defer c.asking(func() { c.b.receivers[partition]-- })
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	clients, ahead := c.newReceiver(false), c.newReceiver(true)
	c.asking(func() { c.lanes[partition] = []*receiver{clients, ahead} })
	go func() {
		ended <- c.receive(both, clients, partition, "receive "+strconv.Itoa(partition), take)
	}()
	go func() {
		defer c.results.receives(partition, ahead)()
		ended <- c.receive(both, ahead, partition, "receive ahead "+strconv.Itoa(partition), take)
	}()
	err := <-ended
	cancel()
	err = errors.Join(err, <-ended)
	c.endMarks(ctx, partition, clients, ahead)
	return err
}

// receive delivers one lane of a partition.
func (c *inbox) receive(ctx context.Context, r *receiver, partition int, what string,
	take func(broker.Delivery)) error {
	give := func(d broker.Delivery) {
		if ctx.Err() != nil { // it came too late
			d.Hold.Nak(0)
			return
		}
		c.takes(r, d, take)
		c.path.Pause(what + " another") // two that arrived together reach the process one after the other
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	telling.Go(func() { c.tell(ctx, r, partition, what) })
	for ctx.Err() == nil {
		if d, ok := r.pop(); ok {
			give(d)
			continue
		}
		all, err := c.await(ctx, r, what, prefetch, func(now time.Time) (*message, time.Time) {
			return c.b.nextOf(partition, r, now)
		})
		if err != nil {
			if ctx.Err() != nil {
				//lint:ignore nilerr Receive returns nil when its context ends
				return nil
			}
			return err
		}
		for _, d := range all {
			give(d)
		}
	}
	return nil
}

// RedeliverAfterLeap implements broker.Repairer.
func (c *inbox) RedeliverAfterLeap(time.Time, time.Duration) {
	c.tells("redeliver", func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		now := c.b.now()
		again := func(list []*message) {
			for _, m := range list {
				if m.deliveries > 0 {
					m.deliveries, m.free, m.holder, m.returned, m.returnedBy = 0, now, nil, false, nil
				}
			}
		}
		for partition := range c.lanes {
			again(c.b.inbox[partition])
		}
		if c.lanes[0] != nil {
			again(c.b.work)
		}
		c.b.change()
	})
}

// prefetch is the maximum number of messages delivered to a receiver that is paused.
const prefetch = 64

// Backlog implements broker.Inbox.
func (c *inbox) Backlog(ctx context.Context, partition int) (l broker.Backlog, err error) {
	err = c.do(ctx, "backlog", func() error {
		l = backlogOf(c.b.inbox[partition], c.b.receivers[partition], func(*message) bool { return true })
		return nil
	})
	return l, err
}

func backlogOf(list []*message, receivers int, of func(*message) bool) broker.Backlog {
	l := broker.Backlog{Receivers: receivers}
	for _, m := range list {
		switch {
		case !of(m):
		case m.deliveries > 0:
			l.Held++
		default:
			l.Waiting++
		}
	}
	return l
}
