package main

import (
	"net"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
)

// TestWaitTriesAServerThatEnds shows that wait tries again if a server accepts its connection and
// then closes or resets it, as one does that is just ending.
func TestWaitTriesAServerThatEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*net.TCPConn) error{
		"closed": (*net.TCPConn).Close,
		"reset": func(c *net.TCPConn) error {
			if err := c.SetLinger(0); err != nil {
				return err
			}
			return c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					c, err := l.AcceptTCP()
					if err != nil {
						return
					}
					if err := end(c); err != nil {
						t.Error(err)
					}
				}
			}()
			b, err := natsbroker.Connect(t.Context(), natsbroker.Config{URLs: "nats://" + l.Addr().String(),
				Setup: natsbroker.Use})
			if err == nil {
				t.Fatal(b.Close())
			}
			if err := notConnected(err); !mayStart(err) {
				t.Errorf("this counts as final: %v", err)
			}
		})
	}
	if mayStart(notConnected(broker.ErrPermission)) {
		t.Error("a missing permission counts as a system that may start")
	}
}
