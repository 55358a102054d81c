package natsbroker_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// shipped is the directory of the configurations that Rondo ships.
const shipped = "../../../deploy/nats/"

// TestDocumentedRightsAreTheShippedOnes compares the documentation with the file.
func TestDocumentedRightsAreTheShippedOnes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/nats.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```conf\n")
	conf, _, end := strings.Cut(rest, "```")
	if !found || !end || conf != string(file) {
		t.Error("docs/nats.md and deploy/nats/one-circle-of-trust.conf have different rights: copy the file into the " +
			"page, or the other way round")
	}
}

// inboxOf returns the prefix of the subjects on which a user of the shipped configurations receives
// responses.
func inboxOf(user string) string {
	if user == "setup" {
		return ""
	}
	return "_INBOX_" + user
}

// TestDocumentedRightsAreEnough runs the operations of each service with the permissions of its
// user.
func TestDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	for file, tenant := range map[string]string{"one-circle-of-trust.conf": "", "accounts.conf": "shop-"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			rightsAreEnough(t, file, tenant)
		})
	}
}

func rightsAreEnough(t *testing.T, file, tenant string) {
	t.Helper()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + file})
	as := func(user string, setup natsbroker.Setup) (*natsbroker.Bus, error) {
		return natstest.TryConnect(t, s, natsbroker.Config{
			Login:       natsbroker.Login{User: tenant + user, Password: tenant + user},
			InboxPrefix: inboxOf(user),
			Setup:       setup, Timeout: time.Hour}) // the test notices a refusal before
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	_, err := as("orchestrator", natsbroker.Verify)
	wants(t, err, everything...)
	for _, user := range []string{"orchestrator", "worker"} {
		_, err = as(user, natsbroker.Make)
		why := "ermissions"
		if user == "worker" && tenant != "" {
			why = "does not import"
		}
		wants(t, err, "make what is needed", "stream RONDO:", "stream RONDO_TASKS:", "KV_RONDO_KV", why)
	}
	_, err = as("setup", natsbroker.Make)
	must(err)
	orchestrator, err := as("orchestrator", natsbroker.Verify)
	must(err)
	worker, err := as("worker", natsbroker.Verify)
	must(err)
	client, err := as("client", natsbroker.Use)
	must(err)
	checker, err := as("check", natsbroker.Use)
	must(err)

	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	// A client publishes a start, a delayed start, and requests.
	must(client.Publish(ctx, events.Wire{Subject: "rondo.start.o.i"},
		events.Wire{Subject: "rondo.start.o.i", NotBefore: time.Now().Add(1600 * time.Millisecond)}))
	stop, err := orchestrator.Handle("state", func(context.Context, []byte) ([]byte, error) {
		return []byte("fine"), nil
	})
	must(err)
	defer stop()
	if answer, err := client.Request(ctx, "state", nil); err != nil || string(answer) != "fine" {
		t.Errorf("%q, %v", answer, err)
	}
	heard := make(chan bool, 10)
	unlisten, err := client.Listen(ctx, []string{"ended", broker.Any, "i"}, func([]string, events.Header, []byte) {
		heard <- true
	})
	must(err)
	defer unlisten()

	for _, b := range []*natsbroker.Bus{orchestrator, worker} {
		stop, err := b.HandleDiscovery("process", func(context.Context, []byte) ([]byte, error) {
			return []byte("here"), nil
		})
		must(err)
		defer stop()
	}
	if answers, err := client.Discover(ctx, "process", nil, time.Second); err != nil || len(answers) != 2 {
		t.Errorf("%q, %v", answers, err)
	}

	// An orchestrator receives, and does everything that it does.
	ps, err := orchestrator.Partitions(ctx)
	must(err)
	came := make(chan broker.Delivery, 100)
	receive, end := context.WithCancel(ctx)
	defer end()
	for _, p := range ps.All() {
		go func() {
			if err := orchestrator.Receive(receive, p, func(d broker.Delivery) { came <- d }); err != nil {
				t.Error(err)
			}
		}()
	}
	if page, err := orchestrator.PendingStarts(ctx, broker.StartFilter{Instance: "i"}, broker.StartCursor{},
		10); err != nil || len(page.Starts) == 0 {
		t.Errorf("an orchestrator sees the pending starts %+v, %v", page, err)
	}
	for range 2 {
		d := <-came
		if there, err := orchestrator.Stored(ctx, d); err != nil || !there {
			t.Errorf("%v, %v", there, err)
		}
		if there, err := checker.Has(ctx, events.Wire{Subject: d.Subject}); err != nil || !there {
			t.Errorf("whoever checks sees %v, %v", there, err)
		}
		must(orchestrator.StoreDeadLetter(ctx, d, broker.Cause{Reason: "test"}))
		d.Hold.InProgress()
		d.Hold.Ack()
	}
	work := events.Wire{Subject: "rondo.task.gpu.a.1-2.i"}
	timer := events.Wire{Subject: "rondo.timer-due.1-3.i", NotBefore: time.Now().Add(time.Hour)}
	must(orchestrator.Publish(ctx, work, timer))
	for _, w := range []events.Wire{work, timer} {
		for _, b := range []*natsbroker.Bus{orchestrator, checker} {
			if has, err := b.Has(ctx, w); err != nil || !has {
				t.Errorf("%s: %v, %v", w.Subject, has, err)
			}
		}
	}
	if dead, err := checker.DeadLetters(ctx, 0, 10); err != nil || len(dead) != 2 {
		t.Errorf("whoever checks sees %d dead letters, %v", len(dead), err)
	}
	must(orchestrator.Publish(ctx, events.Wire{Subject: timer.Subject, NotBefore: timer.NotBefore, Purge: true},
		events.Wire{Subject: "rondo.task.gpu.b.1-2.i", Purge: true}))
	member, err := orchestrator.Join(ctx, broker.Member{ID: "o"})
	must(err)
	must(member.Leave(ctx))
	must(orchestrator.Notify([]string{"ended", "o", "i"}, nil, nil))
	<-heard
	_, err = orchestrator.TaskBacklog(ctx, broker.TaskQueueName{Tag: "gpu", Activity: "a"})
	must(err)
	for _, key := range []string{broker.KeyRecovered, broker.KeyAttempts + "n"} {
		must(orchestrator.Put(ctx, key, []byte("1"), 0))
		if v, err := orchestrator.Get(ctx, key); err != nil || string(v) != "1" {
			t.Errorf("%q, %v", v, err)
		}
		must(orchestrator.Delete(ctx, key))
	}
	must(client.Publish(ctx, events.Wire{Subject: "rondo.start.o.pending", NotBefore: time.Now().Add(time.Hour)}))
	pending, err := orchestrator.PendingStarts(ctx, broker.StartFilter{Instance: "pending"}, broker.StartCursor{}, 10)
	if must(err); len(pending.Starts) == 0 {
		t.Errorf("an orchestrator sees the pending starts %+v", pending)
	} else {
		must(orchestrator.WithdrawStart(ctx, pending.Starts[0]))
	}
	must(orchestrator.Repair(ctx))
	if owner, err := orchestrator.Acquire(ctx, "rondo.recovery", "o"); err != nil || owner != "o" {
		// a lease for the recovery, which one orchestrator does
		t.Errorf("%q, %v", owner, err)
	}
	must(orchestrator.Release(ctx, "rondo.recovery", "o"))
	// A worker can write any session, and cannot have the lease of a job with it.
	byHand, err := nats.Connect(s.URL(), nats.UserInfo(tenant+"worker", tenant+"worker"),
		nats.CustomInboxPrefix(inboxOf("worker")))
	must(err)
	defer byHand.Close()
	_, err = byHand.RequestWithContext(ctx, "$KV.RONDO_SESSIONS.rondo=2Erecovery", []byte("w"))
	must(err)
	if owner, err := orchestrator.Acquire(ctx, "rondo.recovery", "o"); err != nil || owner != "o" {
		t.Errorf("the lease of a job is that of %q, %v", owner, err)
	}
	must(orchestrator.Release(ctx, "rondo.recovery", "o"))
	told := make(chan string, 10)
	unhear, err := orchestrator.Withdrawals([]string{"rondo.system"}, func(subject string) { told <- subject })
	must(err)
	defer unhear()
	for _, name := range []string{"rondo.read-value", "rondo.jobs.push"} {
		own, err := orchestrator.OpenTaskQueue(ctx, broker.TaskQueueName{Tag: "rondo.system", Activity: name})
		must(err)
		work := events.Wire{Subject: "rondo.task.rondo%2Esystem." + events.EncodeToken(name) + ".1-9.i"}
		must(orchestrator.Publish(ctx, work))
		if n, err := own.Take(ctx, 1, func(d broker.Delivery) { d.Hold.Ack() }); err != nil || n != 1 {
			t.Errorf("%s: took %d, %v", name, n, err)
		}
		must(orchestrator.Publish(ctx, events.Wire{Subject: work.Subject, Purge: true}))
		if subject := <-told; subject != work.Subject {
			t.Errorf("the withdrawal of %s was told, not that of %s", subject, work.Subject)
		}
	}

	// A worker takes the task, and does everything that it does.
	unwatch, err := worker.Withdrawals([]string{"gpu"}, func(string) {})
	must(err)
	defer unwatch()
	queue, err := worker.OpenTaskQueue(ctx, broker.TaskQueueName{Tag: "gpu", Activity: "a"})
	must(err)
	_, err = worker.ListTaskQueues(ctx)
	must(err)
	_, err = queue.Take(ctx, 1, func(d broker.Delivery) {
		if there, err := worker.Stored(ctx, d); err != nil || !there {
			t.Errorf("%v, %v", there, err)
		}
		owner, err := worker.Acquire(ctx, "s", "w")
		if err != nil || owner != "w" {
			t.Errorf("%q, %v", owner, err)
		}
		_, err = worker.Owner(ctx, "s")
		must(err)
		must(worker.Release(ctx, "s", "w"))
		key := broker.KeyTask + "1-2/i"
		must(worker.Put(ctx, key, []byte("1"), broker.KeyTTL))
		if v, err := worker.Get(ctx, key); err != nil || string(v) != "1" {
			t.Errorf("%q, %v", v, err)
		}
		must(worker.Delete(ctx, key))
		done := make(chan broker.Delivery, 1)
		stop, err := worker.ReceiveHandovers(broker.HandoverTask, "w",
			func(d broker.Delivery) error { done <- d; return nil })
		must(err)
		defer stop()
		must(worker.Handover(ctx, "w", d))
		must(worker.StoreDeadLetter(ctx, <-done, broker.Cause{Reason: "test"}))
		must(worker.Publish(ctx, events.Wire{Subject: "rondo.task-begun.1-2.i"},
			events.Wire{Subject: "rondo.task-done.1-2.i"}, events.Wire{Subject: "rondo.task-failed.1-2.i"}))
		d.Hold.Ack()
	})
	must(err)
	for range 3 {
		d := <-came
		d.Hold.Ack()
	}
	natstest.Eventually(t, "all is acknowledged", func() bool {
		l, err := worker.TaskBacklog(ctx, broker.TaskQueueName{Tag: "gpu", Activity: "a"})
		return err == nil && l == broker.Backlog{}
	})

	// The server refuses a message that a user may not publish. Where clients have an account, NATS
	// says that nothing takes it, as it does of a stream without a leader: publishing goes on
	// trying.
	if tenant != "" {
		return
	}
	var refused *broker.Refused
	if err := client.Publish(ctx, events.Wire{Subject: "rondo.start.o.j"},
		events.Wire{Subject: "rondo.task-done.1-2.j"}); !errors.As(err, &refused) || len(refused.Messages) != 1 ||
		!errors.Is(refused.Reasons[0], broker.ErrMisconfigured) {
		t.Errorf("%v, want that the second is refused because of a setting", err)
	}
	d := <-came
	d.Hold.Ack()
	if _, err := client.ListTaskQueues(ctx); err == nil {
		t.Error("a client sees the queues")
	}
	if _, err := client.Has(ctx, work); err == nil {
		t.Error("a client sees what is stored")
	}
	if _, err := client.PendingStarts(ctx, broker.StartFilter{}, broker.StartCursor{}, 1); err == nil {
		t.Error("a client sees the pending starts without an orchestrator")
	}
	if _, err := client.Acquire(ctx, "s", "w"); err == nil {
		t.Error("a client acquires a session")
	}
	if _, err := client.Join(ctx, broker.Member{ID: "c"}); err == nil {
		t.Error("a client is a member")
	}
}
