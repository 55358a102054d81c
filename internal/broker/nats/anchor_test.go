package natsbroker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestAnchorsLieInBusyStreams publishes messages until all streams have an anchor, and until the
// anchors are published again. Each stream has one, and no receiver gets it.
func TestAnchorsLieInBusyStreams(t *testing.T) {
	const deadline = 5 * time.Minute
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
			select {
			case got := <-came:
				if got != subject {
					t.Fatalf("%s came, want %s", got, subject)
				}
			case <-time.After(deadline):
				t.Fatalf("%s has not come after %v", subject, deadline)
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
	// No message is published from here on, so that a second anchor would stay.
	left := make(map[string]map[string]uint64)
	if !slowtest.Until(deadline, func() bool {
		one := true
		for stream, subject := range anchors {
			s := streamInfo(t, ctx, js, stream, jetstream.WithSubjectFilter(">")).State
			left[stream] = s.Subjects
			one = one && s.Msgs == 1 && s.Subjects[subject] == 1
		}
		return one
	}) {
		t.Errorf("the streams still have %v; want one anchor in each", left)
	}
}

// TestMessagesInFlight: streams with anchors only hold no messages in flight.
func TestMessagesInFlight(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	for _, subject := range []string{"rondo.anchor", "rondo.anchor", "rondo.later.anchor._._",
		"rondo.later.task._.anchor._._"} {
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(want ...string) {
		t.Helper()
		if got, err := b.InFlight(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q hold messages (%v), want %q", got, err, want)
		}
	}
	holds()
	for _, w := range []events.Wire{{Subject: "rondo.task._.act.1-2.i"}, {Subject: "rondo.event.e.i"},
		{Subject: "rondo.timer-due.1-2.i", NotBefore: time.Now().Add(time.Hour)}} {
		if err := b.Publish(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	holds("RONDO", "RONDO_LATER", "RONDO_TASKS")
	for _, name := range []string{"RONDO", "RONDO_TASKS"} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	holds("RONDO_LATER")
}
