package natsbroker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// hasKey checks the value of a key; "" stands for none.
func hasKey(t *testing.T, b *natsbroker.Bus, key, want string) {
	t.Helper()
	if v, err := b.Get(t.Context(), key); err != nil || string(v) != want {
		t.Errorf("key %q: %q, %v; want %q", key, v, err, want)
	}
}

// TestKeysOfOtherRoles tries to set and to remove keys without the permission to write them: by an
// acknowledgement that NATS sends to the key, and by a rollup of the whole bucket.
func TestKeysOfOtherRoles(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	b := made(t, s, "setup", "rondo")
	if err := b.Put(t.Context(), broker.KeyRecovered, []byte("true"), 0); err != nil {
		t.Fatal(err)
	}
	worker := userConnection(t, s, "worker", "_INBOX_worker")
	for _, rollup := range []string{"all", "sub"} {
		for _, subject := range []string{"$KV.RONDO_PROGRESS.x", "$KV.RONDO_SESSIONS.x"} {
			answer, err := worker.RequestMsg(&nats.Msg{Subject: subject, Data: []byte("{}"),
				Header: nats.Header{"Nats-Rollup": {rollup}}}, time.Minute)
			if err != nil || !strings.Contains(string(answer.Data), "rollup not permitted") {
				t.Errorf("a rollup %s of %s: %+v, %v; want that it is refused", rollup, subject, answer, err)
			}
		}
	}
	hasKey(t, b, broker.KeyRecovered, "true")

	client := intrude(t, s, "client")
	js, err := jetstream.New(intrude(t, s, "setup").nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for key, at := range map[string]string{"recovered": "RONDO_KV.recovered", "attempts/1": "RONDO_KV.attempts.1",
		"task/x": "RONDO_PROGRESS.x"} {
		bucket, _, _ := strings.Cut(at, ".")
		keys, err := js.Stream(t.Context(), "KV_"+bucket)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.nc.PublishRequest("rondo.start.o.i", "$KV."+at, nil); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "the acknowledgement is stored", func() bool {
			m, err := keys.GetLastMsgForSubject(t.Context(), "$KV."+at)
			return err == nil && len(m.Header) == 0
		})
		hasKey(t, b, key, "")
	}
}

// TestKeysOutliveTheServer restarts the server: a key without a TTL stays, and one with a TTL
// expires at its time.
func TestKeysOutliveTheServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	for key, ttl := range map[string]time.Duration{"stays": 0, "day": broker.KeyTTL, "goes": 2 * time.Second} {
		if err := b.Put(t.Context(), key, []byte("1"), ttl); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	b = natstest.Connect(t, s, natsbroker.Config{})
	natstest.Eventually(t, "the key has expired", func() bool {
		v, err := b.Get(t.Context(), "goes")
		return err == nil && v == nil
	})
	hasKey(t, b, "stays", "1")
	hasKey(t, b, "day", "1")
}

// TestKeysInADomain reaches JetStream through its domain, where buckets have other subjects.
func TestKeysInADomain(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: configFile(t, `jetstream { domain: hub }`)})
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1, Domain: "hub"})
	for _, key := range []string{"task/x", "attempts/x"} {
		if err := b.Put(t.Context(), key, []byte("1"), time.Hour); err != nil {
			t.Fatal(err)
		}
		hasKey(t, b, key, "1")
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		hasKey(t, b, key, "")
	}
}
