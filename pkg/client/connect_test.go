package client_test

import (
	"testing"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/client"
)

func TestConnect(t *testing.T) {
	s := newSystem(t, code()...)
	c, err := client.Connect(t.Context(), natsbroker.Config{InProcess: s, Setup: natsbroker.Use}, client.Options{})
	must(t, err)
	if out, err := echo.Run(soon(t), c, "a"); out != "a" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	must(t, c.Close())
	must(t, c.Close())
	if _, err := client.Connect(t.Context(), natsbroker.Config{URLs: "nats://127.0.0.1:1", Timeout: time.Second},
		client.Options{}); err == nil {
		t.Error("nobody is there")
	}
}
