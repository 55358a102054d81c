package natsbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestHeadersOfStrangersDoNoHarm publishes headers that any NATS client may publish.
func TestHeadersOfStrangersDoNoHarm(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1, InboxAckWait: time.Second})
	js := rawJetStream(t, s)
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }
	now := map[string]string{ // these are delivered at once
		"bad": "tomorrow", "empty": "", "past": "0001-01-01T00:00:00Z", "long": strings.Repeat("9", 1000),
		"date": "2030-01-01", "five digits": "12000-01-01T00:00:00Z",
	}
	never := map[string]string{"far": "9999-12-31T23:59:59.999999999Z",
		"beyond what a clock counts": "2300-01-01T00:00:00Z", "a day": at(24 * time.Hour)}
	due := time.Now().Add(2500 * time.Millisecond)
	soon := map[string]string{"soon": due.UTC().Format(time.RFC3339Nano)}
	want := make(map[string]bool)
	for _, group := range []map[string]string{now, never, soon} {
		for name, value := range group {
			m := &nats.Msg{Subject: "rondo.event.e." + events.EncodeToken(name),
				Header: nats.Header{"Rondo-Not-Before": {value}, "Rondo-Id": {name}, "Nats-Msg-Id": {"raw " + name}}}
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name := range now {
		want[name] = true
	}
	want["soon"] = true
	came, stop := receive(t, b)
	taken := make(map[uint64]bool) // a slow machine may get a message twice
	for len(want) > 0 {
		select {
		case d := <-came:
			name, err := events.DecodeToken(strings.TrimPrefix(d.Subject, "rondo.event.e."))
			if err != nil || !want[name] && !taken[d.Sequence] {
				t.Errorf("%s came", d.Subject)
			}
			delete(want, name)
			taken[d.Sequence] = true
			if name == "soon" && time.Now().Before(due) {
				t.Error("it came too early")
			}
			if len(d.Header["Rondo-Not-Before"]) > 0 {
				t.Errorf("%s: %v", name, d.Header)
			}
			d.Hold.Ack()
		case <-time.After(longEnough):
			t.Fatalf("%v did not come", want)
		}
	}
	natstest.Eventually(t, "the rest waits for its time", func() bool {
		l, err := b.Backlog(t.Context(), 0)
		return err == nil && l.Held == 0 && l.Waiting == 0 &&
			stored(t, t.Context(), js, "rondo", "RONDO_LATER") == len(never)
	})
	before := deliveredCount(t, s, "p-0")
	for waiting := time.After(2 * time.Second); waiting != nil; {
		select {
		case d := <-came:
			if !taken[d.Sequence] {
				t.Errorf("%s came", d.Subject)
			}
			d.Hold.Ack() // the first acknowledgement was late
		case <-waiting:
			waiting = nil
		}
	}
	if again := deliveredCount(t, s, "p-0") - before; again > 3 {
		t.Errorf("what has to wait for ever was handed out %d times within seconds", again)
	}
	stop()
}

// receive receives from partition 0. The function that it returns ends that, and waits for the end.
func receive(t *testing.T, b *natsbroker.Bus) (came <-chan broker.Delivery, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	deliveries := make(chan broker.Delivery, 100)
	received := make(chan error, 1)
	go func() { received <- b.Receive(ctx, 0, func(d broker.Delivery) { deliveries <- d }) }()
	return deliveries, func() {
		t.Helper()
		cancel()
		if err := <-received; err != nil {
			t.Error(err)
		}
	}
}

// TestResultsHaveNoDelay publishes results with the header of delayed messages, as a worker may.
// They are delivered at once: NATS delivers nothing more of a lane in which too many wait.
func TestResultsHaveNoDelay(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	want := make(map[string]bool)
	for _, verb := range []string{"task-begun", "task-done", "task-failed"} {
		for i, delay := range []time.Duration{time.Minute, 24 * time.Hour} {
			m := &nats.Msg{Subject: fmt.Sprintf("rondo.%s.1-2.i%d", verb, i), Header: nats.Header{
				"Rondo-Not-Before": {time.Now().Add(delay).UTC().Format(time.RFC3339Nano)}}}
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			want[m.Subject] = true
		}
	}
	came, stop := receive(t, b)
	for len(want) > 0 {
		select {
		case d := <-came:
			if !want[d.Subject] || d.NumDelivered != 1 || !d.NotBefore.IsZero() {
				t.Errorf("came %+v", d)
			}
			delete(want, d.Subject)
			d.Hold.Ack()
		case <-time.After(longEnough):
			t.Fatalf("%v did not come", want)
		}
	}
	stop()
}

// TestOddVerbsDoNoHarm publishes verbs with misplaced hyphens. The broker loses some of the
// hyphens, and the receiver can refuse the verb. A verb of hyphens only has no word left, and its
// message stays in the stream without harm.
func TestOddVerbsDoNoHarm(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	js := rawJetStream(t, s)
	stay := []string{"-", "--"}
	odd := []string{"-x", "x-", "-x-", "x--y", "x-y-z", "-x-y", strings.Repeat("x-", 100) + "x"}
	for _, verb := range slices.Concat(stay, odd) {
		if _, err := js.Publish(t.Context(), "rondo."+verb+".n.i", nil); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.last.i"},
		events.Wire{Subject: "rondo.task-done.1-2.last"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	came := make(chan string, 100)
	received := make(chan error, 1)
	go func() {
		received <- b.Receive(ctx, 0, func(d broker.Delivery) {
			d.Hold.Ack()
			came <- d.Subject
		})
	}()
	for range len(odd) + 2 {
		select {
		case subject := <-came:
			if words := strings.Split(subject, "."); len(words) != 4 {
				t.Errorf("%s came, which has %d words", subject, len(words))
			}
		case <-time.After(longEnough):
			t.Fatal("something does not come")
		}
	}
	natstest.Eventually(t, "only what has no word is left", func() bool {
		return stored(t, ctx, js, "rondo", "RONDO") == len(stay)
	})
	cancel()
	if err := <-received; err != nil {
		t.Error(err)
	}
}

func deliveredCount(t *testing.T, s interface{ URL() string }, consumer string) uint64 {
	t.Helper()
	c, err := rawJetStream(t, s).Consumer(t.Context(), "RONDO", consumer)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().Delivered.Consumer
}

// TestMessagesOfAnySizeArePassedOn publishes messages that are larger than the receiver's request.
func TestMessagesOfAnySizeArePassedOn(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{MaxPayload: 16 << 20})
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	body := make([]byte, 12<<20)
	n := racetest.Short(5, 2)
	for i := range n {
		if err := b.Publish(t.Context(),
			events.Wire{Subject: fmt.Sprint("rondo.event.e.", i), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), longEnough) // up to 60 MiB on a slow machine
	defer cancel()
	got := 0
	err := b.Receive(ctx, 0, func(d broker.Delivery) {
		if d.Hold.Ack(); len(d.Body) == len(body) {
			got++
		}
		if got == n {
			cancel()
		}
	})
	if err != nil || got != n {
		t.Errorf("%d of %d came, %v", got, n, err)
	}
}
