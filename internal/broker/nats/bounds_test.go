package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// small starts a server with room for 64 MiB.
func small(t *testing.T) *embedded.Server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(config, []byte("jetstream { max_file_store: 64MB, max_memory_store: 64MB }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the directory is removed, too
	return s
}

func wantBounds(t *testing.T, js jetstream.JetStream, inbox, dead int64) {
	t.Helper()
	for _, x := range []struct {
		stream  string
		bytes   int64
		discard jetstream.DiscardPolicy
	}{{"RONDO", inbox, jetstream.DiscardNew}, {"RONDO_DEAD", dead, jetstream.DiscardOld}} {
		if c := streamInfo(t, t.Context(), js, x.stream).Config; c.MaxBytes != x.bytes || c.Discard != x.discard {
			t.Errorf("%s: %d bytes, %v; want %d, %v", x.stream, c.MaxBytes, c.Discard, x.bytes, x.discard)
		}
	}
}

// TestAFullInboxLeavesRoom: what clients send cannot take the room of tasks, timers, buckets and
// dead letters.
func TestAFullInboxLeavesRoom(t *testing.T) {
	s := small(t)
	b := natstest.Connect(t, s, natsbroker.Config{})
	js := rawJetStream(t, s)
	wantBounds(t, js, 32<<20, 8<<20)

	body := []byte(strings.Repeat("x", 200<<10))
	var refused *jetstream.APIError
	for i := 0; refused == nil; i++ {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: fmt.Sprint("rondo.mailbox.letters.", i), Data: body})
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	if refused.ErrorCode != 10077 {
		t.Errorf("refused with %v", refused)
	}
	publish := func(w events.Wire) error {
		ctx, cancel := context.WithTimeout(t.Context(), longEnough)
		defer cancel()
		return b.Publish(ctx, w)
	}
	for _, w := range []events.Wire{
		{Subject: "rondo.task._.charge.1-2.i", Body: body},
		{Subject: "rondo.timer-due.1-2.i", Body: body, NotBefore: time.Now().Add(time.Hour)},
	} {
		if err := publish(w); err != nil {
			t.Errorf("%s: %v", w.Subject, err)
		}
	}
	// messages of a commit stay in the outbox, so that commits go on
	err := publish(events.Wire{Subject: "rondo.internal_start.child.i", Body: body})
	if !errors.Is(err, broker.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a child is started with %v", err)
	}
	for i := range 100 { // 20 MiB
		if err := b.StoreDeadLetter(t.Context(), broker.Delivery{Subject: fmt.Sprint("rondo.mailbox.letters.", i),
			Body: body, StoredAt: time.Now()}, broker.Cause{Reason: "unknown_instance"}); err != nil {
			t.Fatalf("dead letter %d: %v", i, err)
		}
	}
	dead := streamInfo(t, t.Context(), js, "RONDO_DEAD").State
	if dead.LastSeq != 100 || dead.Msgs < 30 || dead.Bytes > 8<<20 {
		t.Errorf("dead letters: %+v", dead)
	}
}

// TestBounds: default bounds are set once. What an operator has set, with settings or by hand,
// stays.
func TestBounds(t *testing.T) {
	s := small(t)
	js := rawJetStream(t, s)
	natstest.Connect(t, s, natsbroker.Config{})
	natstest.Connect(t, s, natsbroker.Config{})
	natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Verify})
	wantBounds(t, js, 32<<20, 8<<20)
	natstest.Connect(t, s, natsbroker.Config{InboxMaxBytes: 20 << 20, DeadLetterMaxBytes: 10 << 20})
	wantBounds(t, js, 20<<20, 10<<20)
	natstest.Connect(t, s, natsbroker.Config{})
	natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Verify})
	wantBounds(t, js, 20<<20, 10<<20)
	_, err := natstest.TryConnect(t, s, natsbroker.Config{Setup: natsbroker.Verify,
		DeadLetterMaxBytes: 30 << 20})
	if err == nil || !strings.Contains(err.Error(), "RONDO_DEAD: it may have 10485760 bytes, wanted are 31457280") {
		t.Errorf("verified with %v", err)
	}
	_, err = natstest.TryConnect(t, s, natsbroker.Config{InboxMaxBytes: 1 << 40})
	if err == nil || !strings.Contains(err.Error(), "RONDO cannot be bounded to 1099511627776 bytes") {
		t.Errorf("a bound that NATS cannot reserve: %v", err)
	}

	c := streamInfo(t, t.Context(), js, "RONDO").Config
	c.MaxBytes, c.Metadata["rondo.bound"] = 64<<20-10<<20, "open" // as a process leaves it that has died
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	natstest.Connect(t, s, natsbroker.Config{})
	wantBounds(t, js, 16<<20, 10<<20)
}

// TestAStreamIsNotCutWhenItIsBounded: an inbox of an earlier version has no bound. It gets one, and
// keeps messages that exceed it.
func TestAStreamIsNotCutWhenItIsBounded(t *testing.T) {
	s := small(t)
	js := rawJetStream(t, s)
	natstest.Connect(t, s, natsbroker.Config{})
	c := streamInfo(t, t.Context(), js, "RONDO").Config
	c.MaxBytes, c.Discard = -1, jetstream.DiscardOld
	delete(c.Metadata, "rondo.bound")
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	body := []byte(strings.Repeat("x", 900<<10))
	for i := range 20 {
		if _, err := js.Publish(t.Context(), fmt.Sprint("rondo.mailbox.letters.", i), body); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Connect(t, s, natsbroker.Config{})
	wantBounds(t, js, 16<<20, 8<<20) // NATS can reserve 32 MiB beside the 8 of the dead letters
	if n := streamInfo(t, t.Context(), js, "RONDO").State.Msgs; n != 20 {
		t.Errorf("%d messages are left of 20", n)
	}
}

// TestTheTableOfSharedResourcesHasAllStreams compares the table in docs/operating.md with the
// streams and buckets that exist, and with those that have a bound.
func TestTheTableOfSharedResourcesHasAllStreams(t *testing.T) {
	s := small(t)
	natstest.Connect(t, s, natsbroker.Config{})
	text, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## Shared resources\n")
	if !found {
		t.Fatal("there is no table")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := make(map[string]bool) // whether it has a bound in bytes
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if name := strings.Trim(cells[0], "| `"); strings.Contains(cells[0], "RONDO") {
			rows[name] = strings.Contains(cells[1], "max-bytes")
		}
	}
	js := rawJetStream(t, s)
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		bounded, there := rows[name]
		if !there {
			t.Errorf("the table has no row for %s", name)
		}
		if is := streamInfo(t, t.Context(), js, name).Config.MaxBytes > 0; is != bounded {
			t.Errorf("%s has a bound: %t; the table says %t", name, is, bounded)
		}
		delete(rows, name)
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range rows {
		t.Errorf("the table has a row for %s, which does not exist", name)
	}
}
