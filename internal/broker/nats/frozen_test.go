package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// The broker still serves the requests of a frozen or disconnected receiver until they expire, and
// delivers every other message to it. The new receiver of the partition must not take the next
// messages before those, which are redelivered after the ack wait.
func TestOrderIsKeptBesideAReceiverThatHearsNothing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Second}
	to, from := natstest.Connect(t, server, config), natstest.Connect(t, server, config)
	line := natstest.NewLine(t, server)
	deaf := natstest.Connect(t, line, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	receive := func(b *natsbroker.Bus, receivers int) chan broker.Delivery {
		came := make(chan broker.Delivery, 100)
		go func() { _ = b.Receive(ctx, 0, func(d broker.Delivery) { came <- d }) }()
		natstest.Eventually(t, "it asks for messages", func() bool {
			backlog, err := to.Backlog(t.Context(), 0)
			return err == nil && backlog.Receivers == receivers
		})
		return came
	}
	receive(deaf, 1)
	line.Lose()
	came := receive(from, 2)
	var want []string
	for i := range 6 {
		id := fmt.Sprint("m", i)
		want = append(want, id)
		if err := to.Publish(t.Context(),
			events.Wire{Subject: "rondo.mailbox.q.i", Header: events.Header{events.HeaderMsgID: {id}}}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for len(got) < len(want) {
		select {
		case d := <-came:
			d.Hold.Ack()
			// If the machine freezes for a second, messages that are acknowledged only after that
			// are redelivered. The first delivery of each counts.
			if id := d.Header[events.HeaderMsgID][0]; !slices.Contains(got, id) {
				got = append(got, id)
			}
		case <-time.After(longEnough):
			t.Fatalf("came %v, and nothing more", got)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("came %v, want %v", got, want)
	}
}

// Any replica may answer a request for many messages. A replica that is a little behind must not
// hide the newest ones.
func TestAReplicaThatIsBehindHidesNothing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc, err := nats.Connect(server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// A relay forwards all requests to the server, except those for many messages: it answers that
	// there are none.
	if _, err := nc.Subscribe("behind.>", func(m *nats.Msg) {
		if bytes.Contains(m.Data, []byte(`"batch"`)) && strings.Contains(m.Subject, "DIRECT.GET") {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}})
			return
		}
		_ = nc.PublishMsg(&nats.Msg{Subject: "$JS.API" + strings.TrimPrefix(m.Subject, "behind"), Reply: m.Reply,
			Header: m.Header, Data: m.Data})
	}); err != nil {
		t.Fatal(err)
	}
	to := natstest.Connect(t, server, natsbroker.Config{Partitions: 1})
	for i := range 3 {
		if err := to.Publish(t.Context(), message("rondo.event.e.i", i)); err != nil {
			t.Fatal(err)
		}
	}
	b := natstest.Connect(t, server, natsbroker.Config{APIPrefix: "behind"})
	left, found, err := b.StillThere(t.Context(), 0, 1, 3)
	if err != nil || found != 3 || !slices.Equal(left["i1"], []uint64{2}) {
		t.Errorf("there are %d, %v (%v); want 3", found, left, err)
	}
}
