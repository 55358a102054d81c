package natsbroker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestRemovedPartsAreMadeAgain removes every stream, bucket and consumer that the setup makes, one
// after the other, while a process receives. Each is made again, and messages come, also delayed
// ones.
func TestRemovedPartsAreMadeAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 2})
	b.ReconcileEvery(100 * time.Millisecond)
	came := make(chan string, 100)
	for p := range 2 {
		go func() {
			for t.Context().Err() == nil {
				_ = b.Receive(t.Context(), p, func(d broker.Delivery) {
					d.Hold.Ack()
					came <- d.Subject
				})
			}
		}()
	}
	js := rawJetStream(t, s)
	there := func(part string) bool {
		stream, consumer, isConsumer := strings.Cut(part, "/")
		if !isConsumer {
			_, err := js.Stream(t.Context(), stream)
			return err == nil
		}
		_, err := js.Consumer(t.Context(), stream, consumer)
		return err == nil
	}
	works := func(after string) {
		t.Helper()
		want := map[string]bool{"rondo.event.e.i": true, "rondo.event.e.k": true, "rondo.start.o.i": true}
		for subject := range want {
			w := events.Wire{Subject: subject, Header: events.Header{events.HeaderMsgID: {after + subject}}}
			if strings.Contains(subject, "start") {
				w.NotBefore = time.Now().Add(1600 * time.Millisecond) // it goes through RONDO_LATER
			}
			if err := b.Publish(t.Context(), w); err != nil {
				t.Fatalf("after %s: %v", after, err)
			}
		}
		limit := time.After(5 * time.Minute)
		for len(want) > 0 {
			select {
			case subject := <-came:
				delete(want, subject)
			case <-limit:
				t.Fatalf("after %s was removed, these do not come: %v", after, want)
			}
		}
	}
	works("nothing")
	for _, part := range []string{"RONDO/p-0", "RONDO/a-0", "RONDO/p-1", "RONDO/a-1", "RONDO_LATER/due", "RONDO_TASKS",
		"RONDO_DEAD", "KV_RONDO_MEMBERS", "KV_RONDO_SESSIONS", "KV_RONDO_KV", "RONDO_LATER", "RONDO"} {
		stream, consumer, isConsumer := strings.Cut(part, "/")
		remove := func() error { return js.DeleteStream(t.Context(), stream) }
		if isConsumer {
			remove = func() error { return js.DeleteConsumer(t.Context(), stream, consumer) }
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, part+" is there again", func() bool { return there(part) })
		works(part)
	}
}
