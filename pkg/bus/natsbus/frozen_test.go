package natsbus_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/bus/natsbus"
	"github.com/rondo-run/rondo/pkg/events"
)

// A receiver that is frozen or cut off still counts for the broker until its requests are over, and is handed every other message. Whoever has taken the partition over must
// not take the next ones before those, which come again after the wait.
func TestOrderIsKeptBesideAReceiverThatHearsNothing(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	config := natsbus.Config{Partitions: 1, InboxWait: time.Second}
	to, from := natstest.Connect(t, server, config), natstest.Connect(t, server, config)
	line := natstest.NewLine(t, server)
	deaf := natstest.Connect(t, line, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	receive := func(b *natsbus.Bus, receivers int) chan bus.Delivery {
		came := make(chan bus.Delivery, 100)
		go b.Receive(ctx, 0, func(d bus.Delivery) { came <- d })
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
		if err := to.Publish(t.Context(), events.Wire{Subject: "rondo.queue.q.i", Header: events.Header{events.HeaderMsgID: {id}}}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for len(got) < len(want) {
		select {
		case d := <-came:
			d.Hold.Ack()
			got = append(got, d.Header[events.HeaderMsgID][0])
		case <-time.After(time.Minute):
			t.Fatalf("came %v, and nothing more", got)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("came %v, want %v", got, want)
	}
}
