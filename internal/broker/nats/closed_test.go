package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// reloaded is a server whose options change while it runs.
type reloaded struct {
	*server.Server
	options *server.Options
}

func startReloaded(t *testing.T) *reloaded {
	t.Helper()
	s := &reloaded{options: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true,
		StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	var err error
	if s.Server, err = server.NewServer(s.options); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(5 * time.Minute) {
		t.Fatal("the server does not listen")
	}
	return s
}

func (s *reloaded) URL() string { return s.ClientURL() }

func (s *reloaded) reload(t *testing.T, change func(*server.Options)) {
	t.Helper()
	s.options = s.options.Clone()
	change(s.options)
	if err := s.ReloadOptions(s.options); err != nil {
		t.Fatal(err)
	}
}

// TestAClientThatGivesUpIsNoticed lowers max_payload of a running server, which does not tell its
// clients. It answers the next message that is larger with an error after which the client does not
// connect again.
func TestAClientThatGivesUpIsNoticed(t *testing.T) {
	t.Parallel()
	s := startReloaded(t)
	b := natstest.Connect(t, s, natsbroker.Config{})
	if err := b.Closed(); err != nil {
		t.Fatal(err)
	}
	s.reload(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
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

// TestWhatASettingPreventsIsNotRefusedForGood lowers limits below those that setup has verified,
// and restores them. A publisher is told that a setting is the reason.
func TestWhatASettingPreventsIsNotRefusedForGood(t *testing.T) {
	t.Parallel()
	s := startReloaded(t)
	line := natstest.NewLine(t, s)
	b := natstest.Connect(t, line, natsbroker.Config{})
	js := rawJetStream(t, s)
	stream := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		c := streamInfo(t, t.Context(), js, "RONDO").Config
		change(&c)
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for name, setting := range map[string]struct{ lower, restore func() }{
		"the size of messages of the stream": {
			func() { stream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100_000 }) },
			func() { stream(func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 }) },
		},
		"max_payload of the servers": {
			func() {
				s.reload(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
				line.Break() // a server tells its limit when a client connects
			},
			func() {
				s.reload(t, func(o *server.Options) { o.MaxPayload = 1 << 20 })
				line.Break()
			},
		},
	} {
		publish := func(id string, size int) error {
			return b.Publish(t.Context(), events.Wire{Subject: "rondo.mailbox.q.i",
				Header: events.Header{events.HeaderMsgID: {name + id}}, Body: make([]byte, size)})
		}
		setting.lower()
		if err := publish("small", 10); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := publish("large", 512<<10)
		var refused *broker.Refused
		if !errors.As(err, &refused) || !errors.Is(refused.Reasons[0], broker.ErrMisconfigured) {
			t.Errorf("%s is lower: %v", name, err)
		}
		setting.restore()
		for _, size := range []int{10, 512 << 10} {
			if err := publish(fmt.Sprint("restored ", size), size); err != nil {
				t.Errorf("%s is restored: %v", name, err)
			}
		}
	}
}
