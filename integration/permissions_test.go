package integration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/pkg/bus/embedded"
	"github.com/rondo-run/rondo/pkg/bus/natsbus"
	"github.com/rondo-run/rondo/pkg/events"
)

// hostile is a connection of a role that publishes what it likes, as far as the shipped permissions let it.
type hostile struct {
	r        *rand.Rand
	nc       *nats.Conn
	victims  []string // instances of others
	lives    []string // their incarnations, which are no secret
	subjects []string // what the role may publish on, with %v for an instance
}

// one chooses among some.
func one[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// internal are subjects of the services. A client tries to publish there, has acknowledgements sent there, and has NATS publish there later.
func (h *hostile) internal() string {
	who := events.EncodeToken(one(h.r, h.victims...))
	place := fmt.Sprintf("%d-%d", 1+h.r.IntN(2), 1+h.r.IntN(12))
	own := place + "-" + one(h.r, h.lives...)
	return one(h.r,
		"rondo.work-done."+place+"."+who, "rondo.work-failed."+place+"."+who, "rondo.work-begun."+place+"."+who, "rondo.child-ended."+place+"."+who,
		"rondo.timer-due."+own+"."+who, "rondo.work._.double."+own+"."+who, "rondo.due.work-done."+place+"."+who, "rondo.due.timer-due."+own+"."+who,
		"rondo.later.timer-due."+own+"."+who, "rondo.later.work._.double."+own+"."+who, "rondo.internal_control.terminate."+who, "rondo.internal_event.approval."+who,
		"rondo.internal_queue.letters."+who, "rondo.due_control.terminate."+who, "rondo.due.control.terminate."+who, "rondo.anchor", "rondo.dead.start.once."+who,
		"$JS.API.STREAM.PURGE.RONDO", "$JS.API.STREAM.DELETE.RONDO_LATER", "$KV.RONDO_MARKS.recovered", "$KV.RONDO_NOTES.attempts=2F1", "rondo.notice.handover.to.results-x",
	)
}

// header is one that NATS or the services know, with a value that would do harm if it counted.
func (h *hostile) header() (name, value string) {
	life, who := one(h.r, h.lives...), one(h.r, h.victims...)
	all := [][2]string{
		{"Nats-Rollup", one(h.r, "all", "sub")}, {"Nats-Schedule", one(h.r, "@at "+time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano), "@every 1s", "* * * * * *")},
		{"Nats-Schedule-Target", h.internal()}, {"Nats-Schedule-Next", "purge"}, {"Nats-Scheduler", h.internal()}, {"Nats-TTL", "1s"}, {"Nats-Msg-Id", "x" + who},
		{"Nats-Expected-Last-Sequence", "1"}, {"Nats-Incr", "1"}, {"Nats-Batch-Id", "b"}, {"Nats-Stream-Source", "RONDO 1"}, {"KV-Operation", "PURGE"},
		{events.HeaderParent, fmt.Sprintf("1-%d.%s.%s", 1+h.r.IntN(9), life, who)}, {events.HeaderLife, life}, {events.HeaderWorker, "w"}, {events.HeaderHeld, "w"},
		{events.HeaderBack, "rondo.notice.handover.to.results-x"}, {"Rondo-Again", "true"}, {"Rondo-Accepted", "9@9999999999999999"}, {"Rondo-Fired", "2001-01-01T00:00:00Z"},
		{"Rondo-Schedule", "nightly"}, {"Rondo-Subject", h.internal()}, {"Rondo-Results", "9"}, {"Rondo-Handed", "{}"}, {"Rondo-Outcome", "done"}, {"Rondo-Attempt", "1"},
		{events.HeaderSent, one(h.r, "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "never")},
		{"Rondo-Not-Before", time.Now().Add(time.Duration(h.r.IntN(3000)) * time.Millisecond).UTC().Format(time.RFC3339Nano)},
		{events.HeaderMsgID, "start/1-2/" + life + "/" + who}, {events.HeaderTrace, "00-x"}, {"traceparent", strings.Repeat("9", 100)},
	}
	x := one(h.r, all...)
	return x[0], x[1]
}

// publish publishes something. What NATS refuses is refused without a word to the publisher, or in the acknowledgement.
func (h *hostile) publish() error {
	m := &nats.Msg{Subject: h.internal(), Header: nats.Header{}, Data: []byte(one(h.r, `"forged"`, `{}`, ``, "\x00\xff", `{"stream":"RONDO","seq":1}`, strings.Repeat("[", 1000)))}
	if h.r.IntN(4) > 0 {
		if m.Subject = one(h.r, h.subjects...); strings.Contains(m.Subject, "%v") {
			m.Subject = fmt.Sprintf(m.Subject, events.EncodeToken(one(h.r, h.victims...)))
		}
	}
	for range h.r.IntN(4) {
		name, value := h.header()
		m.Header.Set(name, value)
	}
	if h.r.IntN(3) == 0 {
		m.Reply = one(h.r, h.internal(), "rondo.control.terminate."+events.EncodeToken(one(h.r, h.victims...)), "rondo.event.approval."+events.EncodeToken(one(h.r, h.victims...)))
	}
	return h.nc.PublishMsg(m)
}

// TestHostileRoles lets a client and a worker publish at random, with the shipped permissions, what they have no business with, while others have their orchestrations
// done. A client may end what others have started: that is not tried, but for having acknowledgements sent where that is done. Everything else goes on as if they were
// not there.
func TestHostileRoles(t *testing.T) {
	s := &system{t: t, dir: t.TempDir(), open: openSQLite(t), journal: newJournal(t), pace: 5}
	server, err := embedded.Start(embedded.Options{Dir: s.dir, Listen: "127.0.0.1:0", Config: "../deploy/nats/single.conf"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s.server = server
	as := func(user string, setup natsbus.Setup) {
		s.config = natsbus.Config{Logger: quiet(), User: user, Password: user, InboxPrefix: "_INBOX_" + user, Setup: setup, Partitions: 4}
	}
	as("setup", natsbus.Make)
	s.config.InboxPrefix = ""
	s.bus, s.store = s.connect(), s.open()
	s.deploy(plays...)
	if _, err := s.bus.HealSchedules(t.Context()); err != nil { // makes the bucket
		t.Fatal(err)
	}
	s.config.Partitions = 0
	as("orchestrator", natsbus.Verify)
	s.config.Partitions = 0
	s.orchestrate()
	as("worker", natsbus.Verify)
	s.config.Partitions = 0
	s.labour()

	jobs := mixed("good", 60)
	s.begin(jobs[:30], false)
	var victims, lives []string
	for _, j := range jobs[:30] { // whoever is first may start an instance, so the ids of the others are not known yet
		victims = append(victims, j.ID)
		s.reaches(j.ID, events.KindStarted)
		lives = append(lives, s.events(j.ID, 1)[0].Fact.(*events.Started).Life)
	}
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	may := map[string][]string{
		"client": {
			"rondo.start.once.%v", "rondo.wake.x.%v", "rondo.event.nothing.%v", "rondo.control.explode.%v", "rondo.start.%%00.%v", "rondo.start.once.own", "rondo.event.e.own",
			"rondo.queue.q.own", "rondo.control.cancel.own", "rondo.start.childless.own~1%2E2", "rondo.api.explode",
		},
		// A worker that knows what to answer is one. It may not answer for what it was not given: it says so of another incarnation.
		"worker": {"rondo.work-done.1-2.%v", "rondo.work-failed.1-3.%v", "rondo.work-begun.1-2.%v", "rondo.dead.work._.double.1-2.own", "$KV.RONDO_NOTES.own"},
	}
	for i, user := range []string{"client", "worker"} {
		nc, err := nats.Connect(server.URL(), nats.UserInfo(user, user), nats.CustomInboxPrefix("_INBOX_"+user), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		h := &hostile{r: rand.New(rand.NewPCG(seed, uint64(i))), nc: nc, victims: victims, lives: lives, subjects: may[user]}
		if user == "worker" {
			h.lives = []string{"another", "9f1c5a0b7e3d2648"}
		}
		for range 1500 {
			if err := h.publish(); err != nil {
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
