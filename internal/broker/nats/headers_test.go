package natsbroker_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// This file publishes every header that NATS or Rondo knows on every subject that a client or a
// worker may publish on, with the shipped permissions, and defines the effect of each.
// docs/security.md shows the same table.

// hostile is a header with a value that would do harm if it took effect, and the headers that it
// needs.
type hostile struct {
	name  string
	value string
	with  nats.Header
}

// victims are messages of other clients, stored before. All clients know their ids.
var victims = []string{"rondo.start.o.victim", "rondo.mailbox.notes.victim", "rondo.event.e.victim"}

func hostileHeaders() []hostile {
	soon := "@at " + time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	forged := nats.Header{"Nats-Schedule-Target": {"rondo.task-done.1-2.victim"}, events.HeaderIncarnation: {"l"}}
	return []hostile{
		{"Nats-Rollup", "all", nil},
		{"Nats-Rollup", "sub", nil},
		{"Nats-Schedule", soon, forged},
		{"Nats-Schedule", "@every 1s", forged},
		{"Nats-Schedule-Next", "purge", nats.Header{"Nats-Scheduler": {"rondo.later.start.o.victim"}}},
		{"Nats-Scheduler", "rondo.later.timer-due.1-3.victim", nil},
		{"Nats-Schedule-Target", "rondo.task-done.1-2.victim", nil},
		{"Nats-TTL", "1s", nil},
		{"Nats-Expected-Stream", "OTHER", nil},
		{"Nats-Expected-Last-Sequence", "1", nil},
		{"Nats-Expected-Last-Subject-Sequence", "1",
			nats.Header{"Nats-Expected-Last-Subject-Sequence-Subject": {"rondo.p.0.start.o.victim"}}},
		{"Nats-Expected-Last-Msg-Id", "x", nil},
		{"Nats-Msg-Id", "known to everybody", nil},
		{"Nats-Incr", "1", nil},
		{"Nats-Batch-Id", "b", nats.Header{"Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}}},
		{"Nats-Stream-Source", "RONDO 1", nil},
		{"Nats-Required-Api-Level", "99", nil},
		{"Nats-Marker-Reason", "Purge", nil},
		{"KV-Operation", "PURGE", nil},
		{"Status", "100", nil},
		{events.HeaderParent, "1-2.l.victim", nil},
		{events.HeaderHeld, "somebody", nil},
		{events.HeaderDirectReply, "rondo.direct.result.to.x", nil},
		{"Rondo-Again", "true", nil},
		{"Rondo-Handed", "{}", nil},
		{"Rondo-Direct-At", "2001-01-01T00:00:00Z", nil},
		{"Rondo-Results", "2", nil},
		{"Rondo-Subject", "rondo.task-done.1-2.victim", nil},
		{"Rondo-Accepted", "999999@9999999999999999", nil},
		{"Rondo-Fired", "2001-01-01T00:00:00Z", nil},
		{"Rondo-Schedule", "nightly", nats.Header{"Rondo-Schedule-Revision": {"1"}}},
		{"Rondo-Dead-Reason", "x", nats.Header{"Rondo-Dead-Id": {"x"}}},
	}
}

// roles are the publishing users, with the subjects on which they publish. A worker's message about
// an instance must name the incarnation.
var roles = []struct {
	file, setup, user, inbox string
	subjects                 []string
}{
	{"single.conf", "setup", "client", "_INBOX_client", []string{"rondo.start.o.own", "rondo.event.e.own",
		"rondo.mailbox.q.own", "rondo.control.cancel.own", "rondo.wake.x.own"}},
	{"tenants.conf", "shop-setup", "shop-client", "", []string{"rondo.start.o.own", "rondo.event.e.own",
		"rondo.mailbox.q.own", "rondo.control.cancel.own", "rondo.wake.x.own"}},
	{"single.conf", "setup", "worker", "_INBOX_worker",
		[]string{"rondo.task-begun.1-2.own", "rondo.task-done.1-2.own", "rondo.task-failed.1-2.own"}},
}

// The effects of a header: NATS refuses the message; the header changes nothing; or it has an
// effect, on its own message only.
const (
	refused = "refused"
	ignored = "ignored"
	counts  = "counts"
)

// outcomes are the headers that are not ignored. No header of a client has an effect that is for
// services only; a worker may claim that its own result was delivered before.
var outcomes = map[string]string{
	"Nats-Rollup": refused, "Nats-Schedule": refused, "Nats-Schedule-Next": refused, "Nats-Scheduler": refused,
	"Nats-TTL":             refused,
	"Nats-Expected-Stream": refused, "Nats-Expected-Last-Sequence": refused,
	"Nats-Expected-Last-Subject-Sequence": refused, "Nats-Expected-Last-Msg-Id": refused,
	"Nats-Incr": refused, "Nats-Batch-Id": refused, "Nats-Stream-Source": refused,
	"Nats-Msg-Id": counts,
}

func outcomeFor(user, header string) string {
	if header == "Rondo-Again" && user == "worker" {
		return counts
	}
	if o := outcomes[header]; o != "" {
		return o
	}
	return ignored
}

// TestHeadersOfEachRole tries each header on each subject with the permissions of each role. It
// compares the delivery with the one without the header, and checks that no message of others has
// changed.
func TestHeadersOfEachRole(t *testing.T) {
	t.Parallel()
	for _, role := range roles {
		t.Run(role.user, func(t *testing.T) {
			t.Parallel()
			s := natstest.StartWith(t, embedded.Options{Config: shipped + role.file})
			b := made(t, s, role.setup, "rondo")
			if err := b.SetPartitions(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			drain(t, b)
			var others []events.Wire
			for _, subject := range victims {
				others = append(others,
					events.Wire{Subject: subject, Header: events.Header{events.HeaderMsgID: {"known to everybody"}}})
			}
			others = append(others,
				events.Wire{Subject: "rondo.timer-due.1-3.victim", NotBefore: time.Now().Add(time.Hour)})
			if err := b.Publish(t.Context(), others...); err != nil {
				t.Fatal(err)
			}
			before := countsOf(t, s, role.setup)
			nc := userConnection(t, s, role.user, role.inbox)
			arrivals := arrivalsOf(t, b)
			probe := func(subject string, h nats.Header) (arrived string, refusal string) {
				m := &nats.Msg{Subject: subject, Header: maps.Clone(h), Data: []byte(`"x"`)}
				if role.user == "worker" {
					m.Header.Set(events.HeaderIncarnation, "l")
				}
				answer, err := nc.RequestMsg(m, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(answer.Data), `"error"`) {
					return "", string(answer.Data)
				}
				if strings.Contains(string(answer.Data), `"duplicate"`) {
					return "dropped as a duplicate of its own", ""
				}
				for a := range arrivals {
					if a.subject == subject {
						return a.what, ""
					}
				}
				t.Fatalf("%s does not arrive", subject)
				return "", ""
			}
			for _, subject := range role.subjects {
				plain, refusal := probe(subject, nats.Header{})
				if refusal != "" {
					t.Fatalf("%s may not publish on %s: %s", role.user, subject, refusal)
				}
				for _, h := range hostileHeaders() {
					all := nats.Header{h.name: {h.value}}
					maps.Copy(all, h.with)
					arrived, refusal := probe(subject, all)
					got := ignored
					switch {
					case refusal != "":
						got = refused
					case arrived != plain:
						got = counts
					}
					if want := outcomeFor(role.user, h.name); got != want {
						t.Errorf("%s: %s with %s: %s is %s, want %s\nplain %s\nnow   %s %s", role.user, subject, h.name,
							h.value, got, want, plain, arrived, refusal)
					}
				}
			}
			<-time.After(1500 * time.Millisecond) // a schedule would have published by then
			if after := countsOf(t, s, role.setup); !maps.Equal(after, before) {
				t.Errorf("others have stored %v, and now there is %v", before, after)
			}
		})
	}
}

// countsOf counts the messages in streams, by subject.
func countsOf(t *testing.T, s *embedded.Server, user string) map[string]uint64 {
	t.Helper()
	js, err := jetstream.New(intrude(t, s, user).nc)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]uint64)
	for _, name := range []string{"RONDO", "RONDO_LATER", "RONDO_TASKS", "RONDO_DEAD"} {
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := st.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		for subject, n := range info.State.Subjects {
			if !strings.HasSuffix(subject, "anchor") && !strings.Contains(subject, ".anchor.") {
				all[name+" "+subject] = n
			}
		}
	}
	return all
}

// userConnection is a connection of a user, without Rondo's code.
func userConnection(t *testing.T, s *embedded.Server, user, inbox string) *nats.Conn {
	t.Helper()
	opts := []nats.Option{nats.UserInfo(user, user), nats.NoReconnect(), nats.Timeout(time.Minute)}
	if inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	nc, err := nats.Connect(s.URL(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// drain acknowledges all messages in the inbox.
func drain(t *testing.T, b *natsbroker.Bus) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.Receive(ctx, 0, func(d broker.Delivery) { d.Hold.Ack() }) }()
	natstest.Eventually(t, "the inbox is empty", func() bool {
		l, err := b.Backlog(ctx, 0)
		return err == nil && l.Waiting == 0 && l.Held == 0
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// arrival is a message as an orchestrator decodes it.
type arrival struct{ subject, what string }

// arrivalsOf receives until the test ends, and acknowledges all messages but those of the victims.
func arrivalsOf(t *testing.T, b *natsbroker.Bus) <-chan arrival {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	came, ended := make(chan arrival, 1000), make(chan error, 1)
	go func() {
		ended <- b.Receive(ctx, 0, func(d broker.Delivery) {
			if strings.HasSuffix(d.Subject, ".victim") {
				return
			}
			d.Hold.Ack()
			m, err := events.Decode("rondo", d.Subject, d.Header, d.Body, "no id")
			came <- arrival{d.Subject, fmt.Sprintf("%d %v %t %t %s %s %+v %v", d.NumDelivered, d.NotBefore, d.Direct,
				d.Scheduled, m.ID, d.Body, m.Content, err)}
		})
		close(came)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return came
}

// TestDocumentedHeadersAreTheTestedOnes compares the table in docs/security.md with the tested
// headers.
func TestDocumentedHeadersAreTheTestedOnes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, h := range hostileHeaders() {
		names[h.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row := fmt.Sprintf("| `%s` | %s | %s |", name, outcomeFor("client", name), outcomeFor("worker", name))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/security.md lacks the row\n%s", row)
		}
	}
}

// A client removes no delayed message: no timer of any instance, no delayed start of other clients,
// no schedule.
func TestClientsRemoveNothingThatIsForLater(t *testing.T) {
	t.Parallel()
	for _, role := range roles[:2] {
		t.Run(role.file, func(t *testing.T) {
			t.Parallel()
			s := natstest.StartWith(t, embedded.Options{Config: shipped + role.file})
			b := made(t, s, role.setup, "rondo")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ps, err := b.Partitions(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range ps.All() {
				// its errors show below
				go func() { _ = b.Receive(ctx, p, func(d broker.Delivery) { d.Hold.Ack() }) }()
			}
			others := []events.Wire{
				{Subject: "rondo.start.fulfil.order-7", NotBefore: time.Now().Add(time.Hour),
					Header: events.Header{events.HeaderMsgID: {"s"}}},
				{Subject: "rondo.timer-due.1-3.order-1", NotBefore: time.Now().Add(time.Hour),
					Header: events.Header{events.HeaderMsgID: {"t"}}},
			}
			if err := b.Publish(t.Context(), others...); err != nil {
				t.Fatal(err)
			}
			natstest.Eventually(t, "they wait for their time", func() bool {
				all := countsOf(t, s, role.setup)
				return all["RONDO_LATER rondo.later.start.fulfil.order-7"] == 1 &&
					all["RONDO_LATER rondo.later.timer-due.1-3.order-1"] == 1
			})
			client := userConnection(t, s, role.user, role.inbox)
			for _, subject := range []string{"rondo.later.start.fulfil.order-7", "rondo.later.timer-due.1-3.order-1"} {
				m := &nats.Msg{Subject: "rondo.event.hello.x",
					Header: nats.Header{"Nats-Schedule-Next": {"purge"}, "Nats-Scheduler": {subject}}}
				if _, err := client.RequestMsg(m, 20*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			for _, w := range others {
				if has, err := b.Has(t.Context(), w); err != nil || !has {
					t.Errorf("%s has removed %s, which was to come in an hour (%v, %v)", role.user, w.Subject, has, err)
				}
			}
		})
	}
}
