package natsbroker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// Messages that the broker sends into a broken connection are redelivered only after the ack wait.
// Newer messages of the same instance must not arrive before them; messages of other instances need
// not wait.
func TestWhatABrokenConnectionLosesKeepsItsPlace(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	// A slow machine connects again within the ack wait.
	config := natsbroker.Config{Partitions: 1, InboxAckWait: 30 * time.Second}
	to := natstest.Connect(t, server, config)
	line := natstest.NewLine(t, server)
	from := natstest.Connect(t, line, config)
	ctx, cancel := context.WithCancel(t.Context())
	came := make(chan broker.Delivery, 10)
	ended := make(chan error, 1)
	go func() { ended <- from.Receive(ctx, 0, func(d broker.Delivery) { came <- d }) }()
	next := func() string {
		t.Helper()
		select {
		case d := <-came:
			d.Hold.Ack()
			return d.Header[events.HeaderMsgID][0]
		case <-time.After(longEnough):
			t.Fatal("nothing comes")
			return ""
		}
	}
	publish := func(n int, subjects ...string) {
		t.Helper()
		for i, s := range subjects {
			if err := to.Publish(t.Context(), events.Wire{Subject: s,
				Header: events.Header{events.HeaderMsgID: {fmt.Sprint("m", n+i)}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	held := func() int {
		b, err := to.Backlog(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return int(b.Held)
	}

	publish(0, "rondo.event.e.i")
	if got := next(); got != "m0" {
		t.Fatalf("%s came", got)
	}
	natstest.Eventually(t, "nothing is held", func() bool { return held() == 0 })
	line.Lose()
	publish(1, "rondo.event.e.i", "rondo.event.e.i")
	natstest.Eventually(t, "the broker has sent them", func() bool { return held() == 2 })
	line.Break()
	publish(3, "rondo.event.e.i", "rondo.event.e.j")
	got := []string{next(), next(), next(), next()}
	if want := []string{"m4", "m1", "m2", "m3"}; !slices.Equal(got, want) {
		t.Errorf("came %v, want %v", got, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
