package natsbroker_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestAnchorsLieInBusyStreams publishes messages until all streams have an anchor, and until the
// anchors are published again. Each stream has one, and no receiver gets it.
func TestAnchorsLieInBusyStreams(t *testing.T) {
	server := natstest.Start(t)
	b := natstest.Connect(t, server, natsbroker.Config{Partitions: 2})
	js := rawJetStream(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came := make(chan string, 10_000)
	for p := range 2 {
		go func() {
			if err := b.Receive(ctx, p, func(d broker.Delivery) {
				d.Hold.Ack()
				came <- d.Subject
			}); err != nil {
				t.Error(err)
			}
		}()
	}
	sent := 0
	busy := func() {
		for range 150 {
			sent++
			subject := fmt.Sprintf("rondo.wake.test.i%d", sent)
			if err := b.Publish(ctx, events.Wire{Subject: subject, Header: events.Header{}}); err != nil {
				t.Fatal(err)
			}
			if got := <-came; got != subject {
				t.Fatalf("%s came, want %s", got, subject)
			}
		}
	}
	anchors := map[string]string{"RONDO": "rondo.anchor", "RONDO_LATER": "rondo.later.anchor._._",
		"RONDO_TASKS": "rondo.later.task._.anchor._._"}
	places := func() map[string]uint64 {
		all := make(map[string]uint64)
		for stream, subject := range anchors {
			s, err := js.Stream(ctx, stream)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := s.GetLastMsgForSubject(ctx, subject); err == nil {
				all[stream] = m.Sequence
			}
		}
		return all
	}
	var first map[string]uint64
	natstest.Eventually(t, "all streams have an anchor", func() bool {
		busy()
		first = places()
		return len(first) == len(anchors)
	})
	natstest.Eventually(t, "they were put down again", func() bool {
		busy()
		now := places()
		return now["RONDO"] > first["RONDO"] && now["RONDO_LATER"] > first["RONDO_LATER"] &&
			now["RONDO_TASKS"] > first["RONDO_TASKS"]
	})
	natstest.Eventually(t, "nothing else is left", func() bool {
		busy() // the server may purge BEFORE it stores the new anchor; then the next purge takes the old one
		for stream := range anchors {
			if streamInfo(t, ctx, js, stream).State.Msgs != 1 {
				return false
			}
		}
		return true
	})
	if n := stored(t, ctx, js, "rondo", "RONDO", "RONDO_LATER", "RONDO_TASKS"); n != 0 {
		t.Errorf("%d messages are left besides", n)
	}
}
