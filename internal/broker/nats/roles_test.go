package natsbroker_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/events"
)

// reaches are, for each pair of a publishing and a subscribing role, the subjects on which the
// second can hear the first. _INBOX is the inbox of the subscribing role: the answers of NATS
// arrive there, so that only roles whose answers it waits for may publish there.
var reaches = map[[2]string][]string{
	// rondo.*.*.* is for messages to instances, and fits notifications of withdrawn tasks, too.
	{"orchestrator", "orchestrator"}: {"_INBOX", "rondo.*.*.*", "rondo.notification.>", "rondo.handover.inbox.to.*",
		"rondo.handover.system.to.*", "rondo.direct.result.to.*", "rondo.direct.system.to.*",
		"rondo.direct.answer.result.*.*", "rondo.direct.answer.system.*.*"},
	{"orchestrator", "worker"}: {"rondo.*.*.*", "rondo.notification.>", "rondo.direct.task.to.*",
		"rondo.direct.answer.result.*.*"},
	{"orchestrator", "client"}: {"_INBOX", "rondo.notification.>"},
	{"worker", "orchestrator"}: {"rondo.direct.result.to.*", "rondo.direct.answer.task.*.*"},
	{"worker", "worker"}:       {"_INBOX", "rondo.handover.task.to.*"},
	{"worker", "client"}:       {"_INBOX"},
	{"client", "orchestrator"}: {"rondo.api.*"},
	{"client", "worker"}:       {"rondo.api.*"},
}

// TestWhichRolesReachEachOther compares the permissions to publish of each role with those to
// subscribe of each other role, in one circle of trust. Between accounts it is fewer subjects: see
// TestAccountsImportTheRightsOfOneCircle.
func TestWhichRolesReachEachOther(t *testing.T) {
	t.Parallel()
	conf, err := server.ProcessConfigFile(shipped + "one-circle-of-trust.conf")
	if err != nil {
		t.Fatal(err)
	}
	may := make(map[string]*server.Permissions)
	for _, u := range conf.Users {
		if u.Permissions != nil {
			may[u.Username] = u.Permissions
		}
	}
	if len(may) < 3 {
		t.Fatalf("the roles are %v", slices.Collect(maps.Keys(may)))
	}
	for from, publishes := range may {
		for to, subscribes := range may {
			var got []string
			for _, p := range publishes.Publish.Allow {
				if !slices.ContainsFunc(subscribes.Subscribe.Allow,
					func(s string) bool { return server.SubjectsCollide(p, s) }) {
					continue
				}
				if strings.HasPrefix(p, "_INBOX_") {
					p = "_INBOX"
				}
				got = append(got, p)
			}
			want := slices.Clone(reaches[[2]string{from, to}])
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s reaches %s on %q, want %q", from, to, got, want)
			}
		}
	}
}

// TestReceiversAcknowledgeNothing forges, as far as a worker can, the acknowledgement of a message
// that no stream has. The worker knows the reply subjects of the tasks that it receives.
func TestReceiversAcknowledgeNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	o := natstest.Connect(t, s, natsbroker.Config{Partitions: 1})
	o.WaitDirect(longEnough)
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	tasks, err := nc.SubscribeSync("rondo.direct.task.to.w___a")
	if err != nil {
		t.Fatal(err)
	}
	task := make(chan error, 1)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	go func() { task <- o.Publish(t.Context(), taskOf("i")...) }()
	m, err := tasks.NextMsg(longEnough)
	if err != nil {
		t.Fatal(err)
	}

	if err := rawJetStream(t, s).DeleteStream(t.Context(), "RONDO"); err != nil {
		t.Fatal(err)
	}
	silent, err := nc.SubscribeSync("rondo.event.e.i") // otherwise the server answers: no responders
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	event := make(chan error, 1)
	go func() { event <- o.Publish(ctx, events.Wire{Subject: "rondo.event.e.i"}) }()
	asked, err := silent.NextMsg(longEnough)
	if err != nil {
		t.Fatal(err)
	}
	begin := m.Reply[:strings.LastIndexByte(m.Reply, '.')+1]
	if strings.HasPrefix(asked.Reply, begin) || !strings.HasPrefix(asked.Reply, nats.InboxPrefix) {
		t.Errorf("the answer of NATS goes to %s, and the one of the worker to %s", asked.Reply, m.Reply)
	}
	for n := range uint64(50) {
		if subject := begin + strconv.FormatUint(n, 36); subject != m.Reply {
			err = errors.Join(err, nc.Publish(subject, []byte(`{"stream":"RONDO","seq":7}`)))
		}
	}
	// Its own answer, behind all of these, shows that they have arrived.
	if err := errors.Join(err, nc.Publish(m.Reply, []byte("O")), <-task); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-event; !errors.Is(err, context.Canceled) {
		t.Errorf("a worker has acknowledged what no stream has: %v", err)
	}
}
