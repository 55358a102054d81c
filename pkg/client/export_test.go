package client

import (
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
)

// Configured applies options to an empty configuration.
func Configured(opts ...Option) (natsbroker.Config, Options) {
	var c connection
	for _, opt := range opts {
		opt(&c)
	}
	return c.nats, c.client
}

// AskEvery sets how often what is waited for is asked for again.
func (o Options) AskEvery(first, last time.Duration) Options {
	o.firstAsk, o.lastAsk = first, last
	return o
}

// HearWithin sets within what time after a start somebody has to listen, and for how long the
// question is then put off.
func (o Options) HearWithin(listens, hears time.Duration) Options {
	o.listensWithin, o.hearsWithin = listens, hears
	return o
}

// Following counts what is listened to.
func (c *Client) Following() int {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return len(c.hub.of)
}

// Listening counts what is really listened to by now.
func (c *Client) Listening() (n int) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, t := range c.hub.of {
		t.listening <- struct{}{}
		if t.stop != nil {
			n++
		}
		<-t.listening
	}
	return n
}
