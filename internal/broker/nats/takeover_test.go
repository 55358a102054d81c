package natsbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// The network of a receiver is cut while it removes the older one of two delayed starts. Its
// request arrives after another receiver has taken the partition over and has stored a newer start.
// The request must not remove that one.
func TestALateRemovalSparesANewerStart(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Second}
	client, other := natstest.Connect(t, server, config), natstest.Connect(t, server, config)
	line := natstest.NewLine(t, server)
	cut := natstest.Connect(t, line, config)
	js := rawJetStream(t, server)
	const subject = "rondo.start.fulfil.i"
	publish := func(id string, delay time.Duration) {
		if err := client.Publish(t.Context(), events.Wire{Subject: subject,
			Header: events.Header{events.HeaderMsgID: {id}}, NotBefore: time.Now().Add(delay)}); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(id string) bool {
		st, err := js.Stream(t.Context(), "RONDO_LATER")
		if err != nil {
			t.Fatal(err)
		}
		m, err := st.GetLastMsgForSubject(t.Context(), "rondo.later.start.fulfil.i")
		return err == nil && m.Header.Get(events.HeaderMsgID) == id
	}
	receive := func(b *natsbroker.Bus, receivers int) chan string {
		came := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		go func() {
			_ = b.Receive(ctx, 0, func(d broker.Delivery) {
				d.Hold.Ack()
				came <- d.Header[events.HeaderMsgID][0]
			})
		}()
		natstest.Eventually(t, "it asks for messages", func() bool {
			backlog, err := client.Backlog(t.Context(), 0)
			return err == nil && backlog.Receivers == receivers
		})
		return came
	}
	receive(cut, 1)
	publish("far", time.Hour)
	natstest.Eventually(t, "the first start waits, and is settled", func() bool {
		backlog, err := client.Backlog(t.Context(), 0)
		return waits("far") && err == nil && backlog.Held == 0
	})
	resume := line.Hold()
	defer resume()
	publish("near", 300*time.Millisecond)
	natstest.Eventually(t, "the receiver that is cut off has the second start", func() bool {
		backlog, err := client.Backlog(t.Context(), 0)
		return err == nil && backlog.Held == 1
	})
	came := receive(other, 2)
	select {
	case id := <-came:
		if id != "near" {
			t.Fatalf("%q came, want the second start", id)
		}
	case <-time.After(longEnough):
		t.Fatal("the second start does not come")
	}
	publish("newer", time.Hour)
	natstest.Eventually(t, "the third start waits", func() bool { return waits("newer") })
	resume()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	if _, err := cut.RoundTrip(ctx); err != nil { // its requests have arrived now
		t.Fatal(err)
	}
	later, err := js.Stream(ctx, "RONDO_LATER")
	if err != nil {
		t.Fatal(err)
	}
	const behind = "rondo.later.start.fulfil.other" // a request that is done after them
	if err := later.Purge(ctx, jetstream.WithPurgeSubject(behind)); err != nil {
		t.Fatal(err)
	}
	if !waits("newer") {
		t.Error("the third start is gone")
	}
}
