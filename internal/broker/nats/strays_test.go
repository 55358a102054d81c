package natsbroker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/natstest"
)

// A client and a worker publish, with the shipped permissions, messages that no consumer takes:
// NATS transforms no subject with a word * or >, and may not find one with a DEL. Each becomes a
// dead letter, nothing of them stays in the inbox, and other messages are delivered.
func TestStrayMessagesAreDeadLettered(t *testing.T) {
	t.Parallel()
	s, _ := onePartition(t)
	client, worker := newRawClient(t, s, "shop-client"), newRawClient(t, s, "shop-worker")
	js := rawJetStreamAs(t, s, "shop-setup")
	const header = "NATS/1.0\r\nRondo-Id: x\r\nStatus: 404\r\n\r\n"
	want := make(map[string]int)
	stray := func(c *rawClient, subject string) {
		t.Helper()
		c.publish(subject, header, "the body")
		want[subject]++
	}
	stray(client, "rondo.start.o.\x7ffirst")
	stray(client, "rondo.start.o.*")
	client.publish("rondo.start.o.good", header, "1")
	for _, subject := range []string{"rondo.start.*.x", "rondo.event.e.>", "rondo.control.cancel.*",
		"rondo.mailbox.>.x", "rondo.wake.*.>", "rondo.start.o.\x7flast"} {
		stray(client, subject)
	}
	for _, subject := range []string{"rondo.task-done.*.x", "rondo.dead.task.>"} {
		stray(worker, subject)
	}
	for range 250 { // more than a portion
		stray(client, "rondo.event.*.many")
	}
	o := asOrchestrator(t, s)
	o.ReconcileEvery(20 * time.Millisecond)
	came, stop := receive(t, o)
	defer stop()
	for good := false; !good; {
		select {
		case d := <-came:
			good = d.Subject == "rondo.start.o.good"
			if good {
				d.Hold.Ack()
			}
		case <-time.After(longEnough):
			t.Fatal("rondo.start.o.good does not come")
		}
	}
	natstest.Eventually(t, "the inbox is empty", func() bool {
		return stored(t, t.Context(), js, "rondo", "RONDO") == 0
	})
	for _, w := range deadLetters(t, js, "RONDO_DEAD") {
		subject := w.Header[deadSubjectHeader][0]
		if strings.Contains(w.Subject, "%7F") { // the header does not have control characters
			for s := range want {
				if strings.ReplaceAll(s, "\x7f", " ") == subject {
					subject = s
				}
			}
		}
		want[subject]--
		if r := w.Header["Rondo-Dead-Reason"]; len(r) != 1 || r[0] != "malformed" ||
			string(w.Body) != "the body" || w.Header["Rondo-Dead-Id"][0] != "x" {
			t.Errorf("%q: got %v %s", subject, w.Header, w.Body)
		}
	}
	for subject, n := range want {
		if n != 0 {
			t.Errorf("%q: %d dead letters too few", subject, n)
		}
	}
}

const deadSubjectHeader = "Rondo-Dead-Subject"
