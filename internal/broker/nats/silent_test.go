package natsbroker_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// relay forwards requests to JetStream, as long as answers reports so for their subject behind the
// prefix. It returns the prefix.
func relay(t *testing.T, server *embedded.Server, answers func(request string) bool) (prefix string) {
	t.Helper()
	nc, err := nats.Connect(server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("relay.>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, "relay")
		if answers(request) {
			_ = nc.PublishMsg(&nats.Msg{Subject: "$JS.API" + request, Reply: m.Reply, Header: m.Header, Data: m.Data})
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return "relay"
}

// TestSetupEndsAtTheFirstSilentStream: streams have no leader, so NATS does not answer requests
// about them. A process that starts names the first one, and does not ask for each of the others.
func TestSetupEndsAtTheFirstSilentStream(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	var mu sync.Mutex
	silent := make(map[string]bool)
	prefix := relay(t, server, func(request string) bool { // about the account and the first stream
		mu.Lock()
		defer mu.Unlock()
		if request == ".INFO" || strings.HasSuffix(request, ".RONDO") {
			return true
		}
		silent[request] = true
		return false
	})
	natstest.Connect(t, server, natsbroker.Config{Partitions: 1})
	b, err := natsbroker.Connect(t.Context(), natsbroker.Config{URLs: server.URL(), APIPrefix: prefix,
		Timeout: 2 * time.Second, Partitions: 1, Setup: natsbroker.Make})
	if err == nil {
		_ = b.Close()
		t.Fatal("it connects")
	}
	if text := err.Error(); !strings.Contains(text, "stream RONDO_LATER: NATS does not answer") {
		t.Errorf("it says %q", text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(silent) != 1 {
		t.Errorf("it asks for %v; want the first stream without an answer only", silent)
	}
}

// TestARepairGoesOnBehindASilentStream: a stream has no leader, and a consumer of another one is
// missing. A process that runs makes the consumer again.
func TestARepairGoesOnBehindASilentStream(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	var silent atomic.Bool
	prefix := relay(t, server, func(request string) bool {
		return !silent.Load() || !strings.HasSuffix(request, ".RONDO_LATER")
	})
	b := natstest.Connect(t, server, natsbroker.Config{APIPrefix: prefix, Timeout: 2 * time.Second, Partitions: 1,
		Setup: natsbroker.Make})
	js := rawJetStream(t, server)
	silent.Store(true)
	names := func() (all []string) {
		stream, err := js.Stream(t.Context(), "RONDO")
		if err != nil {
			t.Fatal(err)
		}
		for name := range stream.ConsumerNames(t.Context()).Name() {
			all = append(all, name)
		}
		return all
	}
	was := names()
	for _, name := range was {
		if err := js.DeleteConsumer(t.Context(), "RONDO", name); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Repair(t.Context()); err == nil || !strings.Contains(err.Error(), "stream RONDO_LATER") {
		t.Errorf("the repair says %v", err)
	}
	if is := names(); len(was) == 0 || len(is) != len(was) {
		t.Errorf("there are the consumers %v, want %v", is, was)
	}
}
