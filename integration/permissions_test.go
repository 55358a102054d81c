package integration_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/integration/internal/hostile"
	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/seedtest"
	"github.com/rondo-run/rondo/pkg/events"
)

// TestHostileRoles lets a client and a worker publish random messages that they have no business
// with, with the shipped permissions, while other clients have their orchestrations done. A client
// may end instances of others: the hostile one does not try that, except that it directs
// acknowledgements to these subjects. Everything else goes on as without the hostile ones: also a
// delayed start, a child, a dead letter and a session of others. Where each role has an
// account, both have NATS respond under the subjects of these, too, and the worker requests tasks.
func TestHostileRoles(t *testing.T) {
	for _, file := range []string{"one-circle-of-trust.conf", "accounts.conf"} {
		t.Run(file, func(t *testing.T) { hostileRoles(t, file) })
	}
}

func hostileRoles(t *testing.T, file string) {
	t.Helper()
	s := newRoles(t, file, plays...)
	s.labour()
	setup := s.connectAs("setup")
	victims := s.victims(setup)
	client, worker := s.connectAs("client"), s.connectAs("worker")
	members := s.members(worker)

	jobs := mixed("good", 60)
	s.begin(jobs[:30], false)
	var instances, incarnations []string
	for _, j := range jobs[:30] { // the hostile clients do not get the other ids: they could start them first
		instances = append(instances, j.ID)
		s.reaches(j.ID, events.KindStarted)
		incarnations = append(incarnations, s.events(j.ID, 1)[0].Fact.(*events.Started).Incarnation)
	}
	waiting := victims.subjects()
	seed := seedtest.Draw(t)
	for i, h := range []*hostile.Client{
		{Conn: client, Subjects: hostile.Subjects["client"], Incarnations: incarnations, Waiting: waiting},
		{Conn: worker, Subjects: hostile.Subjects["worker"], Incarnations: []string{"another", "9f1c5a0b7e3d2648"},
			Waiting: slices.DeleteFunc(slices.Clone(waiting),
				func(subject string) bool { return strings.HasPrefix(subject, "$KV.RONDO_SESSIONS.") })},
	} {
		if h.Replies = file == "accounts.conf"; h.Replies && h.Conn == worker {
			h.Subjects = slices.Concat(h.Subjects, hostile.Requests)
		}
		h.Rand, h.Victims, h.Members = rand.New(rand.NewPCG(seed, uint64(i))), instances, members
		for range 1500 {
			if err := h.Publish(); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	victims.unharmed()
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

// victims are what others have stored, one of each kind, beside instances.
type victims struct {
	s     *system
	setup *nats.Conn
}

// victims stores a session, a delayed start, and a dead letter.
func (s *system) victims(setup *nats.Conn) victims {
	s.t.Helper()
	v := victims{s, setup}
	if owner, err := s.bus.Acquire(s.t.Context(), "lock", "owner"); err != nil || owner != "owner" {
		s.t.Fatal(owner, err)
	}
	delayed := &nats.Msg{Subject: "rondo.start.childless.delayed", Data: []byte(`"x"`), Header: nats.Header{
		"Rondo-Not-Before": {time.Now().Add(5 * time.Second).UTC().Format(time.RFC3339Nano)}}}
	for _, m := range []*nats.Msg{delayed, {Subject: "rondo.start.once.%ZZ", Data: []byte("a letter")}} {
		if _, err := setup.RequestMsg(m, patience); err != nil {
			s.t.Fatal(err)
		}
	}
	s.eventually("the victims are stored", func() error {
		for _, want := range []string{"rondo.later.start.childless.delayed", "rondo.dead.start.once.%ZZ"} {
			if !slices.Contains(v.subjects(), want) {
				return errors.New("not yet: " + want)
			}
		}
		return nil
	})
	return v
}

// subjects are those under which victims are stored.
func (v victims) subjects() (all []string) {
	for _, stream := range []string{"RONDO_LATER", "RONDO_DEAD", "KV_RONDO_SESSIONS"} {
		all = append(all, v.s.subjectsOf(v.setup, stream)...)
	}
	return all
}

// unharmed checks that each victim is as it was.
func (v victims) unharmed() {
	s := v.s
	t := s.t
	t.Helper()
	if owner, err := s.bus.Owner(t.Context(), "lock"); err != nil || owner != "owner" {
		t.Errorf("the session is owned by %q, %v", owner, err)
	}
	var letters []broker.DeadLetter
	natstest.Eventually(t, "the dead letters can be read", func() bool { // within the time limit of a request
		var err error
		letters, err = s.bus.DeadLetters(t.Context(), 0, 10_000)
		return err == nil
	})
	if !slices.ContainsFunc(letters, func(l broker.DeadLetter) bool {
		return l.Subject == "rondo.start.once.%ZZ" && string(l.Body) == "a letter"
	}) {
		t.Errorf("the dead letter is not among %d", len(letters))
	}
	s.completed("delayed", "child of x")
}
