package client

import (
	"context"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
)

// Connect connects to NATS and makes a client, which closes the connection when it is closed. A
// client needs no rights to make streams: give the configuration Setup: natsbroker.Use.
func Connect(ctx context.Context, config natsbroker.Config, o Options) (*Client, error) {
	b, err := natsbroker.Connect(ctx, config)
	if err != nil {
		return nil, err
	}
	c := New(b, o)
	c.owned = b
	return c, nil
}
