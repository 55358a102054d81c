package app

import (
	"context"
	"io"
	"testing"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
)

var nothing = activity.Define[int, int]("nothing")

// TestDevEndsWhileItStarts ends dev when the program has just started: that is no error.
func TestDevEndsWhileItStarts(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t), natsbroker.Config{Partitions: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // it may notice the end before or after it has begun to listen
		config := Defaults(Dev)
		config.Stdout, config.Stderr = io.Discard, io.Discard
		a, err := New(config, nothing.Bind(func(context.Context, int) (int, error) { return 0, nil }))
		if err != nil {
			t.Fatal(err)
		}
		close(a.started)
		if err := a.host(b, nil, 0).run(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
