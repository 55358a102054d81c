package integration_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/integration/internal/hostile"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/seedtest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestHostileRoles lets a client and a worker publish random messages that they have no business
// with, with the shipped permissions, while other clients have their orchestrations done. A client
// may end instances of others: the hostile one does not try that, except that it directs
// acknowledgements to these subjects. Everything else goes on as without the hostile ones.
func TestHostileRoles(t *testing.T) {
	s := &system{t: t, dir: t.TempDir(), open: openSQLite(t), journal: newJournal(t), pace: 5}
	server, err := embedded.Start(embedded.Options{Dir: s.dir, Listen: "127.0.0.1:0",
		Config: "../deploy/nats/single.conf"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s.server = server
	as := func(user string, setup natsbroker.Setup) {
		s.config = natsbroker.Config{Logger: quiet(), Login: natsbroker.Login{User: user, Password: user},
			InboxPrefix: "_INBOX_" + user,
			Setup:       setup, Partitions: 4}
	}
	as("setup", natsbroker.Make)
	s.config.InboxPrefix = ""
	s.bus, s.store = s.connect(), s.open()
	s.deploy(plays...)
	if _, err := s.bus.HealSchedules(t.Context()); err != nil { // makes the bucket
		t.Fatal(err)
	}
	s.config.Partitions = 0
	as("orchestrator", natsbroker.Verify)
	s.config.Partitions = 0
	s.orchestrate()
	as("worker", natsbroker.Verify)
	s.config.Partitions = 0
	s.labour()

	jobs := mixed("good", 60)
	s.begin(jobs[:30], false)
	var victims, incarnations []string
	for _, j := range jobs[:30] { // the hostile clients do not get the other ids: they could start them first
		victims = append(victims, j.ID)
		s.reaches(j.ID, events.KindStarted)
		incarnations = append(incarnations, s.events(j.ID, 1)[0].Fact.(*events.Started).Incarnation)
	}
	seed := seedtest.Draw(t)
	for i, user := range []string{"client", "worker"} {
		nc, err := nats.Connect(server.URL(), nats.UserInfo(user, user), nats.CustomInboxPrefix("_INBOX_"+user),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		h := &hostile.Client{
			Rand: rand.New(rand.NewPCG(seed, uint64(i))), Conn: nc, Victims: victims, Incarnations: incarnations,
			Subjects: hostile.Subjects[user],
		}
		if user == "worker" {
			h.Incarnations = []string{"another", "9f1c5a0b7e3d2648"}
		}
		for range 1500 {
			if err := h.Publish(); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	s.begin(jobs[30:], false)
	s.letGo(jobs)
	s.finished(jobs, patience)
	for _, j := range jobs {
		if kinds := s.kinds(j.ID); slices.Contains(kinds, events.KindCancelRequested) {
			t.Errorf("%s: %v", j.ID, kinds)
		}
	}
	s.settled()
}
