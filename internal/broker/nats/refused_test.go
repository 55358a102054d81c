package natsbroker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// This file shows the limits of the users of the shipped configurations, and those of the
// configurations.

// intruder is a connection with the permissions of a user that does what Rondo would not do.
type intruder struct {
	t       *testing.T
	user    string
	nc      *nats.Conn
	refused chan error
}

func intrude(t *testing.T, s *embedded.Server, user string) *intruder {
	t.Helper()
	i := &intruder{t: t, user: user, refused: make(chan error, 100)}
	var err error
	i.nc, err = nats.Connect(s.URL(), nats.UserInfo(user, user), nats.CustomInboxPrefix(natsInbox(user)),
		nats.NoReconnect(), nats.Timeout(time.Minute),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { i.refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan bool)
	i.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() {
		i.nc.Close()
		<-closed
	})
	return i
}

func natsInbox(user string) string {
	if in := inboxOf(user); in != "" {
		return in
	}
	return nats.InboxPrefix[:len(nats.InboxPrefix)-1]
}

// mayNot checks that the server refuses the last operation.
func (i *intruder) mayNot(what, subject string, err error) {
	i.t.Helper()
	if err == nil {
		err = i.nc.Flush()
	}
	if err != nil {
		i.t.Fatalf("%s: %s %s: %v", i.user, what, subject, err)
	}
	select {
	case err := <-i.refused:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), fmt.Sprintf("%q", subject)) {
			i.t.Errorf("%s: %s %s: %v", i.user, what, subject, err)
		}
	case <-time.After(longEnough): // the server has answered the flush; the client passes its errors on later
		i.t.Fatalf("%s may %s %s", i.user, what, subject)
	}
}

func (i *intruder) mayNotPublish(subjects ...string) {
	i.t.Helper()
	for _, s := range subjects {
		i.mayNot("publish", s, i.nc.PublishMsg(&nats.Msg{Subject: s, Reply: i.nc.NewInbox(), Data: []byte("{}")}))
	}
}

func (i *intruder) mayNotHear(subjects ...string) {
	i.t.Helper()
	for _, s := range subjects {
		sub, err := i.nc.SubscribeSync(s)
		i.mayNot("hear", s, err)
		_ = sub.Unsubscribe() // the server does not know it
	}
}

// requests returns the requests of the JetStream API about streams and buckets that could do harm,
// or show too much. Tests for users that need some of them exclude those.
func requests(streams ...string) (subjects []string) {
	for _, s := range streams {
		for _, what := range []string{
			"STREAM.CREATE.%s", "STREAM.UPDATE.%s", "STREAM.DELETE.%s", "STREAM.PURGE.%s", "STREAM.MSG.DELETE.%s",
			"STREAM.MSG.GET.%s", "DIRECT.GET.%s", "DIRECT.GET.%s.rondo.x",
			"STREAM.SNAPSHOT.%s", "STREAM.RESTORE.%s", "STREAM.LEADER.STEPDOWN.%s", "STREAM.PEER.REMOVE.%s",
			"CONSUMER.CREATE.%s", "CONSUMER.CREATE.%s.c", "CONSUMER.DURABLE.CREATE.%s.c",
			"CONSUMER.CREATE.%s.c.x", "CONSUMER.DELETE.%s.c", "CONSUMER.PAUSE.%s.c", "CONSUMER.RESET.%s.c",
			"CONSUMER.UNPIN.%s.c", "CONSUMER.MSG.NEXT.%s.c", "CONSUMER.LEADER.STEPDOWN.%s.c", "CONSUMER.LIST.%s",
			"CONSUMER.NAMES.%s",
		} {
			subjects = append(subjects, "$JS.API."+fmt.Sprintf(what, s))
		}
	}
	return append(subjects, "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.MINE",
		"$JS.API.META.LEADER.STEPDOWN", "$JS.API.ACCOUNT.PURGE.RONDO")
}

// without returns all requests except those that a user needs. Each needed request must be among
// them, so that the list is true.
func without(t *testing.T, all []string, needed ...string) (rest []string) {
	t.Helper()
	left := make(map[string]bool)
	for _, n := range needed {
		left["$JS.API."+n] = true
	}
	for _, s := range all {
		if left[s] {
			delete(left, s)
			continue
		}
		rest = append(rest, s)
	}
	if len(left) > 0 {
		t.Fatalf("%v are not among the requests", left)
	}
	return rest
}

// streamsOf returns all streams of a system.
func streamsOf(prefix string) (all []string) {
	up := strings.ToUpper(prefix)
	for _, s := range strings.Fields(
		"R R_LATER R_TASKS R_DEAD KV_R_MEMBERS KV_R_SESSIONS KV_R_KV KV_R_PROGRESS") {
		all = append(all, strings.Replace(s, "R", up, 1))
	}
	return all
}

// state describes the contents of all streams.
func state(t *testing.T, s *embedded.Server, user string) string {
	t.Helper()
	js, err := jetstream.New(intrude(t, s, user).nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		fmt.Fprintln(&all, info.Config.Name, info.Config.Subjects, info.State.Msgs, info.State.FirstSeq,
			info.State.LastSeq, info.State.Consumers)
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// made creates everything in a broker, with a task queue, and starts an instance.
func made(t *testing.T, s *embedded.Server, user, prefix string) *natsbroker.Bus {
	t.Helper()
	b := natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
		Prefix: prefix})
	if _, err := b.OpenTaskQueue(t.Context(), broker.TaskQueueName{Tag: "gpu", Activity: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), events.Wire{Subject: prefix + ".start.o.i"},
		events.Wire{Subject: prefix + ".task.gpu.a.1-2.i"}); err != nil {
		t.Fatal(err)
	}
	return b
}

// betweenServices are subjects of handovers and of direct delivery.
var betweenServices = []string{
	"rondo.handover.inbox.to.o", "rondo.handover.task.to.w", "rondo.handover.system.to.o",
	"rondo.direct.result.to.R", "rondo.direct.task.to.w___a", "rondo.direct.system.to.w_rondo%2Esystem_x",
	"rondo.direct.answer.result.R.1", "rondo.direct.answer.task.R.1", "rondo.direct.answer.system.R.1",
}

// except returns all subjects but some.
func except(all []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// TestShippedRightsAreTheLeast tries as each user everything that it must not do, one by one.
func TestShippedRightsAreTheLeast(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	made(t, s, "setup", "rondo")
	before := state(t, s, "setup")
	all := requests(streamsOf("rondo")...)
	others := []string{"other.start.o.i", "$KV.OTHER_KV.m", "$JS.API.STREAM.INFO.OTHER",
		"$JS.ACK.OTHER.p-0.1.1.1.1.1", "$SYS.REQ.SERVER.PING", "_INBOX.x", "rondo.p.0.start.o.i", "rondo", "x"}
	everywhere := []string{">", "rondo.>", "_INBOX.>", "$JS.>", "$KV.>", "$JS.API.>", "$SYS.>", "rondo.start.*.*",
		"rondo.task.*.*.*.*", "rondo.notification.>", "other.>"}

	client := intrude(t, s, "client")
	client.mayNotPublish(all...)
	client.mayNotPublish(others...)
	client.mayNotPublish("rondo.task-begun.1-2.i", "rondo.task-done.1-2.i", "rondo.task-failed.1-2.i",
		"rondo.timer-due.1-2.i", "rondo.child-done.1-2.i", "rondo.task.gpu.a.1-2.i",
		"rondo.later.task.gpu.a.1-2.i", "rondo.later.timer-due.1-2.i", "rondo.later.start.o.i",
		"rondo.later.schedule.s.o.i", "rondo.later.anchor._._", "rondo.anchor",
		"rondo.due.start.o.i", "rondo.due_start.o.i", "rondo.internal_start.o.i", "rondo.internal_event.e.i",
		"rondo.internal_mailbox.q.i", "rondo.internal_control.cancel.i", "rondo.dead.start.o.i",
		"rondo.notification.ended.o.i",
		"rondo.notification.member.says.m",
		"$KV.RONDO_MEMBERS.k", "$KV.RONDO_SESSIONS.k", "$KV.RONDO_KV.k", "$KV.RONDO_PROGRESS.k",
		"$JS.API.INFO", "$JS.API.STREAM.INFO.RONDO",
		"$JS.API.CONSUMER.INFO.RONDO.p-0", "$JS.ACK.RONDO.p-0.1.1.1.1.1", "$JS.ACK.RONDO_TASKS.w.1.1.1.1.1",
		"_INBOX_orchestrator.x", "_INBOX_worker.x", "_INBOX_client.x")
	client.mayNotPublish("rondo.operator.loglevel", "rondo.api.put-schedule", "rondo.api.change-schedule",
		"rondo.api.drop-schedule")
	client.mayNotPublish(betweenServices...)
	client.mayNotHear(betweenServices...)
	client.mayNotHear(everywhere...)
	client.mayNotHear("rondo.api.*", "rondo.api.start", "_INBOX_orchestrator.>", "_INBOX_worker.>", "_INBOX_check.>",
		"rondo.notification.member.says.*", "rondo.notification.withdrawn.>")

	worker := intrude(t, s, "worker")
	worker.mayNotPublish(without(t, all, "STREAM.MSG.GET.RONDO_TASKS", "STREAM.MSG.GET.KV_RONDO_SESSIONS",
		"STREAM.MSG.GET.KV_RONDO_PROGRESS", "DIRECT.GET.RONDO_TASKS",
		"CONSUMER.MSG.NEXT.RONDO_TASKS.c", "CONSUMER.LIST.RONDO_TASKS")...)
	worker.mayNotPublish(others...)
	worker.mayNotPublish("rondo.start.o.i", "rondo.event.e.i", "rondo.mailbox.q.i", "rondo.control.cancel.i",
		"rondo.wake.x.i", "rondo.child-done.1-2.i", "rondo.timer-due.1-2.i", "rondo.task.gpu.a.1-2.i",
		"rondo.later.start.o.i", "rondo.later.task-done.1-2.i", "rondo.due.task-done.1-2.i", "rondo.due_start.o.i",
		"rondo.internal_start.o.i", "rondo.anchor", "rondo.dead.start.o.i", "rondo.api.start", "rondo.api.process",
		"rondo.notification.ended.o.i", "rondo.notification.member.says.m", "rondo.notification.withdrawn.gpu.a.1-2.i",
		"$KV.RONDO_MEMBERS.k", "$KV.RONDO_KV.recovered", "$KV.RONDO_KV.attempts.k", "$KV.RONDO_KV.task.k",
		"$JS.ACK.RONDO.p-0.1.1.1.1.1", "_INBOX_orchestrator.x", "_INBOX_orchestrator.x.1",
		"_INBOX_orchestrator.x.said.1", "_INBOX_check.x")
	worker.mayNotPublish("rondo.operator.loglevel")
	worker.mayNotPublish(except(betweenServices, "rondo.handover.task.to.w", "rondo.direct.result.to.R",
		"rondo.direct.answer.task.R.1")...)
	worker.mayNotHear(except(betweenServices, "rondo.handover.task.to.w", "rondo.direct.task.to.w___a",
		"rondo.direct.answer.result.R.1")...)
	worker.mayNotPublish("rondo.dead.start.o.i", "rondo.dead.internal_control.terminate.i", "rondo.dead.other._.x",
		"rondo.dead.child-ended.1-2.i", "rondo.dead.task.rondo%2Esystem.rondo%2Ejobs%2Epush.1-2.i")
	worker.mayNotHear(everywhere...)
	worker.mayNotHear("rondo.api.*", "rondo.api.start", "_INBOX_orchestrator.>", "_INBOX_client.>",
		"rondo.notification.ended.*.*", "rondo.notification.member.says.*", "rondo.done.*.*")

	orchestrator := intrude(t, s, "orchestrator")
	var gets []string
	for _, name := range streamsOf("rondo") {
		if name != "RONDO_DEAD" {
			gets = append(gets, "STREAM.MSG.GET."+name)
		}
	}
	orchestrator.mayNotPublish(without(t, all, append(gets, "STREAM.PURGE.RONDO", "STREAM.PURGE.RONDO_LATER",
		"STREAM.PURGE.RONDO_TASKS", "DIRECT.GET.RONDO", "DIRECT.GET.RONDO_LATER", "DIRECT.GET.RONDO_TASKS",
		"CONSUMER.NAMES.RONDO", "CONSUMER.LIST.RONDO_TASKS",
		"CONSUMER.MSG.NEXT.RONDO.c", "CONSUMER.CREATE.RONDO_TASKS.c", "CONSUMER.CREATE.RONDO_TASKS.c.x")...)...)
	orchestrator.mayNotPublish(others...)
	orchestrator.mayNotPublish("rondo.api.delete", "$JS.API.CONSUMER.MSG.NEXT.RONDO_TASKS."+
		natsbroker.ConsumerOf(broker.TaskQueueName{Tag: "gpu", Activity: "a"}), "$JS.ACK.RONDO_TASKS.w_gpu_a.1.1.1.1.1",
		"_INBOX_worker.x", "_INBOX_worker.x.said.1", "_INBOX_check.x")
	orchestrator.mayNotPublish("rondo.operator.loglevel")
	orchestrator.mayNotPublish("rondo.handover.task.to.w", "rondo.direct.answer.task.R.1")
	orchestrator.mayNotHear("rondo.handover.task.to.w", "rondo.direct.task.to.w___a")
	orchestrator.mayNotHear(everywhere...)
	orchestrator.mayNotHear("_INBOX_client.>", "_INBOX_worker.>", "rondo.task-done.*.*", "rondo.notification.ended.*.*")

	checker := intrude(t, s, "check")
	checker.mayNotPublish(without(t, all, "STREAM.MSG.GET.RONDO", "STREAM.MSG.GET.RONDO_LATER",
		"STREAM.MSG.GET.RONDO_TASKS", "STREAM.MSG.GET.RONDO_DEAD", "STREAM.MSG.GET.KV_RONDO_KV")...)
	checker.mayNotPublish(others...)
	checker.mayNotPublish("rondo.start.o.i", "rondo.event.e.i", "rondo.task-done.1-2.i", "rondo.task.gpu.a.1-2.i",
		"rondo.dead.start.o.i", "rondo.api.list", "rondo.notification.ended.o.i", "$KV.RONDO_MEMBERS.k",
		"$KV.RONDO_PROGRESS.k",
		"$JS.API.INFO", "$JS.API.CONSUMER.INFO.RONDO.p-0", "$JS.ACK.RONDO.p-0.1.1.1.1.1",
		"$JS.ACK.RONDO_TASKS.w.1.1.1.1.1", "_INBOX_client.x")
	checker.mayNotPublish(betweenServices...)
	checker.mayNotHear(betweenServices...)
	checker.mayNotHear(everywhere...)
	checker.mayNotHear("_INBOX_client.>", "rondo.notification.ended.*.*", "rondo.api.*")

	if after := state(t, s, "setup"); after != before {
		t.Errorf("the streams were\n%s and are\n%s", before, after)
	}
}

// TestClientsHearOfInstancesOnly subscribes as a client to all notifications with the subject of
// one about an instance.
func TestClientsHearOfInstancesOnly(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	client := intrude(t, s, "client")
	heard, err := client.nc.SubscribeSync("rondo.notification.*.*.*")
	if err == nil {
		err = client.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	all := intrude(t, s, "setup")
	for _, subject := range []string{"rondo.notification.member.says.m",
		"rondo.notification.ended.o.i"} {
		if err := all.nc.Publish(subject, []byte(subject)); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := heard.NextMsg(longEnough); err != nil || m.Subject != "rondo.notification.ended.o.i" {
		t.Errorf("heard %+v, %v", m, err)
	}
}

// TestLogLevelIsForOperators asks services as a client and as an operator to change something that
// is for operators only.
func TestLogLevelIsForOperators(t *testing.T) {
	t.Parallel()
	const method = broker.ForOperators + "loglevel"
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	made(t, s, "setup", "rondo")
	connected := func(user, inbox string, setup natsbroker.Setup) *natsbroker.Bus {
		return natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
			InboxPrefix: inbox, Setup: setup})
	}
	for _, user := range []string{"orchestrator", "worker"} {
		stop, err := connected(user, inboxOf(user), natsbroker.Verify).HandleDiscovery(method,
			func(context.Context, []byte) ([]byte, error) { return []byte(user), nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	client := connected("client", inboxOf("client"), natsbroker.Use)
	if _, err := client.Discover(t.Context(), method, nil, time.Hour); !errors.Is(err, broker.ErrPermission) ||
		!strings.Contains(err.Error(), "rondo.operator.loglevel") {
		t.Errorf("a client asks: %v", err)
	}
	if _, err := client.Discover(t.Context(), "loglevel", nil, time.Hour); !errors.Is(err, broker.ErrNoResponders) {
		t.Errorf("a client asks where it may: %v", err)
	}
	operator := connected("setup", "_INBOX_operator", natsbroker.Use)
	answers, err := operator.Discover(t.Context(), method, nil, time.Second)
	if err != nil || len(answers) != 2 {
		t.Errorf("an operator gets %q, %v", answers, err)
	}
}

// TestAskingWithoutPermission sends requests that NATS refuses. The users learn it at once, and do
// not wait for a response.
func TestAskingWithoutPermission(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	made(t, s, "setup", "rondo")
	for _, user := range []string{"orchestrator", "worker"} {
		b := natstest.Connect(t, s, natsbroker.Config{Login: natsbroker.Login{User: user, Password: user},
			InboxPrefix: inboxOf(user),
			Setup:       natsbroker.Verify, Timeout: time.Hour})
		if _, err := b.Request(t.Context(), "system", nil); !errors.Is(err, broker.ErrPermission) ||
			!strings.Contains(err.Error(), "rondo.api.system") {
			t.Errorf("%s asks: %v", user, err)
		}
		if _, err := b.Discover(t.Context(), "process", nil, time.Hour); !errors.Is(err, broker.ErrPermission) ||
			!strings.Contains(err.Error(), "rondo.api.process") {
			t.Errorf("%s asks all: %v", user, err)
		}
	}
}

// TestAnswersGoToWhoeverWaits sends requests with reply subjects that would change something, with
// the permissions of the responding service.
func TestAnswersGoToWhoeverWaits(t *testing.T) {
	t.Parallel()
	s := natstest.StartWith(t, embedded.Options{Config: shipped + "one-circle-of-trust.conf"})
	made(t, s, "setup", "rondo")
	before := state(t, s, "setup")
	o := natstest.Connect(t, s, natsbroker.Config{
		Login:       natsbroker.Login{User: "orchestrator", Password: "orchestrator"},
		InboxPrefix: inboxOf("orchestrator"), Setup: natsbroker.Verify})
	asked := make(chan string, 10)
	stop, err := o.Handle("state", func(_ context.Context, request []byte) ([]byte, error) {
		asked <- string(request)
		return []byte("{}"), nil // would purge all
	})
	if err != nil {
		t.Fatal(err)
	}
	handed, err := o.ReceiveHandovers(broker.HandoverInbox, "o", func(broker.Delivery) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	client := intrude(t, s, "client")
	all := intrude(t, s, "setup")
	for _, reply := range []string{"$JS.API.STREAM.PURGE.RONDO", "rondo.task-done.1-2.i", "rondo.start.o.j",
		"$KV.RONDO_KV.recovered"} {
		err := client.nc.PublishRequest("rondo.api.state", reply, []byte(reply))
		if err == nil {
			err = all.nc.PublishRequest("rondo.handover.inbox.to.o", reply, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := all.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if q := <-asked; q != reply {
			t.Errorf("asked %q", q)
		}
	}
	stop() // waits for the running handlers
	handed()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	if _, err := o.RoundTrip(ctx); err != nil {
		t.Fatal(err)
	}
	if after := state(t, s, "setup"); after != before {
		t.Errorf("the streams were\n%s and are\n%s", before, after)
	}
}

// TestWhereAnAcknowledgementGoes shows the limit of permissions within an account, and that an
// account for clients does not have it: the servers send the acknowledgement of a stored message to
// any subject that the publisher names, with permissions of their own.
func TestWhereAnAcknowledgementGoes(t *testing.T) {
	t.Parallel()
	targets := []string{"rondo.task-done.1-2.i", "$KV.RONDO_KV.recovered", "$JS.API.STREAM.PURGE.RONDO",
		"$JS.API.STREAM.DELETE.RONDO"}
	for _, test := range []struct {
		file, setup, client string
		forged              []string
	}{
		{"one-circle-of-trust.conf", "setup", "client", targets[:2]},
		{"accounts.conf", "shop-setup", "shop-client", nil},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			s := natstest.StartWith(t, embedded.Options{Config: shipped + test.file})
			made(t, s, test.setup, "rondo")
			all, client := intrude(t, s, test.setup), intrude(t, s, test.client)
			heard, err := all.nc.SubscribeSync(">")
			if err == nil {
				err = all.nc.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range targets {
				if err := client.nc.PublishRequest("rondo.start.o.i", target, nil); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := client.nc.Request("rondo.start.o.last", nil, 20*time.Second); err != nil {
				// the messages before it are stored and acknowledged by then
				t.Fatal(err)
			}
			if err := all.nc.Publish("that.is.all", nil); err != nil {
				t.Fatal(err)
			}
			forged := make(map[string]bool)
			for m := (*nats.Msg)(nil); m == nil || m.Subject != "that.is.all"; {
				if m, err = heard.NextMsg(longEnough); err != nil {
					t.Fatal(err)
				}
				for _, target := range targets {
					forged[target] = forged[target] || m.Subject == target
				}
			}
			js, err := jetstream.New(all.nc, jetstream.WithDefaultTimeout(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			keys, err := js.Stream(t.Context(), "KV_RONDO_KV")
			if err != nil {
				t.Fatal(err)
			}
			inbox, err := js.Stream(t.Context(), "RONDO")
			if err != nil {
				t.Fatal(err) // it was deleted
			}
			if first := inbox.CachedInfo().State.FirstSeq; first != 1 {
				t.Errorf("the messages before %d were purged", first)
			}
			if len(test.forged) > 0 { // the subscription has heard the forged message, and it is stored soon
				natstest.Eventually(t, "the key is stored", func() bool {
					info, err := keys.Info(t.Context())
					return err == nil && info.State.Msgs == 1
				})
			} else if n := keys.CachedInfo().State.Msgs; n != 0 {
				t.Errorf("%d keys were stored", n)
			}
			for _, f := range targets[:2] {
				if want := len(test.forged) > 0; forged[f] != want {
					t.Errorf("that something was published under %s is %v, want %v", f, forged[f], want)
				}
			}
		})
	}
}

// TestAccountsImportTheRightsOfOneCircle compares the two configurations. The users in the account
// of the orchestrators have the same permissions in both. The accounts of workers and clients
// import the subjects on which these may publish in one circle of trust, except those that stay in
// their account. All systems of the file have the same rights.
func TestAccountsImportTheRightsOfOneCircle(t *testing.T) {
	t.Parallel()
	circle, err := server.ProcessConfigFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	may := make(map[string]*server.Permissions)
	text := func(p *server.Permissions) string {
		all, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	for _, u := range circle.Users {
		may[u.Username] = u.Permissions
	}
	// NATS carries responses back into the account of the request, and handovers between workers
	// stay in theirs.
	local := regexp.MustCompile(`^(_INBOX_|rondo\.handover\.task\.)`)
	crosses := func(subjects []string) (all []string) {
		for _, s := range subjects {
			if !local.MatchString(s) {
				all = append(all, s)
			}
		}
		slices.Sort(all)
		return all
	}

	// Only users of other accounts publish these, to workers or clients.
	toUsersOfTheAccount := map[string][]string{
		"worker": {"rondo.direct.task.>", "rondo.direct.system.>", "rondo.operator.>", "rondo.notification.>"},
		"client": {"rondo.notification.>"},
	}
	denied := func(u *server.User, subjects []string) {
		t.Helper()
		want := text(&server.Permissions{Publish: &server.SubjectPermission{Deny: subjects}})
		if got := text(u.Permissions); got != want {
			t.Errorf("%s may\n%s\nwant\n%s", u.Username, got, want)
		}
	}
	accounts, err := server.ProcessConfigFile(shipped + "accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range accounts.Users {
		tenant, role, _ := strings.Cut(u.Username, "-")
		switch role {
		case "orchestrator", "check":
			want := strings.ReplaceAll(text(may[role]), "_INBOX_client", "_R_") // so responses cross
			if got := text(u.Permissions); got != want || u.Account.Name != strings.ToUpper(tenant) {
				t.Errorf("%s, in account %s, may\n%s\nwant\n%s", u.Username, u.Account.Name, got, want)
			}
		case "worker", "client":
			// An import has no exceptions.
			denied(u, append(slices.Clone(toUsersOfTheAccount[role]), may[role].Publish.Deny...))
		case "setup":
			if u.Permissions != nil {
				t.Errorf("%s has permissions; its account is its limit", u.Username)
			}
		default:
			t.Errorf("%s: a role without a test", u.Username)
		}
	}
	file, err := os.ReadFile(shipped + "accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"SHOP", "BANK"} {
		for role, account := range map[string]string{"worker": tenant + "_WORKERS", "client": tenant + "_CLIENTS"} {
			services, streams := importsOf(t, string(file), account, tenant)
			if want := crosses(may[role].Publish.Allow); !slices.Equal(services, want) {
				t.Errorf("%s imports the services\n%q\nwant\n%q", account, services, want)
			}
			for _, s := range streams {
				fits := func(other string) bool { return server.SubjectsCollide(s, other) }
				hears := may[role].Subscribe
				if !slices.ContainsFunc(hears.Allow, fits) || slices.ContainsFunc(hears.Deny, fits) {
					t.Errorf("%s imports %s, which a %s may not hear in one circle of trust", account, s, role)
				}
			}
		}
	}
	one, two, _ := strings.Cut(string(file), "  # Another system")
	_, one, _ = strings.Cut(one, "\naccounts {\n")
	_, two, _ = strings.Cut(two, "\n")
	one = strings.NewReplacer("SHOP", "BANK", "shop", "bank").Replace(one)
	if strings.TrimSpace(one)+"\n}" != strings.TrimSpace(two) {
		t.Error("the two systems of accounts.conf differ")
	}
}

// importsOf returns what an account imports, and checks that the other one exports the same to it.
func importsOf(t *testing.T, file, account, from string) (services, streams []string) {
	t.Helper()
	_, body, ok := strings.Cut(file, "\n  "+account+" {")
	body, _, end := strings.Cut(body, "\n  }")
	if !ok || !end {
		t.Fatalf("there is no account %s", account)
	}
	for _, m := range regexp.MustCompile(`\{ (service|stream): \{ account: (\w+), subject: "([^"]+)" \} \}`).
		FindAllStringSubmatch(body, -1) {
		if m[2] != from {
			t.Errorf("%s imports from %s", account, m[2])
		}
		if m[1] == "service" {
			services = append(services, m[3])
		} else {
			streams = append(streams, m[3])
		}
	}
	slices.Sort(services)
	slices.Sort(streams)
	var exported []string
	for _, m := range regexp.MustCompile(`\{ (service|stream): "([^"]+)", .*accounts: \[`+account+`\]`).
		FindAllStringSubmatch(file, -1) {
		exported = append(exported, m[2])
	}
	slices.Sort(exported)
	if all := slices.Sorted(slices.Values(slices.Concat(services, streams))); !slices.Equal(exported, all) {
		t.Errorf("%s imports\n%q\nand is exported\n%q", account, all, exported)
	}
	return services, streams
}
