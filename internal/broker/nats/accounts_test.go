package natsbroker_test

import (
	"errors"
	"fmt"
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

// This file tests workers that reach the streams of their system from an account of their own.

// sharing starts a server with the accounts of the shipped configuration, and connects an
// orchestrator and a worker.
func sharing(t *testing.T) (s *embedded.Server, orchestrator, worker *natsbroker.Bus) {
	t.Helper()
	s = natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	as := func(user string, setup natsbroker.Setup) *natsbroker.Bus {
		return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: "shop-" + user,
			Password: "shop-" + user}, InboxPrefix: inboxOf(user), Setup: setup, Partitions: 4})
	}
	if _, err := as("setup", natsbroker.Make).OpenTaskQueue(t.Context(), passedQueue); err != nil {
		t.Fatal(err)
	}
	return s, as("orchestrator", natsbroker.Verify), as("worker", natsbroker.Verify)
}

// TestTasksAreDeliveredDirectlyIntoAnotherAccount delivers tasks to a worker, which answers at
// once, or in several parts. Without a worker, they are stored.
func TestTasksAreDeliveredDirectlyIntoAnotherAccount(t *testing.T) {
	t.Parallel()
	s, orchestrator, worker := sharing(t)
	p := (&direct{t: t, server: s, orchestrator: orchestrator, worker: worker}).begin()
	done := p.publish(taskOf("i", "j", "k")...)
	for range 3 { // each answer is a message
		p.next().Hold.Ack()
		p.heard(worker)
	}
	p.returned(done)
	p.want(3, 0)

	p.takes = func(broker.Delivery) bool { return false }
	p.returned(p.publish(taskOf("refused")...))
	p.want(3, 1)
	p.stop()
	p.heard(worker)
	p.returned(p.publish(taskOf("unserved")...))
	p.stored(2)
	if is := p.orchestrator.Traffic(); is.Direct != 3 {
		t.Errorf("%d activity tasks were passed on, want 3", is.Direct)
	}
}

// TestResultsAreDeliveredDirectlyIntoAnotherAccount delivers results to an orchestrator. One whose
// orchestrator has gone is stored.
func TestResultsAreDeliveredDirectlyIntoAnotherAccount(t *testing.T) {
	t.Parallel()
	s, orchestrator, worker := sharing(t)
	worker.WaitDirect(longEnough)
	w := &directRoutes{t: t, server: s, orchestrator: orchestrator, worker: worker}
	w.receive(nil)
	back := w.way("i")
	done := w.send(result("i", back), result("j", back), result("k", back))
	for n := range uint64(3) {
		d := w.next()
		if !isDirect(d) || string(d.Body) != "7" {
			t.Errorf("came %+v", d)
		}
		d.Hold.Ack()
		natstest.Eventually(t, "the worker gets an answer for each", func() bool { // NATS carries several
			return worker.Traffic().Direct == n+1
		})
	}
	w.stored(done)
	w.wantShort(3, 0)

	// NATS tells the worker at once that nothing listens: the worker would wait for an answer for
	// five minutes.
	done = w.send(result("l", "rondo.direct.result.to.GONEb"))
	if d := w.next(); isDirect(d) {
		t.Errorf("came %+v", d)
	} else {
		d.Hold.Ack()
	}
	w.stored(done)
	w.wantShort(3, 1)
}

// TestPullsFromAnotherAccount sends pull requests as a worker. Everything arrives that NATS sends
// to the same request in the account of the stream: messages, heartbeats, and each status. NATS
// forgets a request that is not answered for the response threshold: heartbeats are answers.
func TestPullsFromAnotherAccount(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	b := made(t, s, "shop-setup", "rondo")
	purge(t, s, "shop-setup", "RONDO_TASKS")
	nc := userConnection(t, s, "shop-worker", "")
	queue := natsbroker.ConsumerOf(broker.TaskQueueName{Tag: "gpu", Activity: "a"})
	came, err := nc.SubscribeSync("in")
	if err != nil {
		t.Fatal(err)
	}
	pull := func(consumer string, batch int, more string) {
		t.Helper()
		request := fmt.Sprintf(`{"batch":%d,%s}`, batch, more)
		err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS."+consumer, "in", []byte(request))
		if err != nil {
			t.Fatal(err)
		}
	}
	next := func() *nats.Msg {
		t.Helper()
		m, err := came.NextMsg(longEnough)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	status := func(want, text string) {
		t.Helper()
		m := next()
		for want != "100" && m.Header.Get("Status") == "100" {
			m = next()
		}
		if m.Header.Get("Status") != want || !strings.Contains(strings.ToLower(m.Header.Get("Description")), text) {
			t.Errorf("came %v %q, want %s %s", m.Header, m.Data, want, text)
		}
	}
	pull(queue, 1, `"no_wait":true`)
	status("404", "no messages")
	pull("w_gpu_none", 1, `"no_wait":true`)
	if m, err := came.NextMsg(longEnough); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("came %+v, %v", m, err)
	}
	pull(queue, 1, `"expires":100000000`)
	status("408", "timeout")
	pull(queue, 1, `"expires":"soon"`)
	status("400", "bad request")

	// The request lasts longer than the threshold of 10 seconds, because of the heartbeats; then
	// two messages come.
	const length, heartbeats = 3, 12
	pull(queue, length, `"expires":300000000000,"idle_heartbeat":1000000000`)
	for range heartbeats {
		status("100", "idle heartbeat")
	}
	for i := range length {
		w := events.Wire{Subject: fmt.Sprintf("rondo.task.gpu.a.1-2.i%d", i), Body: []byte("x")}
		if err := b.Publish(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	for i := range length {
		m := next()
		for m.Header.Get("Status") == "100" {
			m = next()
		}
		if want := fmt.Sprintf("rondo.task.gpu.a.1-2.i%d", i); m.Subject != want || string(m.Data) != "x" {
			t.Fatalf("came %s %v", m.Subject, m.Header)
		}
		if err := m.InProgress(); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // gives it back: it comes once more
			if err := m.NakWithDelay(time.Millisecond); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := nc.Request(m.Reply, nil, time.Minute); err != nil {
			t.Fatal("the acknowledgement is not acknowledged: ", err)
		}
	}
	pull(queue, 1, `"expires":300000000000`)
	if m := next(); m.Subject != "rondo.task.gpu.a.1-2.i0" {
		t.Fatalf("came %s %v", m.Subject, m.Header)
	} else if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 2 {
		t.Errorf("came %+v, %v", meta, err)
	}
	pull(queue, 1, `"expires":300000000000`)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(intrude(t, s, "shop-setup").nc, jetstream.WithDefaultTimeout(time.Minute))
	if err == nil {
		err = js.DeleteConsumer(t.Context(), "RONDO_TASKS", queue)
	}
	if err != nil {
		t.Fatal(err)
	}
	status("409", "consumer deleted")
}

// TestSubjectsDeniedToWorkersAndClients publishes on the subjects of other roles. Within its
// account, a worker would otherwise send forged tasks and log levels to other workers, and a client
// forged notifications to other clients. A worker would also take the tasks of orchestrators, and a
// client change schedules.
func TestSubjectsDeniedToWorkersAndClients(t *testing.T) {
	t.Parallel()
	tasksOfEngine := []string{
		"$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS.w_rondo%2Esystem_rondo%2Eread-value",
		"$JS.ACK.RONDO_TASKS.w_rondo%2Esystem_rondo%2Eread-value.1.1.1.1.0",
		"$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS.w_rondo%2Esystem_rondo%2Ejobs%2Epush",
		"$JS.ACK.RONDO_TASKS.w_rondo%2Esystem_rondo%2Ejobs%2Epush.1.1.1.1.0",
	}
	notifications := []string{"rondo.notification.ended.o.i", "rondo.notification.withdrawn.gpu.a.1-2.i"}
	denied := map[string][]string{
		"worker": append([]string{"rondo.direct.task.to.w_gpu_a", "rondo.direct.system.to.w_rondo%2Esystem_x",
			"rondo.operator.loglevel", "rondo.dead.task.rondo%2Esystem.a.1-2.i"},
			append(tasksOfEngine, notifications...)...),
		"client": append([]string{"rondo.api.put-schedule", "rondo.api.change-schedule", "rondo.api.drop-schedule"},
			notifications...),
	}
	for conf, prefixes := range map[string][]string{
		"accounts.conf": {"shop-", "bank-"}, "one-circle-of-trust.conf": {""},
	} {
		s := natstest.StartWith(t, embedded.Options{Config: shipped + conf})
		for _, prefix := range prefixes {
			for role, subjects := range denied {
				for _, subject := range subjects {
					nc := userConnection(t, s, prefix+role, inboxOf(role))
					if err := nc.Publish(subject, []byte("x")); err != nil {
						t.Fatal(err)
					}
					if err := nc.Flush(); err != nil {
						t.Fatal(err)
					}
					// NATS reports the violation before it answers the flush.
					if err := nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) {
						t.Errorf("%s: %s%s publishes on %s: %v", conf, prefix, role, subject, err)
					}
					nc.Close()
				}
			}
		}
	}
}

// A hostile worker nacks a task with a delay of a day, with the shipped permissions. An operator
// removes the consumer and makes it again, as docs/security.md says, while another worker takes
// tasks: that worker gets the task at once.
func TestHeldTasksAreFreed(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "accounts.conf"})
	b := made(t, s, "shop-setup", "rondo")
	drain(t, b)
	q := broker.TaskQueueName{Tag: "gpu", Activity: "a"}
	if _, err := b.OpenTaskQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.task.gpu.a.1-2-l.i", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	worker := natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Use, InboxPrefix: "_INBOX_worker",
		Login: natsbroker.Login{User: "shop-worker", Password: "shop-worker"}})
	tasks, err := worker.OpenTaskQueue(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	took := make(chan broker.Delivery, 1)
	take := func() {
		for t.Context().Err() == nil {
			// an error while the consumer is missing
			if n, _ := tasks.Take(t.Context(), 1, func(d broker.Delivery) { took <- d }); n > 0 {
				return
			}
		}
	}
	take()
	(<-took).Hold.Nak(24 * time.Hour)
	if _, err := worker.ListTaskQueues(t.Context()); err != nil { // NATS has the nack when it answers
		t.Fatal(err)
	}
	js := rawJetStreamAs(t, s, "shop-setup")
	name := natsbroker.ConsumerOf(q)
	go take()
	c, err := js.Consumer(t.Context(), "RONDO_TASKS", name)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), "RONDO_TASKS", name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(t.Context(), "RONDO_TASKS", c.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-took:
		if d.Subject != "rondo.task.gpu.a.1-2-l.i" || d.NumDelivered != 1 {
			t.Errorf("%+v", d)
		}
		d.Hold.Ack()
	case <-time.After(longEnough):
		t.Fatal("the task does not come")
	}
}

// rawJetStreamAs is a connection of a user without Rondo's code.
func rawJetStreamAs(t *testing.T, s *embedded.Server, user string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(userConnection(t, s, user, ""), jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return js
}
