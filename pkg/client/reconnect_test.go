package client_test

import (
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestReconnectedAsks: a waiting client asks as soon as the connection is there again, because it
// has missed the notifications meanwhile.
func TestReconnectedAsks(t *testing.T) {
	t.Parallel()
	s := newSystem(t, code()...)
	c := s.client(client.Options{}.AskEvery(time.Hour, time.Hour)) // it would not ask by itself
	direct := client.New(s.bus, client.Options{Store: s.store})
	defer direct.Close()
	h, err := keeper.Start(soon(t), direct, "x", orchestration.ID("x"))
	must(t, err)
	stands(t, direct, "x", running)
	done := make(chan error)
	go func() {
		_, err := keeper.Handle(c, h.ID).Wait(soon(t))
		done <- err
	}()
	waitUntil(t, func() bool { return c.Following() == 1 && s.asked.Load() == 1 })
	s.mute.Store(true) // as if the connection was broken at the notification
	must(t, words.Send(soon(t), direct, "x", "end"))
	stands(t, direct, "x", func(i client.Instance) bool { return i.Status.Ended() })
	s.stopServer()
	s.startServer()
	must(t, <-done)
}
