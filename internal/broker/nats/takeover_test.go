package natsbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// delayedStarts are delayed starts of one instance, and their receivers.
type delayedStarts struct {
	*testing.T
	client *natsbroker.Bus
	js     jetstream.JetStream
}

func newDelayedStarts(t *testing.T, s *embedded.Server, config natsbroker.Config) *delayedStarts {
	return &delayedStarts{t, natstest.Connect(t, s, config), rawJetStream(t, s)}
}

func (s *delayedStarts) publish(id string, delay time.Duration) {
	s.Helper()
	if err := s.client.Publish(s.Context(), events.Wire{Subject: "rondo.start.fulfil.i",
		Header: events.Header{events.HeaderMsgID: {id}}, NotBefore: time.Now().Add(delay)}); err != nil {
		s.Fatal(err)
	}
}

// waits reports whether a start waits for its time, and not another one.
func (s *delayedStarts) waits(id string) bool {
	st, err := s.js.Stream(s.Context(), "RONDO_LATER")
	if err != nil {
		s.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(s.Context(), "rondo.later.start.fulfil.i")
	return err == nil && m.Header.Get(events.HeaderMsgID) == id
}

// isTakenOver waits until a start waits for its time, and its delivery is settled.
func (s *delayedStarts) isTakenOver(id string) {
	s.Helper()
	natstest.Eventually(s.T, "start "+id+" waits, and is settled", func() bool {
		if !s.waits(id) {
			return false
		}
		backlog, err := s.client.Backlog(s.Context(), 0) // AFTER it waits: it was delivered before that
		return err == nil && backlog.Waiting == 0 && backlog.Held == 0
	})
}

// receive starts a receiver, and returns the ids that it delivers.
func (s *delayedStarts) receive(b *natsbroker.Bus, receivers int) chan string {
	s.Helper()
	came := make(chan string, 100)
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	go func() {
		_ = b.Receive(ctx, 0, func(d broker.Delivery) {
			d.Hold.Ack()
			came <- d.Header[events.HeaderMsgID][0]
		})
	}()
	natstest.Eventually(s.T, "it asks for messages", func() bool {
		backlog, err := s.client.Backlog(s.Context(), 0)
		return err == nil && backlog.Receivers == receivers
	})
	return came
}

// The network of a receiver is cut while it removes the older one of two delayed starts. Its
// request arrives after another receiver has taken the partition over and has stored a newer start.
// The request must not remove that one.
func TestALateRemovalSparesANewerStart(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Second}
	starts, other := newDelayedStarts(t, server, config), natstest.Connect(t, server, config)
	line := natstest.NewLine(t, server)
	cut := natstest.Connect(t, line, config)
	starts.receive(cut, 1)
	starts.publish("far", time.Hour)
	starts.isTakenOver("far")
	resume := line.Hold()
	defer resume()
	starts.publish("near", 300*time.Millisecond)
	natstest.Eventually(t, "the receiver that is cut off has the second start", func() bool {
		backlog, err := starts.client.Backlog(t.Context(), 0)
		return err == nil && backlog.Held == 1
	})
	came := starts.receive(other, 2)
	select {
	case id := <-came:
		if id != "near" {
			t.Fatalf("%q came, want the second start", id)
		}
	case <-time.After(longEnough):
		t.Fatal("the second start does not come")
	}
	starts.publish("newer", time.Hour)
	natstest.Eventually(t, "the third start waits", func() bool { return starts.waits("newer") })
	resume()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	if _, err := cut.RoundTrip(ctx); err != nil { // its requests have arrived now
		t.Fatal(err)
	}
	later, err := starts.js.Stream(ctx, "RONDO_LATER")
	if err != nil {
		t.Fatal(err)
	}
	const behind = "rondo.later.start.fulfil.other" // a request that is done after them
	if err := later.Purge(ctx, jetstream.WithPurgeSubject(behind)); err != nil {
		t.Fatal(err)
	}
	if !starts.waits("newer") {
		t.Error("the third start is gone")
	}
}

// A process is frozen just before it stores a delayed start, for longer than NATS remembers ids.
// Another one stores the start meanwhile, and a newer one in place of it. When the first process
// continues, the newer start must stay, and the older one must not come back.
func TestALateTakeoverSparesANewerStart(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	config := natsbroker.Config{Partitions: 1, InboxAckWait: time.Second}
	starts, other := newDelayedStarts(t, server, config), natstest.Connect(t, server, config)
	forgetIDsSoon(t, starts.js, "RONDO_LATER")
	line := natstest.NewLine(t, server)
	frozen := natstest.Connect(t, line, config)
	held, release := frozen.HoldLater()
	starts.receive(frozen, 1)
	starts.publish("older", time.Hour)
	await(t, held, "the first process is about to store the start")
	resume := line.Hold()
	defer resume()
	line.Break()
	starts.receive(other, 1)
	starts.isTakenOver("older")
	awaitForgotten(t, starts.js, "rondo.later.start.fulfil.other")
	starts.publish("newer", 2*time.Hour)
	starts.isTakenOver("newer")
	resume()
	natstest.Eventually(t, "the first process is connected", func() bool { return frozen.Connected() == nil })
	await(t, release(), "the first process has published the start")
	if !starts.waits("newer") {
		t.Fatal("the newer start is gone")
	}
	starts.isTakenOver("newer")
}

// forgetIDsSoon makes a stream remember ids for as short as can be.
func forgetIDsSoon(t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	st, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	config := st.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// awaitForgotten waits until the stream of a subject has forgotten all ids so far.
func awaitForgotten(t *testing.T, js jetstream.JetStream, subject string) {
	t.Helper()
	first := true
	natstest.Eventually(t, "the ids are forgotten", func() bool {
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject,
			Header: nats.Header{nats.MsgIdHdr: {"probe"}}})
		was := first
		first = first && err != nil
		return err == nil && !ack.Duplicate && !was
	})
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(longEnough):
		t.Fatalf("never: %s", what)
	}
}
