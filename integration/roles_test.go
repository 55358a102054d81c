package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// roles is a system whose services log in as users of a shipped configuration: of one circle of
// trust, or of the tenant that has an account for each role.
type roles struct {
	*system
	tenant string // begins the names of the users
}

// newRoles returns a system with the users of a shipped configuration, and an orchestrator.
// Services that are started later log in as its worker.
func newRoles(t *testing.T, file string, parts ...orchestration.Binding) roles {
	t.Helper()
	tenant := ""
	if file == "accounts.conf" {
		tenant = "shop-"
	}
	s := &system{t: t, dir: t.TempDir(), open: openSQLite(t), journal: newJournal(t), pace: 5}
	server, err := embedded.Start(embedded.Options{Dir: s.dir, Listen: "127.0.0.1:0",
		Config: "../deploy/nats/" + file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s.server = server
	as := func(user, inbox string, setup natsbroker.Setup, partitions int) {
		s.config = natsbroker.Config{Logger: quiet(), Login: natsbroker.Login{User: tenant + user,
			Password: tenant + user}, InboxPrefix: inbox, Setup: setup, Partitions: partitions}
	}
	as("setup", "", natsbroker.Make, 4)
	s.bus, s.store = s.connect(), s.open()
	s.deploy(parts...)
	as("orchestrator", "_INBOX_orchestrator", natsbroker.Verify, 0)
	s.orchestrate()
	as("worker", "_INBOX_worker", natsbroker.Verify, 0)
	return roles{s, tenant}
}

// connectAs connects a plain NATS client as a shipped user. The servers drop what the user may not
// publish.
func (s roles) connectAs(user string) *nats.Conn {
	s.t.Helper()
	inbox := user
	if user == "setup" {
		inbox = "operator"
	}
	nc, err := nats.Connect(s.server.URL(), nats.UserInfo(s.tenant+user, s.tenant+user), nats.Timeout(time.Minute),
		nats.CustomInboxPrefix("_INBOX_"+inbox), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	return nc
}

// subjectsOf lists the subjects of a stream, as any user that may see the stream can.
func (s *system) subjectsOf(nc *nats.Conn, stream string) []string {
	s.t.Helper()
	a, err := nc.Request("$JS.API.STREAM.INFO."+stream, []byte(`{"subjects_filter":">"}`), patience)
	if err != nil {
		s.t.Fatal(err)
	}
	var info struct {
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(a.Data, &info); err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for subject := range info.State.Subjects {
		all = append(all, subject)
	}
	return all
}

// members lists the ids of the orchestrators, encoded, as a worker can.
func (s *system) members(nc *nats.Conn) (ids []string) {
	s.t.Helper()
	for _, key := range s.subjectsOf(nc, "KV_RONDO_MEMBERS") {
		ids = append(ids, strings.TrimPrefix(key, "$KV.RONDO_MEMBERS."))
	}
	if len(ids) == 0 {
		s.t.Fatal("there is no member")
	}
	return ids
}

// TestWorkersForgeNoHandover has a worker hand over made-up messages to an orchestrator, which it
// finds among the members. With the permissions of setup, which may publish them, they are refused
// all the same.
func TestWorkersForgeNoHandover(t *testing.T) {
	trusting := orchestration.Define[string, string]("trusting")
	s := newRoles(t, "one-circle-of-trust.conf", append([]orchestration.Binding{
		trusting.Bind(func(ctx *orchestration.Context, x string) (string, error) {
			return waiter.Call(ctx, x, orchestration.ID("the-child"))
		})}, basics...)...)
	worker, setup := s.connectAs("worker"), s.connectAs("setup")
	s.start("waiter", "victim", "x")
	s.start("trusting", "order-1", "x")
	s.start("sleeper", "sleeps", time.Hour.Milliseconds())
	s.reaches("order-1", events.KindChildStarted)
	s.reaches("sleeps", events.KindTimerCreated)
	s.reaches("victim", events.KindEventAwaited)
	incarnation := s.events("order-1", 0)[0].Fact.(*events.Started).Incarnation
	numberOf := func(instance string, kind events.Kind) (n int) {
		for _, e := range s.events(instance, 0) {
			if e.Fact.Kind() == kind {
				n = int(e.ID)
			}
		}
		return n
	}
	// A start that waits for its code: its acknowledgement in another place would lose it.
	ack, err := setup.Request("rondo.start.not-deployed-yet.waits", []byte(`"x"`), patience)
	if err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(ack.Data, &stored); err != nil {
		t.Fatal(err)
	}
	var waits string
	for _, subject := range s.subjectsOf(setup, "RONDO") {
		if strings.HasSuffix(subject, ".start.not-deployed-yet.waits") {
			waits = subject
		}
	}
	var partition int
	if _, err := fmt.Sscanf(waits, "rondo.p.%d.", &partition); err != nil {
		t.Fatal(waits, err)
	}

	to := s.members(worker)[0]
	place := uint64(1_000_000)
	forge := func(subject string, h nats.Header, body, token string) {
		if token == "" {
			place++
			token = fmt.Sprintf("$JS.ACK.RONDO.p-0.1.%d.%d.%d.0", place, place, time.Now().UnixNano())
		}
		words := strings.Split(token, ".")
		seq, err1 := strconv.ParseUint(words[5], 10, 64)
		at, err2 := strconv.ParseInt(words[7], 10, 64)
		about, err3 := json.Marshal(map[string]any{"subject": subject, "partition": partition, "place": seq,
			"deliveries": 1, "stored": time.Unix(0, at).UTC(), "token": token})
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for _, handed := range []string{token, string(about)} {
			for _, kind := range []string{"inbox", "system", "task"} {
				m := &nats.Msg{Subject: "rondo.handover." + kind + ".to." + to, Header: nats.Header{},
					Data: []byte(body)}
				for name, values := range h {
					m.Header[name] = values
				}
				m.Header["Rondo-Handed"] = []string{handed}
				if err := errors.Join(worker.PublishMsg(m), worker.Flush()); err != nil {
					t.Fatal(err)
				}
				a, err := setup.RequestMsg(m, patience)
				if err == nil && string(a.Data) == "+OK" {
					t.Errorf("the orchestrator takes %s, by %s", subject, m.Subject)
				}
			}
		}
	}
	id := func(id string) nats.Header { return nats.Header{events.HeaderMsgID: {id}} }
	forge("rondo.start.childless.evil", id("e1"), `"evil"`, "")
	forge("rondo.control.terminate.victim", id("e2"), `"by a worker"`, "")
	child := id("e3")
	child[events.HeaderIncarnation], child["Rondo-Outcome"] = []string{incarnation}, []string{"done"}
	forge(fmt.Sprintf("rondo.child-ended.1-%d.order-1", numberOf("order-1", events.KindChildStarted)), child,
		`"forged by a worker"`, "")
	timer := id("e4")
	timer[events.HeaderDue] = []string{time.Now().UTC().Format(time.RFC3339Nano)}
	forge("rondo.timer-due."+s.token("sleeps", numberOf("sleeps", events.KindTimerCreated))+".sleeps", timer, "", "")
	forge("rondo.wake.x.nobody", id("e5"), "",
		fmt.Sprintf("$JS.ACK.RONDO.p-%d.1.%d.1.%d.0", partition, stored.Seq, time.Now().UnixNano()))

	// The messages of others are where they were, and everything else goes on.
	s.start("childless", "after", "all of that")
	s.completed("after", "child of all of that")
	if !slices.Contains(s.subjectsOf(setup, "RONDO"), waits) {
		t.Error("a start that waits is gone")
	}
	if i, err := s.store.Instance(t.Context(), "evil"); err == nil {
		t.Errorf("evil is %s", i.Status)
	}
	for _, id := range []string{"victim", "order-1", "sleeps"} {
		if i, err := s.store.Instance(t.Context(), id); err != nil || i.Status.Ended() {
			t.Errorf("%s is %s with %s: %v", id, i.Status, i.Output, err)
		}
	}
}
