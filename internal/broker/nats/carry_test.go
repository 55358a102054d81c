package natsbroker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file tests what becomes of the headers of a message that a service stores once more.

// A delayed start carries no header on which NATS acts in the stream of delayed messages: not one
// that publishes the message of another client in its place, and not one that repeats it.
func TestADelayedStartIsItsOwn(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	send := func(id string, after time.Duration, more nats.Header) {
		t.Helper()
		m := &nats.Msg{Subject: "rondo.start.o." + id, Header: nats.Header{"Rondo-Not-Before": {
			time.Now().Add(after).UTC().Format(time.RFC3339Nano)}}, Data: []byte("of " + id)}
		for name, values := range more {
			m.Header[name] = values
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	came := make(chan broker.Delivery, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Receive(ctx, 0, func(d broker.Delivery) { d.Hold.Ack(); came <- d }) }()
	const secret = "rondo.later.start.o.secret"
	send("secret", time.Hour, nil)
	natstest.Eventually(t, "the secret waits", func() bool {
		has, err := b.Has(t.Context(),
			events.Wire{Subject: "rondo.start.o.secret", NotBefore: time.Now().Add(time.Hour)})
		return err == nil && has && stored(t, t.Context(), js, "rondo", "RONDO_LATER") > 0
	})
	attacks := map[string]nats.Header{
		"source": {"Nats-Schedule-Source": {secret}}, "rollup": {"Nats-Schedule-Rollup": {"all"}},
		"schedule": {"Rondo-Schedule": {"nightly"}, "Rondo-Schedule-Revision": {"1"}, "Rondo-Each": {"true"}},
		"expected": {"Nats-Expected-Last-Subject-Sequence": {"0"}}, "other": {"Nats-No-Such-Header": {"x"}},
		"fired": {"Rondo-Fired": {"2001-01-01T00:00:00Z"}, "Rondo-Accepted": {"9@9"}}, "trace": {
			"traceparent": {"t"}},
	}
	for id, h := range attacks {
		send(id, 5*time.Second, h)
	}
	for range attacks {
		select {
		case d := <-came:
			id := strings.TrimPrefix(d.Subject, "rondo.start.o.")
			if string(d.Body) != "of "+id {
				t.Errorf("%s came with %q", d.Subject, d.Body)
			}
			for name := range d.Header {
				if name != events.HeaderMsgID && name != events.HeaderSent && name != "traceparent" {
					t.Errorf("%s came with the header %s", d.Subject, name)
				}
			}
			if id == "trace" && d.Header["traceparent"] == nil {
				t.Error("its trace is lost")
			}
			delete(attacks, id)
		case <-time.After(longEnough):
			t.Fatalf("%v did not come; dead letters: %v", attacks, deadLetters(t, js, "RONDO_DEAD"))
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A dead letter that a worker has stored replays as nothing but a task.
func TestAForgedLetterIsNotReplayed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	letter := func(subject string) (place uint64) {
		t.Helper()
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "rondo.dead.task._.a.1-2.i",
			Header: nats.Header{"Rondo-Dead-Subject": {subject}, "Rondo-Dead-Id": {"d"}}, Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	for _, subject := range []string{"rondo.internal_control.terminate.i", "rondo.start.o.j", "",
		"rondo.task._.a.1-2.j", "other.task._.a.1-2.i"} {
		place := letter(subject)
		if err := b.Replay(t.Context(), place); err == nil || !strings.Contains(err.Error(), "no service") {
			t.Errorf("%q: %v, want that it is not replayed", subject, err)
		}
		if _, err := b.DeadLetter(t.Context(), place); err != nil {
			t.Errorf("%q: %v, want that it remains", subject, err)
		}
	}
	// The permissions deny a worker the dead letters of the engine's tasks, in one spelling only.
	forged := "rondo.task.rondo%2esystem.a.1-2.i"
	ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "rondo.dead.task.rondo%2esystem.a.1-2.i",
		Header: nats.Header{"Rondo-Dead-Subject": {forged}, "Rondo-Dead-Id": {"d"}}, Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Replay(t.Context(), ack.Sequence); err == nil || !strings.Contains(err.Error(), "rondo%2Esystem") {
		t.Errorf("%q: %v, want that it is not replayed", forged, err)
	}
	if _, err := b.DeadLetter(t.Context(), ack.Sequence); err != nil {
		t.Errorf("%q: %v, want that it remains", forged, err)
	}
	if err := b.Replay(t.Context(), letter("rondo.task._.a.1-2.i")); err != nil {
		t.Error(err)
	}
	if in, tasks := stored(t, t.Context(), js, "rondo", "RONDO"), stored(t, t.Context(), js, "rondo",
		"RONDO_TASKS"); in != 0 || tasks != 1 {
		t.Errorf("%d messages and %d tasks were published, want one task", in, tasks)
	}
}
