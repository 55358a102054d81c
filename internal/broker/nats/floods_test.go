package natsbroker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// The bounds of the buckets that workers write, as in docs/nats.md.
const (
	mostSessions, mostProgress         = 20_000, 10_000
	mostSessionBytes, mostProgressSize = 1 << 10, 8 << 10
)

// TestAWorkerThatFillsItsBuckets: a hostile worker stores as much as it can in the buckets that
// workers may write, with the shipped permissions. NATS keeps a bounded part of that. Meanwhile and
// afterwards, the others work.
func TestAWorkerThatFillsItsBuckets(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	as := func(user string, setup natsbroker.Setup) *natsbroker.Bus {
		return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
			Setup: setup, SessionLease: 5 * time.Second, InboxPrefix: inboxOf(strings.TrimPrefix(user, "shop-"))})
	}
	as("shop-setup", natsbroker.Make)
	js := rawJetStreamAs(t, s, "shop-setup")
	attacker := userConnection(t, s, "shop-worker", "")
	flood := func(bucket string, count int, value []byte, header nats.Header) {
		t.Helper()
		for i := range count {
			m := &nats.Msg{Subject: fmt.Sprintf("$KV.%s.%d-%d", bucket, len(value), i), Data: value, Header: header}
			publish := attacker.PublishMsg
			if i%500 == 0 { // NATS drops messages if too many wait to be stored
				publish = func(m *nats.Msg) error { _, err := attacker.RequestMsg(m, time.Minute); return err }
			}
			if err := publish(m); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := attacker.Request("$KV."+bucket+".last", []byte("x"), time.Minute); err != nil {
			t.Fatal(err) // NATS has stored or refused all messages before it by then
		}
	}
	bounded := func(bucket string, messages, bytes uint64) {
		t.Helper()
		is := streamInfo(t, t.Context(), js, "KV_"+bucket).State
		if is.Msgs > messages || is.Bytes > bytes {
			t.Errorf("%s has %d messages and %d bytes; want at most %d and %d", bucket, is.Msgs, is.Bytes, messages,
				bytes)
		}
	}
	large := make([]byte, 1_000_000)
	for _, bucket := range []string{"RONDO_PROGRESS", "RONDO_SESSIONS"} {
		flood(bucket, 30, large, nil)
		bounded(bucket, 1, 1_000_000)
	}
	never := nats.Header{"KV-Operation": {"PUT"}, "Nats-TTL": {"never"}} // it would never expire
	flood("RONDO_PROGRESS", mostProgress+500, []byte(strings.Repeat("x", 1000)), never)
	bounded("RONDO_PROGRESS", mostProgress, mostProgress*mostProgressSize)
	flood("RONDO_SESSIONS", 500, []byte("x"), never)
	bounded("RONDO_SESSIONS", 2, 1_000) // the ends of the floods
	flood("RONDO_SESSIONS", mostSessions+500, []byte("x"), nil)
	bounded("RONDO_SESSIONS", mostSessions, mostSessions*mostSessionBytes)

	if err := as("shop-client", natsbroker.Use).Publish(t.Context(),
		events.Wire{Subject: "rondo.start.o.i"}); err != nil {
		t.Errorf("a client starts an instance: %v", err)
	}
	if err := as("shop-orchestrator", natsbroker.Verify).Put(t.Context(), broker.KeyRecovered, []byte("true"),
		0); err != nil {
		t.Errorf("an orchestrator sets a flag: %v", err)
	}
	worker := as("shop-worker", natsbroker.Verify)
	progress := strings.Repeat("p", broker.MaxTaskValue)
	if err := worker.Put(t.Context(), "task/legal", []byte(progress), broker.KeyTTL); err != nil {
		t.Errorf("a worker stores progress: %v", err)
	}
	hasKey(t, worker, "task/legal", progress)
	natstest.Eventually(t, "the leases of the flood have expired", func() bool {
		owner, err := worker.Acquire(t.Context(), "legal", "w")
		return err == nil && owner == "w"
	})
}

// TestTooManySessions: beyond the bound, a session is refused with a cause, and those that exist
// are renewed.
func TestTooManySessions(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{SessionLease: time.Hour})
	js := rawJetStream(t, s)
	c := streamInfo(t, t.Context(), js, "KV_RONDO_SESSIONS").Config
	if c.MaxMsgs != mostSessions || c.MaxMsgSize != mostSessionBytes {
		t.Errorf("%d sessions of %d bytes", c.MaxMsgs, c.MaxMsgSize)
	}
	c.MaxMsgs = 2
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	acquire := func(session string) error {
		owner, err := b.Acquire(t.Context(), session, "w")
		if err == nil && owner != "w" {
			t.Errorf("%s is owned by %q", session, owner)
		}
		return err
	}
	if err := errors.Join(acquire("a"), acquire("b")); err != nil {
		t.Fatal(err)
	}
	err := acquire("c")
	wants(t, err, "claim session c", "RONDO_SESSIONS has its maximum", "use fewer")
	if !errors.Is(err, broker.ErrFull) {
		t.Errorf("%v is not ErrFull", err)
	}
	if err := acquire("a"); err != nil {
		t.Errorf("a session cannot be renewed: %v", err)
	}
}

// TestABucketOfSessionsWithTTLs: NATS cannot disable TTLs of messages in a bucket that was made
// with them, so setup says what to do.
func TestABucketOfSessionsWithTTLs(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	natstest.Connect(t, s, natsbroker.Config{})
	js := rawJetStream(t, s)
	c := streamInfo(t, t.Context(), js, "KV_RONDO_SESSIONS").Config
	c.AllowMsgTTL = true
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	_, err := natstest.TryConnect(t, s, natsbroker.Config{})
	wants(t, err, "stream KV_RONDO_SESSIONS", "nats stream delete KV_RONDO_SESSIONS")
	if err := js.DeleteStream(t.Context(), "KV_RONDO_SESSIONS"); err != nil {
		t.Fatal(err)
	}
	natstest.Connect(t, s, natsbroker.Config{})
}
