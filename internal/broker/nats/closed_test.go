package natsbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// reloaded is a server whose options change while it runs.
type reloaded struct{ *server.Server }

func (s reloaded) URL() string { return s.ClientURL() }

// TestAClientThatGivesUpIsNoticed lowers max_payload of a running server, which does not tell its
// clients. It answers the next message that is larger with an error after which the client does not
// connect again.
func TestAClientThatGivesUpIsNoticed(t *testing.T) {
	t.Parallel()
	opts := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true}
	run, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	run.Start()
	t.Cleanup(func() {
		run.Shutdown()
		run.WaitForShutdown()
	})
	s := reloaded{run}
	if !run.ReadyForConnections(5 * time.Minute) {
		t.Fatal("the server does not listen")
	}
	b := natstest.Connect(t, s, natsbroker.Config{})
	if err := b.Closed(); err != nil {
		t.Fatal(err)
	}
	lower := opts.Clone()
	lower.MaxPayload = 64 << 10
	if err := run.ReloadOptions(lower); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	go func() {
		published <- b.Publish(ctx, events.Wire{Subject: "rondo.mailbox.q.i", Body: make([]byte, 512<<10)})
	}()
	natstest.Eventually(t, "it says that the connection is closed for good", func() bool { return b.Closed() != nil })
	cancel()
	if err := <-published; err == nil {
		t.Error("a message that the server refuses was published")
	}
}
