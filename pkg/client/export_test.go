package client

import (
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
)

// New makes a client over a broker.
var New = newClient

// Options are the settings of a client.
type Options = options

// Configured applies options to an empty configuration.
func Configured(opts ...Option) (natsbroker.Config, Options) {
	var c connection
	for _, opt := range opts {
		opt(&c)
	}
	return c.nats, c.client
}

// AskEvery sets the interval of repeated requests.
func (o options) AskEvery(first, last time.Duration) Options {
	o.firstAsk, o.lastAsk = first, last
	return o
}

// HearWithin sets within which time after a start a client has to listen, and for how long its
// request is then put off.
func (o options) HearWithin(listens, hears time.Duration) Options {
	o.listensWithin, o.hearsWithin = listens, hears
	return o
}

// Following counts the subscriptions.
func (c *Client) Following() int {
	c.waits.hub.mu.Lock()
	defer c.waits.hub.mu.Unlock()
	return len(c.waits.hub.of)
}

// Listening counts the established subscriptions.
func (c *Client) Listening() (n int) {
	c.waits.hub.mu.Lock()
	defer c.waits.hub.mu.Unlock()
	for _, t := range c.waits.hub.of {
		t.listening <- struct{}{}
		if t.stop != nil {
			n++
		}
		<-t.listening
	}
	return n
}
