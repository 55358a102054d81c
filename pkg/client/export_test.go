package client

import "time"

// AskEvery sets how often what is waited for is asked for again.
func (o Options) AskEvery(first, last time.Duration) Options {
	o.firstAsk, o.lastAsk = first, last
	return o
}

// Following counts what is listened to.
func (c *Client) Following() int {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return len(c.hub.of)
}
