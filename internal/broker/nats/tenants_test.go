package natsbroker_test

import (
	"context"
	"errors"
	"os"
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

// This file tests several systems on the shipped configuration for tenants.

// tenant is a system of one tenant on shared servers.
type tenant struct {
	t                            *testing.T
	name, prefix                 string
	orchestrator, worker, client *natsbroker.Bus
}

// settle connects the services of a tenant. Orchestrators and workers get their prefix of inboxes;
// in accounts of their own it is the same for all tenants.
func settle(t *testing.T, s *embedded.Server, name, prefix, inbox string) *tenant {
	t.Helper()
	as := func(role, inbox string, setup natsbroker.Setup) *natsbroker.Bus {
		return natstest.Connect(t, s, natsbroker.Config{
			Login:       natsbroker.Login{User: name + "-" + role, Password: name + "-" + role},
			InboxPrefix: inbox, Prefix: prefix, Setup: setup})
	}
	clients := ""
	if inbox != inboxOf("") {
		clients = inbox + "client"
	}
	return &tenant{t, name, prefix, as("orchestrator", inbox+"orchestrator", natsbroker.Verify),
		as("worker", inbox+"worker", natsbroker.Verify), as("client", clients, natsbroker.Use)}
}

// live does the operations of a system, with the same names for all tenants.
func (x *tenant) live() {
	t := x.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
	}
	subject := func(rest string) string { return x.prefix + "." + rest }
	heard := make(chan string, 10)
	unlisten, err := x.client.Listen(ctx, []string{broker.Any, broker.Any, "i"},
		func(_ []string, _ events.Header, body []byte) {
			heard <- string(body)
		})
	must(err)
	defer unlisten()
	for _, b := range []*natsbroker.Bus{x.orchestrator, x.worker} {
		stop, err := b.HandleDiscovery("process", func(context.Context, []byte) ([]byte, error) {
			return []byte(x.name), nil
		})
		must(err)
		defer stop()
	}
	stop, err := x.orchestrator.Handle("state", func(context.Context, []byte) ([]byte, error) {
		return []byte(x.name), nil
	})
	must(err)
	defer stop()
	if answer, err := x.client.Request(ctx, "state", nil); err != nil || string(answer) != x.name {
		t.Errorf("%s is told %q, %v", x.name, answer, err)
	}
	answers, err := x.client.Discover(ctx, "process", nil, time.Second)
	if must(err); len(answers) != 2 || string(answers[0]) != x.name || string(answers[1]) != x.name {
		t.Errorf("%s is told %q", x.name, answers)
	}

	ps, err := x.orchestrator.Partitions(ctx)
	must(err)
	came := make(chan broker.Delivery, 10)
	receive, end := context.WithCancel(ctx)
	defer end()
	for _, p := range ps.All() {
		go func() {
			if err := x.orchestrator.Receive(receive, p, func(d broker.Delivery) { came <- d }); err != nil {
				t.Error(err)
			}
		}()
	}
	comes := func(rest, body string) {
		t.Helper()
		select {
		case d := <-came:
			if d.Subject != subject(rest) || string(d.Body) != body {
				t.Errorf("%s: %s %s came, want %s %s", x.name, d.Subject, d.Body, rest, body)
			}
			d.Hold.Ack()
		case <-ctx.Done():
			t.Fatalf("%s: %s did not come", x.name, rest)
		}
	}
	must(x.client.Publish(ctx, events.Wire{Subject: subject("start.o.i"), Body: []byte(x.name)}))
	comes("start.o.i", x.name)
	must(x.client.Publish(ctx,
		events.Wire{Subject: subject("event.e.i"), Body: []byte(x.name), NotBefore: time.Now().Add(2 * time.Second)}))
	comes("event.e.i", x.name)
	must(x.orchestrator.Publish(ctx, events.Wire{Subject: subject("task.gpu.a.1-2.i"), Body: []byte(x.name)}))
	var queue broker.TaskQueue
	natstest.Eventually(t, "the orchestrator has made the queue", func() bool {
		queue, err = x.worker.OpenTaskQueue(ctx, broker.TaskQueueName{Tag: "gpu", Activity: "a"})
		if err != nil && !errors.Is(err, broker.ErrNoTaskQueue) {
			t.Fatal(err)
		}
		return err == nil
	})
	_, err = queue.Take(ctx, 1, func(d broker.Delivery) {
		if string(d.Body) != x.name {
			t.Errorf("the worker of %s gets %s", x.name, d.Body)
		}
		must(x.worker.Publish(ctx, events.Wire{Subject: subject("task-done.1-2.i"), Body: []byte(x.name)}))
		d.Hold.Ack()
	})
	must(err)
	comes("task-done.1-2.i", x.name)
	must(x.orchestrator.Notify([]string{"ended", "o", "i"}, nil, []byte(x.name)))
	if by := <-heard; by != x.name {
		t.Errorf("the client of %s hears of %s", x.name, by)
	}
}

// TestTenantsWithAccountsOfTheirOwn runs two tenants with the same names, and neither notices the
// other.
func TestTenantsWithAccountsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	for _, setup := range []string{"shop-setup", "bank-setup"} {
		made(t, s, setup, "rondo")
		b := natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: setup, Password: setup}})
		for _, stream := range []string{"RONDO", "RONDO_TASKS"} { // the messages of made
			purge(t, s, setup, stream)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	shop, bank := settle(t, s, "shop", "rondo", "_INBOX_"), settle(t, s, "bank", "rondo", "_INBOX_")

	// The spy hears everything in the other account; no user has more permissions there.
	spy := intrude(t, s, "bank-setup")
	hears, err := spy.nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	clientSpy := intrude(t, s, "bank-client")
	clientHears, err := clientSpy.nc.SubscribeSync(">")
	if err == nil {
		err = errors.Join(spy.nc.Flush(), clientSpy.nc.Flush())
	}
	if err != nil {
		t.Fatal(err)
	}
	before := state(t, s, "bank-setup")
	shop.live()
	for who, sub := range map[*intruder]*nats.Subscription{spy: hears, clientSpy: clientHears} {
		if err := who.nc.Publish("that.is.all", nil); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := sub.NextMsg(longEnough)
			if err != nil {
				t.Fatal(err)
			}
			if m.Subject == "that.is.all" {
				break
			}
			if string(m.Data) == "shop" || m.Subject[:6] == "rondo." && m.Subject[:25] != "rondo.notification.member" {
				t.Errorf("%s hears %s %s", who.user, m.Subject, m.Data)
			}
		}
	}
	if after := state(t, s, "bank-setup"); after != before {
		t.Errorf("the streams of the other were\n%s and are\n%s", before, after)
	}
	bank.live() // the same instances

	// A client of one tenant publishes messages of clients, for its own system.
	before = state(t, s, "shop-setup")
	if err := clientHears.Unsubscribe(); err != nil { // otherwise it hears itself
		t.Fatal(err)
	}
	js, err := jetstream.New(clientSpy.nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AccountInfo(t.Context()); !errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) &&
		!errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a client may ask JetStream: %v", err)
	}
	if err := js.DeleteStream(t.Context(), "RONDO"); !errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		t.Errorf("a client may delete streams: %v", err)
	}
	for _, subject := range []string{"rondo.task-done.1-2.i", "rondo.task.gpu.a.1-2.i", "$KV.RONDO_KV.recovered"} {
		if _, err := clientSpy.nc.Request(subject, nil, 20*time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("somebody takes %s from a client: %v", subject, err)
		}
	}
	if err := errors.Join(clientSpy.nc.Publish("rondo.notification.ended.o.i", nil), clientSpy.nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := clientSpy.nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a client publishes a notification: %v", err)
	}
	if after := state(t, s, "shop-setup"); after != before {
		t.Errorf("the streams were\n%s and are\n%s", before, after)
	}
	tooMuch(t, s)
}

func purge(t *testing.T, s *embedded.Server, user, stream string) {
	t.Helper()
	js, err := jetstream.New(intrude(t, s, user).nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(t.Context(), stream)
	if err == nil {
		err = st.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tooMuch makes a tenant reach its limits. The other tenant does not notice.
func tooMuch(t *testing.T, s *embedded.Server) {
	t.Helper()
	js, err := jetstream.New(intrude(t, s, "shop-setup").nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var api *jetstream.APIError
	if _, err := js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "MORE", Subjects: []string{"more"}}); !errors.As(err, &api) {
		t.Errorf("one stream more than a tenant may have: %v", err)
	}
	if err := js.DeleteStream(t.Context(), "KV_RONDO_PROGRESS"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "MORE", Subjects: []string{"more"}, MaxBytes: 11 << 30}); !errors.As(err, &api) {
		t.Errorf("more room than a tenant may have: %v", err)
	}
	other, err := jetstream.New(intrude(t, s, "bank-setup").nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Stream(t.Context(), "KV_RONDO_PROGRESS"); err != nil {
		t.Errorf("what one has deleted the other one lacks: %v", err)
	}
}

// TestSystemsWithPrefixes runs two systems in one account, with permissions for a prefix each: each
// system works, and no user may hear or publish on subjects of the other one. The prefix is not a
// boundary: NATS still publishes responses where the requester says.
func TestSystemsWithPrefixes(t *testing.T) {
	t.Parallel()
	circle, err := os.ReadFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	begin, rest, _ := strings.Cut(string(circle), "      { user: orchestrator,")
	users, end, _ := strings.Cut("      { user: orchestrator,"+rest, "\n    ]\n")
	var both string
	for _, prefix := range []string{"north", "south"} {
		both += strings.NewReplacer("RONDO", strings.ToUpper(prefix), `"rondo.`, `"`+prefix+".",
			"_INBOX_", "_INBOX_"+prefix+"-", "user: ", "user: "+prefix+"-",
			"password: ", "password: "+prefix+"-").Replace(users) + "\n"
	}
	s := natstest.StartWith(t, embedded.Options{Config: configFile(t, begin+both+"    ]\n"+end)})
	for _, prefix := range []string{"north", "south"} {
		made(t, s, "setup", prefix)
		for _, stream := range streamsOf(prefix)[:3] {
			purge(t, s, "setup", stream)
		}
	}
	before := state(t, s, "setup")
	for _, role := range []string{"orchestrator", "worker", "client", "check"} {
		i := intrude(t, s, "north-"+role)
		i.mayNotPublish(requests(streamsOf("south")...)...)
		for _, stream := range streamsOf("south") {
			i.mayNotPublish("$JS.API.STREAM.INFO."+stream, "$JS.API.CONSUMER.INFO."+stream+".c",
				"$JS.API.DIRECT.GET."+stream+".south.start.o.i", "$JS.ACK."+stream+".c.1.1.1.1.1")
		}
		i.mayNotPublish("south.start.o.i", "south.event.e.i", "south.control.terminate.i", "south.task-done.1-2.i",
			"south.task.gpu.a.1-2.i", "south.later.start.o.i", "south.dead.start.o.i",
			"south.api.delete", "south.api.process", "south.notification.ended.o.i", "south.notification.member.says.m",
			"south.handover.inbox.to.w", "south.handover.task.to.w", "south.direct.result.to.R",
			"south.direct.task.to.w___a", "south.direct.answer.task.R.1",
			"$KV.SOUTH_MEMBERS.m", "$KV.SOUTH_KV.m",
			"_INBOX_south-client.x", "_INBOX_south-orchestrator.x")
		i.mayNotHear(">", "*.>", "south.>", "south.notification.ended.o.i", "south.notification.*.*.*", "south.api.*",
			"south.task-done.1-2.i", "_INBOX_south-client.>", "_INBOX_south-orchestrator.>", "_INBOX.>",
			"$JS.>", "$KV.>")
	}
	if after := state(t, s, "setup"); after != before {
		t.Errorf("the streams were\n%s and are\n%s", before, after)
	}
	north, south := settle(t, s, "north", "north", "_INBOX_north-"), settle(t, s, "south", "south", "_INBOX_south-")
	north.live()
	south.live()
}
