package natsbus_test

import (
	"context"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/bus/embedded"
	"github.com/rondo-run/rondo/pkg/bus/natsbus"
	"github.com/rondo-run/rondo/pkg/events"
)

func TestSmoke(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := natsbus.Connect(t.Context(), natsbus.Config{InProcess: s})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got := make(chan bus.Delivery, 100)
	ps, err := b.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, p := range ps.All() {
		go b.Receive(ctx, p, func(d bus.Delivery) { got <- d })
	}
	due := time.Now().Add(2 * time.Second)
	err = b.Publish(t.Context(), events.Wire{Subject: "rondo.start.x.i1", Header: events.Header{"Nats-Msg-Id": {"a"}}},
		events.Wire{Subject: "rondo.timer.1-2.i1", NotBefore: due, Header: events.Header{"Nats-Msg-Id": {"b"}}},
		events.Wire{Subject: "rondo.timer.1-3.i1", NotBefore: due.Add(time.Hour)},
		events.Wire{Subject: "rondo.timer.1-2.i1", NotBefore: due, Header: events.Header{"Nats-Msg-Id": {"c"}}},
		events.Wire{Subject: "rondo.timer.1-3.i1", Purge: true, NotBefore: due.Add(time.Hour)},
		events.Wire{Subject: "rondo.timer.1-4.i1", NotBefore: time.Now().Add(100 * time.Millisecond)},
	)
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.After(3 * time.Second)
	for {
		select {
		case d := <-got:
			t.Log(d, time.Since(due))
			d.Hold.Ack()
		case <-timeout:
			bl, err := b.Backlog(t.Context(), 1)
			t.Log(bl, err)
			return
		}
	}
}
