package brokersim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// link is the connection itself. Its path decides about the fate of each call.
type link struct {
	b    *Broker
	ctx  context.Context // ends when the connection is closed
	end  context.CancelFunc
	path Path
	name string // the name under which it receives results directly

	mu          sync.Mutex
	reconnected map[*func()]bool
}

var (
	errClosed = errors.New("the connection is closed")
	errLost   = errors.New("the answer was lost")
)

// do makes a call to the broker.
func (c *link) do(ctx context.Context, what string, happens func() error) error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	answered, err := c.path.Go(ctx, what)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if c.ctx.Err() != nil {
		return errClosed
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	err = happens()
	if !answered {
		return fmt.Errorf("%s: %w", what, errLost)
	}
	return err
}

// tells sends the broker a message that has no response.
func (c *link) tells(what string, happens func()) {
	if c.ctx.Err() == nil {
		c.path.Say(what, happens)
	}
}

// again is the delay before a retry.
const again = 100 * time.Millisecond

// insist retries a call until it happens and is answered, or until the context ends.
func (c *link) insist(ctx context.Context, what string, happens func() error) error {
	for {
		err := c.do(ctx, what, happens)
		if err == nil || ctx.Err() != nil || c.ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// asking calls change with the broker's mu held. It is no call to the broker: it always happens.
func (c *link) asking(change func()) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	change()
}

// Close implements brokertest.Bus. It also stands for the end of a killed process: the broker
// notifies no process.
func (c *link) Close() error {
	c.end()
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	delete(c.b.named, c.name)
	c.b.change()
	return nil
}

// Prefix, InboxAckWait and TaskAckWait return the settings of the broker.
func (c *link) Prefix() string              { return c.b.prefix }
func (c *link) InboxAckWait() time.Duration { return c.b.inboxWait } // see Prefix
func (c *link) TaskAckWait() time.Duration  { return c.b.taskWait }  // see Prefix

// Connected returns nil while there is a connection.
func (c *link) Connected() error {
	if c.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// Now implements broker.Connection.
func (c *link) Now(ctx context.Context) (now time.Time, err error) {
	err = c.do(ctx, "clock", func() error {
		now = c.b.now()
		return nil
	})
	return now, err
}

// Reconnected implements broker.Connection.
func (c *link) Reconnected(told func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reconnected[&told] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reconnected, &told)
	}
}

// Back calls the functions of [Bus.Reconnected], as if the connection had been lost and restored.
func (c *link) Back() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for told := range c.reconnected {
		go (*told)()
	}
}
