package natsbroker_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// TestSetupEndsAtTheFirstSilentStream: streams have no leader, so NATS does not answer requests
// about them. A process that starts names the first one, and does not ask for each of the others.
func TestSetupEndsAtTheFirstSilentStream(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc, err := nats.Connect(server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var mu sync.Mutex
	silent := make(map[string]bool)
	// A relay forwards the requests about the account and about the first stream.
	if _, err := nc.Subscribe("relay.>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, "relay")
		if request != ".INFO" && !strings.HasSuffix(request, ".RONDO") {
			mu.Lock()
			defer mu.Unlock()
			silent[request] = true
			return
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: "$JS.API" + request, Reply: m.Reply, Header: m.Header, Data: m.Data})
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	natstest.Connect(t, server, natsbroker.Config{Partitions: 1})
	b, err := natsbroker.Connect(t.Context(), natsbroker.Config{URLs: server.URL(), APIPrefix: "relay",
		Timeout: time.Second, Partitions: 1, Setup: natsbroker.Make})
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
