package natsbroker_test

import (
	"cmp"
	"context"
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

// A client publishes messages with the longest subjects that NATS accepts, with a delay and without
// one. The orchestrator publishes under longer subjects than these, and NATS closes the connection
// that sends a longer line than it accepts. So the receiver delivers these messages at once, the
// orchestrator dead-letters them, and the messages of others arrive.
func TestOverlongSubjectsAreDeadLettered(t *testing.T) {
	t.Parallel()
	far := nats.Header{"Rondo-Not-Before": {"2299-01-01T00:00:00Z"}}
	near := nats.Header{"Rondo-Not-Before": {time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)}}
	var sent []*nats.Msg
	for _, verb := range []string{"event", "start"} {
		for i, name := range []string{
			strings.Repeat("n", 3470), strings.Repeat("n", 3900), strings.Repeat("n", 4000),
			strings.Repeat("%", 1300), // the dead letter's subject is longer
		} {
			for j, h := range []nats.Header{{}, near, far} {
				sent = append(sent, &nats.Msg{Subject: fmt.Sprintf("rondo.%s.%s.i%d%d", verb, name, i, j), Header: h})
			}
		}
	}
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	b := made(t, s, "shop-setup", "rondo")
	if err := b.SetPartitions(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	drain(t, b)
	client := userConnection(t, s, "shop-client", "")
	left := make(map[string]bool)
	for _, m := range sent {
		answer, err := client.RequestMsg(m, time.Minute)
		if err != nil || strings.Contains(string(answer.Data), "error") {
			t.Fatalf("NATS does not store a subject of %d bytes: %s, %v", len(m.Subject), answer.Data, err)
		}
		// These subjects are short enough to wait for their time.
		if len(m.Subject) > 3500 || m.Header["Rondo-Not-Before"] == nil {
			left[m.Subject] = true
		}
	}
	const others = "rondo.event.e.others"
	if err := b.Publish(t.Context(), events.Wire{Subject: others}); err != nil {
		t.Fatal(err)
	}
	left[others] = true

	o := natstest.Connect(t, s, natsbroker.Config{
		Login: natsbroker.Login{User: "shop-orchestrator", Password: "shop-orchestrator"}, Setup: natsbroker.Verify,
		InboxPrefix: "_INBOX_orchestrator"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came, ended := make(chan string, 2*len(sent)), make(chan error, 1)
	go func() {
		ended <- o.Receive(ctx, 0, func(d broker.Delivery) {
			if d.Subject != others { // as an orchestrator does with a name that is too long
				if err := o.StoreDeadLetter(ctx, d, broker.Cause{Reason: "malformed"}); err != nil && ctx.Err() == nil {
					t.Errorf("dead-letter a subject of %d bytes: %v", len(d.Subject), err)
				}
			}
			d.Hold.Ack()
			came <- d.Subject
		})
	}()
	for timeout := time.After(longEnough); len(left) > 0; {
		select {
		case subject := <-came:
			delete(left, subject)
		case err := <-ended:
			t.Fatalf("the receiver ended: %v", err)
		case <-timeout:
			t.Fatalf("%d messages do not arrive", len(left))
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	// Each dead letter has the subject of its message, and the operator can drop it.
	letters, err := b.DeadLetters(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	is := make(map[string]bool)
	for _, l := range letters {
		is[l.Subject] = true
		if err := b.Drop(t.Context(), l.Sequence); err != nil {
			t.Errorf("drop %d: %v", l.Sequence, err)
		}
	}
	for _, m := range sent {
		if want := len(m.Subject) > 3500 || m.Header["Rondo-Not-Before"] == nil; want && !is[m.Subject] {
			t.Errorf("no dead letter of a subject of %d bytes, delayed until %s", len(m.Subject),
				cmp.Or(m.Header.Get("Rondo-Not-Before"), "now"))
		}
	}
}
