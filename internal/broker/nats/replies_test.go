package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
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

// This file combines, for each role: the subjects on which it may publish; every header of
// headers_test.go; the headers that change the way of a message; and protected subjects that the
// publisher names for the response, and for traces. NATS publishes the response, whatever the
// permissions of the publisher. docs/security.md shows what becomes of the messages of others.

// target is a protected subject that a publisher names for the response, and the message that is
// stored there.
type target struct {
	what, subject  string
	stream, stored string // where the message is; "" if there is none
}

func targets() []target {
	return []target{
		{"a start that waits", "rondo.start.o.victim", "RONDO", "rondo.p.0.start.o.victim"},
		{"the result of a task", "rondo.task-done.1-2.victim", "", ""},
		{"a start with a delay", "rondo.later.start.o.later", "RONDO_LATER", "rondo.later.start.o.later"},
		{"a timer", "rondo.later.timer-due.1-3.victim", "RONDO_LATER", "rondo.later.timer-due.1-3.victim"},
		{"a task", "rondo.task.gpu.a.1-2.i", "RONDO_TASKS", "rondo.task.gpu.a.1-2.i"},
		{"a dead letter", "rondo.dead.start.o.victim", "RONDO_DEAD", "rondo.dead.start.o.victim"},
		{"a flag of the system", "$KV.RONDO_KV.recovered", "KV_RONDO_KV", "$KV.RONDO_KV.recovered"},
		{"the progress of a task", "$KV.RONDO_PROGRESS.victim", "KV_RONDO_PROGRESS", "$KV.RONDO_PROGRESS.victim"},
		{"a session", "$KV.RONDO_SESSIONS.victim", "KV_RONDO_SESSIONS", "$KV.RONDO_SESSIONS.victim"},
		{"an orchestrator", "$KV.RONDO_MEMBERS.victim", "KV_RONDO_MEMBERS", "$KV.RONDO_MEMBERS.victim"},
		{"a handover", "rondo.handover.inbox.to.victim", "", ""},
		{"a direct delivery", "rondo.direct.task.to.w_gpu_a", "", ""},
		{"an answer to an orchestrator", "_INBOX_orchestrator.x.1", "", ""},
		{"a whole stream", "$JS.API.STREAM.PURGE.RONDO_DEAD", "RONDO_DEAD", "rondo.dead.start.o.victim"},
		{"an acknowledgement", "$JS.ACK.RONDO.p-0.1.1.1.1.0", "", ""},
	}
}

// What becomes of a target.
const (
	kept      = "kept"      // NATS publishes nothing there
	published = "published" // NATS publishes there, and nothing that is stored changes
	lost      = "lost"      // NATS stores something else in its place, or beside it
	permitted = "its right" // the role may publish there itself, and so may NATS for it
)

// fates are what becomes of the targets in one circle of trust, for a client and a worker. Where
// each role has an account, all of them are kept.
var fates = map[string][2]string{
	"a start that waits": {lost, lost}, "the result of a task": {published, published},
	"a start with a delay": {lost, lost}, "a timer": {lost, lost}, "a task": {lost, lost},
	"a dead letter": {lost, lost}, "a flag of the system": {lost, lost},
	"the progress of a task": {lost, lost}, "a session": {lost, lost}, "an orchestrator": {lost, lost},
	"a handover": {published, published}, "a direct delivery": {published, published},
	"an answer to an orchestrator": {published, published},
	"a whole stream":               {published, lost}, "an acknowledgement": {kept, kept},
}

// rightful are the targets on which a role may publish itself.
var rightful = map[bool]*regexp.Regexp{
	false: regexp.MustCompile(`^rondo\.start\.`),
	true:  regexp.MustCompile(`^rondo\.task-done\.|^\$KV\.RONDO_SESSIONS\.|^\$KV\.RONDO_PROGRESS\.`),
}

func fateOf(at target, inAccounts, worker bool) string {
	switch {
	case inAccounts && rightful[worker].MatchString(at.subject):
		return permitted
	case inAccounts:
		return kept
	case worker:
		return fates[at.what][1]
	}
	return fates[at.what][0]
}

// request is a message that a role may publish.
type request struct{ subject, body string }

func requestsOf(worker bool) []request {
	if !worker {
		return []request{{"rondo.start.o.own", `"x"`}, {"rondo.event.e.own", `"x"`}, {"rondo.mailbox.q.own", `"x"`},
			{"rondo.control.cancel.own", `"x"`}, {"rondo.wake.x.own", `"x"`}, {"rondo.api.state", `{}`}}
	}
	const task = `{"last_by_subj":"rondo.task.gpu.own.1-2.own"}`
	return []request{{"rondo.task-begun.1-2.own", ``}, {"rondo.task-done.1-2.own", `"x"`},
		{"rondo.task-failed.1-2.own", `"x"`}, {"rondo.dead.task.gpu.own.1-2.own", `"x"`},
		{"$KV.RONDO_PROGRESS.own", `"x"`},
		{"$JS.API.STREAM.MSG.GET.RONDO_TASKS", task}, {"$JS.API.DIRECT.GET.RONDO_TASKS", task},
		{"$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS.w_gpu_own", `{"batch":1,"no_wait":true}`},
		{"$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS.w_gpu_none", `{"batch":1,"no_wait":true}`},
		{"$JS.API.STREAM.INFO.RONDO", ``}, {"$JS.API.CONSUMER.INFO.RONDO.p-0", ``},
		{"$JS.ACK.RONDO_TASKS.w_gpu_own.1.1.1.1.0", `+NXT {"batch":1,"no_wait":true}`},
		{"$JS.ACK.RONDO_TASKS.w_gpu_own.1.1.1.1.0", `+WPI`},
		{"rondo.direct.result.to.victim", `"x"`}, {"rondo.handover.task.to.victim", `"x"`},
		{"rondo.direct.answer.task.x.1", `O`},
	}
}

// ways are headers that change the way of a message.
func ways() []nats.Header {
	return []nats.Header{
		{},
		{"Rondo-Not-Before": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)}},
		{"Rondo-Schedule": {"nightly"}, "Rondo-Schedule-Revision": {"1"}, "Rondo-Each": {"true"}},
		{events.HeaderDirectReply: {"rondo.direct.result.to.victim"}},
	}
}

// TestRepliesReachNobodyElse publishes all combinations; with -short, a part in which each header
// meets each target and each way. No message of others changes by a header. By a response, those
// change that are known to, in one circle of trust, and none where each role has an account.
func TestRepliesReachNobodyElse(t *testing.T) {
	t.Parallel()
	for _, role := range roles {
		t.Run(role.file+"/"+role.user, func(t *testing.T) {
			t.Parallel()
			inAccounts, worker := role.file == "accounts.conf", strings.HasSuffix(role.user, "worker")
			a := newArena(t, role.file, strings.TrimSuffix(role.setup, "setup"), role.user, role.inbox, worker)
			for _, reply := range []string{"", a.nc.NewInbox()} {
				if changed, heard := a.attack(reply, 0, nil); len(changed) > 0 || heard && inAccounts {
					t.Errorf("without a foreign subject for the response, %v have changed", changed)
				}
			}
			for i, at := range targets() {
				want := fateOf(at, inAccounts, worker)
				changed, heard := a.attack(at.subject, i+1, func(changed []string, heard bool) bool {
					return (want != lost || slices.Contains(changed, at.what)) && (want != published || heard)
				})
				got := kept
				if heard {
					got = published
				}
				if slices.Contains(changed, at.what) {
					got = lost
				}
				if got != want && want != permitted {
					t.Errorf("with %s for the response, %s is %s, want %s", at.subject, at.what, got, want)
				}
				for _, other := range targets() {
					// A late response to another message may change what responses may change.
					if fateOf(other, inAccounts, worker) == lost {
						continue
					}
					if other.stored != at.stored && slices.Contains(changed, other.what) {
						t.Errorf("with %s for the response, %s has changed", at.subject, other.what)
					}
				}
			}
		})
	}
}

// arena is a system with messages of others, and a hostile user.
type arena struct {
	t            *testing.T
	nc, setup    *nats.Conn
	js           jetstream.JetStream
	orchestrator *natsbroker.Bus
	worker       bool
	heard        *nats.Subscription
	n            int // counts the barriers
}

func newArena(t *testing.T, file, tenant, user, inbox string, worker bool) *arena {
	t.Helper()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + file})
	as := func(user string, setup natsbroker.Setup) *natsbroker.Bus {
		return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: tenant + user,
			Password: tenant + user}, InboxPrefix: inboxOf(user), Setup: setup, Partitions: 1,
			MemberLease: time.Hour, SessionLease: time.Hour})
	}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := as("setup", natsbroker.Make)
	for _, q := range []broker.TaskQueueName{{Tag: "gpu", Activity: "a"}, {Tag: "gpu", Activity: "own"}} {
		_, err := b.OpenTaskQueue(ctx, q)
		must(err)
	}
	later := time.Now().Add(time.Hour)
	must(b.Publish(ctx, events.Wire{Subject: "rondo.start.o.victim"},
		events.Wire{Subject: "rondo.start.o.later", NotBefore: later, Header: events.Header{events.HeaderMsgID: {"s"}}},
		events.Wire{Subject: "rondo.timer-due.1-3.victim", NotBefore: later},
		events.Wire{Subject: "rondo.task.gpu.a.1-2.i"}, events.Wire{Subject: "rondo.task.gpu.own.1-2.own"}))
	a := &arena{t: t, nc: userConnection(t, s, user, inbox), setup: userConnection(t, s, tenant+"setup", ""),
		orchestrator: as("orchestrator", natsbroker.Verify), worker: worker}
	a.nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) // it tries what it must not do
	var err error
	a.js, err = jetstream.New(a.setup, jetstream.WithDefaultTimeout(time.Minute))
	must(err)
	for _, at := range []string{"rondo.dead.start.o.victim", "$KV.RONDO_KV.recovered", "$KV.RONDO_PROGRESS.victim",
		"$KV.RONDO_SESSIONS.victim", "$KV.RONDO_MEMBERS.victim"} {
		_, err := a.js.Publish(ctx, at, []byte("of others"))
		must(err)
	}
	a.heard, err = a.setup.SubscribeSync(">")
	must(err)
	must(a.heard.SetPendingLimits(-1, -1))
	stop, err := a.orchestrator.Handle("state", func(context.Context, []byte) ([]byte, error) {
		return []byte("{}"), nil
	})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- a.orchestrator.Receive(ctx, 0, func(d broker.Delivery) {
			if d.Subject != "rondo.start.o.victim" {
				d.Hold.Ack()
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		cancel()
		must(<-ended)
	})
	natstest.Eventually(t, "all messages of others are where they belong", func() bool {
		return !slices.Contains(slices.Collect(maps.Values(a.state())), "none")
	})
	return a
}

// state describes the messages of others.
func (a *arena) state() map[string]string {
	a.t.Helper()
	all := make(map[string]string)
	for _, at := range targets() {
		if at.stream == "" {
			continue
		}
		st, err := a.js.Stream(a.t.Context(), at.stream)
		if err != nil {
			a.t.Fatal(err)
		}
		m, err := st.GetLastMsgForSubject(a.t.Context(), at.stored)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			all[at.what] = "none"
		case err != nil:
			a.t.Fatal(err)
		default:
			all[at.what] = fmt.Sprintf("%d %v %s", m.Sequence, m.Header, m.Data)
		}
	}
	return all
}

// attack publishes messages with a subject for the response. It returns the targets that have
// changed, and whether NATS has published on that subject in the account of the orchestrators. NATS
// may respond late: attack waits for the expected outcome.
func (a *arena) attack(reply string, n int,
	expected func(changed []string, heard bool) bool) (changed []string, heard bool) {
	a.t.Helper()
	before := a.state()
	requests, ways := requestsOf(a.worker), ways()
	own := "rondo.wake.x.traces"
	if a.worker {
		own = "rondo.task-begun.1-2.traces"
	}
	headers := []hostile{{name: "X"}}
	headers = append(headers, hostileHeaders(own)...)
	if reply != "" {
		headers = append(headers, hostile{name: "Nats-Trace-Dest", value: reply}, hostile{name: "Nats-Trace-Dest",
			value: reply, with: nats.Header{"Nats-Trace-Only": {"true"}}})
	}
	send := func(r request, h hostile, way nats.Header) {
		m := &nats.Msg{Subject: r.subject, Reply: reply, Header: h.header(), Data: []byte(r.body)}
		maps.Copy(m.Header, way)
		if a.worker && strings.HasPrefix(r.subject, "rondo.task-") {
			m.Header.Set(events.HeaderIncarnation, "l")
		}
		if err := a.nc.PublishMsg(m); err != nil {
			a.t.Fatal(err)
		}
	}
	for _, r := range requests {
		send(r, headers[0], ways[0])
	}
	for i, h := range headers {
		if testing.Short() {
			send(requests[(i+n)%len(requests)], h, ways[(i+n/len(ways))%len(ways)])
			continue
		}
		for _, r := range requests {
			for _, way := range ways {
				send(r, h, way)
			}
		}
	}
	natstest.Eventually(a.t, "responses on "+reply+" have their effect", func() bool {
		changed, heard = a.outcome(reply, before, heard)
		return expected == nil || expected(changed, heard)
	})
	return changed, heard
}

// outcome returns the targets that have changed until now, and whether NATS has published on the
// subject for responses.
func (a *arena) outcome(reply string, before map[string]string, heard bool) ([]string, bool) {
	a.t.Helper()
	a.barrier()
	end := fmt.Sprint("that.is.all.", a.n)
	if err := a.setup.Publish(end, nil); err != nil {
		a.t.Fatal(err)
	}
	for {
		m, err := a.heard.NextMsg(longEnough)
		if err != nil {
			a.t.Fatal(err)
		}
		if m.Subject == end {
			break
		}
		heard = heard || m.Subject == reply
	}
	var changed []string
	after := a.state()
	for what := range after {
		if after[what] != before[what] {
			changed = append(changed, what)
		}
	}
	slices.Sort(changed)
	return changed, heard
}

// barrier returns when the servers and the orchestrator have processed everything before it, with
// all consequences.
func (a *arena) barrier() {
	a.t.Helper()
	a.n++
	subject := "rondo.wake.x.barrier"
	if a.worker {
		subject = "rondo.task-begun.1-2.barrier"
	}
	if _, err := a.nc.Request(subject, nil, time.Minute); err != nil {
		a.t.Fatal(err)
	}
	natstest.Eventually(a.t, "only the start of the victim waits", func() bool {
		l, err := a.orchestrator.Backlog(a.t.Context(), 0)
		if err != nil {
			a.t.Fatal(err)
		}
		st, err := a.js.Stream(a.t.Context(), "RONDO")
		if err != nil {
			a.t.Fatal(err)
		}
		return l.Waiting == 0 && st.CachedInfo().State.Msgs == uint64(l.Held)+1 // and the anchor
	})
	for _, sync := range []string{"rondo.wake.x.sync", "rondo.later.start.o.sync", "rondo.task.gpu.sync.1-2.i",
		"rondo.dead.start.o.sync", "$KV.RONDO_KV.sync", "$KV.RONDO_PROGRESS.sync", "$KV.RONDO_SESSIONS.sync",
		"$KV.RONDO_MEMBERS.sync"} {
		if _, err := a.js.Publish(a.t.Context(), sync, nil); err != nil {
			a.t.Fatal(err)
		}
	}
}

// TestDocumentedRepliesAreTheTestedOnes compares the table in docs/security.md with the tested
// fates.
func TestDocumentedRepliesAreTheTestedOnes(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| what | its subject | one circle of trust: client | worker | accounts: client | worker |\n" +
		"| --- | --- | --- | --- | --- | --- |\n")
	for _, at := range targets() {
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s | %s | %s |\n", at.what, at.subject, fateOf(at, false, false),
			fateOf(at, false, true), fateOf(at, true, false), fateOf(at, true, true))
	}
	documented(t, "replies", table.String())
}

// TestOneMessageIDOfTwoPublishers: NATS drops a message with the Nats-Msg-Id of another one, also
// of another publisher. It drops no message of Rondo's clients and services: their ids are secret.
func TestOneMessageIDOfTwoPublishers(t *testing.T) {
	t.Parallel()
	for _, role := range roles[:2] {
		t.Run(role.file, func(t *testing.T) {
			t.Parallel()
			s := natstest.StartWith(t, embedded.Options{Config: shipped + role.file})
			b := made(t, s, role.setup, "rondo")
			publish := func(subject, header string) string {
				t.Helper()
				m := &nats.Msg{Subject: subject, Header: nats.Header{header: {"order-7"}}, Data: []byte(`"x"`)}
				answer, err := userConnection(t, s, role.user, role.inbox).RequestMsg(m, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				return string(answer.Data)
			}
			publish("rondo.wake.x.own", "Nats-Msg-Id")
			if said := publish("rondo.start.o.other", "Nats-Msg-Id"); !strings.Contains(said, `"duplicate"`) {
				t.Errorf("the start with the id of another message is answered %s", said)
			}
			if said := publish("rondo.start.o.other", events.HeaderMsgID); strings.Contains(said, `"duplicate"`) {
				t.Errorf("the start with a Rondo-Id is answered %s", said)
			}
			w := events.Wire{Subject: "rondo.start.o.third", Header: events.Header{events.HeaderMsgID: {"order-7"}}}
			if err := b.Publish(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			if has, err := b.Has(t.Context(), w); err != nil || !has {
				t.Errorf("a service's message is dropped: %v, %v", has, err)
			}
		})
	}
}
