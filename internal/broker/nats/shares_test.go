package natsbroker_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestStreamsWithoutABoundHaveAShare fills the streams of tasks and of delayed messages. Beyond
// its share, no new senders add to a stream. Others go on, and when there is room, all goes on.
func TestStreamsWithoutABoundHaveAShare(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := natstest.Connect(t, s, natsbroker.Config{Partitions: 2, InboxMaxBytes: 4 << 20, DeadLetterMaxBytes: 1 << 20})
	b.ReconcileEvery(20 * time.Millisecond)
	came := receiveAll(t, b)
	js := rawJetStream(t, s)
	holds := func(stream string) (messages uint64) { return streamInfo(t, t.Context(), js, stream).State.Msgs }
	told := func(part string) bool {
		for _, f := range b.Flaws() {
			if f.Part == "stream "+part && !f.Harmful {
				return true
			}
		}
		return false
	}
	body, n := bytes.Repeat([]byte("x"), 32<<10), 0
	send := func(subject string, delay time.Duration) {
		t.Helper()
		n++
		w := events.Wire{Subject: subject, Header: events.Header{events.HeaderMsgID: {fmt.Sprint(n)}}, Body: body}
		if delay > 0 {
			w.NotBefore = time.Now().Add(delay)
		}
		if err := b.Publish(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	comes := func() {
		t.Helper()
		send("rondo.event.e.i", 0)
		if subject := <-came; subject != "rondo.event.e.i" {
			t.Fatal(subject)
		}
	}

	for b.Crowded() == nil { // half of 4 MiB are 64 tasks
		if send(fmt.Sprintf("rondo.task._.a.1-2.i%d", n), 0); n > 1000 {
			t.Fatal("the tasks are never too many")
		}
	}
	if err := b.Crowded(); !errors.Is(err, broker.ErrFull) || !strings.Contains(err.Error(), "RONDO_TASKS") {
		t.Error(err)
	}
	natstest.Eventually(t, "it is told", func() bool { return told("RONDO_TASKS") })
	comes()
	st, err := js.Stream(t.Context(), "RONDO_TASKS")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context()); err != nil { // the workers come
		t.Fatal(err)
	}
	natstest.Eventually(t, "there is room again", func() bool { return b.Crowded() == nil && !told("RONDO_TASKS") })

	delayed := 0
	for !told("RONDO_LATER") { // a quarter of 4 MiB are 32 delayed starts
		if send(fmt.Sprintf("rondo.start.o.d%d", n), time.Hour); n > 3000 {
			t.Fatal("the delayed starts are never too many")
		}
		delayed++
	}
	before := holds("RONDO_LATER")
	for range 20 {
		send(fmt.Sprintf("rondo.start.o.d%d", n), time.Hour)
		delayed++
		comes()
	}
	if more := holds("RONDO_LATER") - before; more > 16 { // those that were on their way
		t.Errorf("%d more are stored, although there are too many", more)
	}
	natstest.Eventually(t, "the others wait in the inbox", func() bool {
		return holds("RONDO")+holds("RONDO_LATER") >= uint64(delayed)
	})
	if st, err = js.Stream(t.Context(), "RONDO_LATER"); err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "those that waited are stored for later", func() bool { return holds("RONDO_LATER") >= 4 })
	comes()
}
