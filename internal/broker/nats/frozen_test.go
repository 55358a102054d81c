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

// A receiver that is frozen or cut off still counts for the broker until its requests are over, and
// is handed every other message. Whoever has taken the partition over must not take the next ones
// before those, which come again after the wait.
func TestOrderIsKeptBesideAReceiverThatHearsNothing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxWait: time.Second}
	to, from := natstest.Connect(t, server, config), natstest.Connect(t, server, config)
	line := natstest.NewLine(t, server)
	deaf := natstest.Connect(t, line, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	receive := func(b *natsbroker.Bus, receivers int) chan broker.Delivery {
		came := make(chan broker.Delivery, 100)
		go b.Receive(ctx, 0, func(d broker.Delivery) { came <- d })
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
			events.Wire{Subject: "rondo.queue.q.i", Header: events.Header{events.HeaderMsgID: {id}}}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for len(got) < len(want) {
		select {
		case d := <-came:
			d.Hold.Ack()
			// A machine that stands still for a second hands out again what is acknowledged only
			// after that. Each counts when it comes first.
			if id := d.Header[events.HeaderMsgID][0]; !slices.Contains(got, id) {
				got = append(got, id)
			}
		case <-time.After(time.Minute):
			t.Fatalf("came %v, and nothing more", got)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("came %v, want %v", got, want)
	}
}

// Any replica may be asked for many messages at once. One that is a little behind must not hide the
// newest ones.
func TestAReplicaThatIsBehindHidesNothing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// Everything goes to the server but questions for many messages, which somebody answers who has
	// none.
	if _, err := nc.Subscribe("behind.>", func(m *nats.Msg) {
		if bytes.Contains(m.Data, []byte(`"batch"`)) && strings.Contains(m.Subject, "DIRECT.GET") {
			m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}})
			return
		}
		nc.PublishMsg(&nats.Msg{Subject: "$JS.API" + strings.TrimPrefix(m.Subject, "behind"), Reply: m.Reply,
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
