package natsbroker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
)

// A process that receives from a partition forwards due messages. Receive must end although NATS
// does not store them, since an orchestrator that shuts down waits for it. Then another process
// gets the message at once, and not only after the ack wait.
func TestReceiveEndsAlthoughADueMessageCannotBeForwarded(t *testing.T) {
	t.Parallel()
	for name, prevent := range map[string]func(*testing.T, jetstream.JetStream, *natstest.Line) (allow func()){
		"the inbox is full":  fillInbox,
		"NATS hears nothing": func(_ *testing.T, _ jetstream.JetStream, l *natstest.Line) func() { return l.Hold() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Hour, InboxMaxBytes: 1 << 20,
				DeadLetterMaxBytes: 1 << 20}
			other := natstest.Connect(t, s, config)
			line := natstest.NewLine(t, s)
			bus := natstest.Connect(t, line, config)
			bus.ReconcileEvery(time.Hour) // the bound of the inbox stays as the test sets it
			other.ReconcileEvery(time.Hour)
			js := rawJetStream(t, s)
			due := func() *jetstream.ConsumerInfo {
				c, err := js.Consumer(t.Context(), "RONDO_LATER", "due")
				if err != nil {
					t.Fatal(err)
				}
				return c.CachedInfo()
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- bus.Receive(ctx, 0, func(d broker.Delivery) { d.Hold.Ack() }) }()
			natstest.Eventually(t, "it asks for due messages", func() bool { return due().NumWaiting > 0 })
			allow := prevent(t, js, line)
			t.Cleanup(allow)
			if _, err := js.Publish(t.Context(), "rondo.due.start.o.i", nil); err != nil { // as NATS does itself
				t.Fatal(err)
			}
			natstest.Eventually(t, "it has the message", func() bool { return due().NumAckPending == 1 })
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(longEnough):
				t.Fatal("Receive does not end")
			}

			allow()
			came := make(chan string, 1)
			go func() {
				_ = other.Receive(t.Context(), 0, func(d broker.Delivery) { // it ends with the test
					d.Hold.Ack()
					came <- d.Subject
				})
			}()
			select {
			case subject := <-came:
				if subject != "rondo.due_start.o.i" {
					t.Error(subject)
				}
			case <-time.After(longEnough):
				t.Fatal("the message does not come")
			}
		})
	}
}

// A process that cannot forward due messages holds few of them if they are large. All others stay
// in NATS, and are forwarded as soon as the inbox takes messages.
func TestLargeDueMessagesAreForwardedInParts(t *testing.T) {
	t.Parallel()
	const n, size = 160, 256 << 10
	s := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Hour, InboxMaxBytes: 64 << 20,
		DeadLetterMaxBytes: 1 << 20}
	bus := natstest.Connect(t, s, config)
	bus.ReconcileEvery(time.Hour) // the bound of the inbox stays as the test sets it
	js := rawJetStream(t, s)
	setInboxBound(t, js, 1)
	for i := range n {
		if _, err := js.Publish(t.Context(), fmt.Sprint("rondo.due.start.o.i", i), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	came, ended := make(chan string, n), make(chan error, 1)
	go func() {
		ended <- bus.Receive(ctx, 0, func(d broker.Delivery) {
			d.Hold.Ack()
			came <- d.Subject
		})
	}()
	var held int
	natstest.Eventually(t, "it asks for no more", func() bool {
		c, err := js.Consumer(t.Context(), "RONDO_LATER", "due")
		if err != nil {
			t.Fatal(err)
		}
		info := c.CachedInfo()
		held = info.NumAckPending
		return held == n || held > 0 && info.NumWaiting == 0
	})
	// What it forwards, and two requests.
	if most := 3 * (8 << 20) / size; held > most {
		t.Errorf("it holds %d messages, want at most %d", held, most)
	}
	setInboxBound(t, js, 64<<20)
	seen := make(map[string]bool)
	for len(seen) < n {
		select {
		case subject := <-came:
			seen[subject] = true
		case <-time.After(longEnough):
			t.Fatalf("%d of %d messages have come", len(seen), n)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// setInboxBound sets the bound of the inbox.
func setInboxBound(t *testing.T, js jetstream.JetStream, bytes int64) {
	t.Helper()
	c := streamInfo(t, t.Context(), js, "RONDO").Config
	c.MaxBytes = bytes
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// fillInbox has the inbox refuse messages until allow is called.
func fillInbox(t *testing.T, js jetstream.JetStream, _ *natstest.Line) (allow func()) {
	t.Helper()
	bound := func(bytes int64) error {
		st, err := js.Stream(context.Background(), "RONDO") // allow is called when the test has ended, too
		if err == nil {
			c := st.CachedInfo().Config
			c.MaxBytes = bytes
			_, err = js.UpdateStream(context.Background(), c)
		}
		return err
	}
	if err := bound(1); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := bound(1 << 20); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	}
}
