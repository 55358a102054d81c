package integration_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// raw is a plain NATS client, without Rondo's client library.
type raw struct {
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream
}

func (s *system) raw() *raw {
	s.t.Helper()
	nc, err := nats.Connect(s.server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	return &raw{s.t, nc, js}
}

// publish publishes and waits until it is stored.
func (r *raw) publish(subject string, h nats.Header, body []byte) error {
	_, err := r.js.PublishMsg(r.t.Context(), &nats.Msg{Subject: subject, Header: h, Data: body})
	return err
}

// dead waits for a dead letter of a subject.
func (s *system) dead(r *raw, subject string) *jetstream.RawStreamMsg {
	s.t.Helper()
	var m *jetstream.RawStreamMsg
	s.eventually("a dead letter of "+subject, func() error {
		stream, err := r.js.Stream(s.t.Context(), "RONDO_DEAD")
		if err != nil {
			return err
		}
		m, err = stream.GetLastMsgForSubject(s.t.Context(), "rondo.dead."+strings.TrimPrefix(subject, "rondo."))
		return err
	})
	return m
}

// TestHostileMessages publishes invalid messages amid valid ones. Unreadable messages are
// dead-lettered with the reason; all instances go on.
func TestHostileMessages(t *testing.T) {
	s := newSystem(t, openSQLite(t), plays...)
	s.orchestrate()
	s.labour()
	r := s.raw()
	jobs := mixed("good", 50)
	s.begin(jobs[:25], false)
	for _, c := range []struct {
		name, subject string
		header        nats.Header
		body          []byte
		says          string // in the dead letter
	}{
		{"unknown verb", "rondo.frobnicate.x.i", nil, nil, "unknown verb"},
		{"unknown answer", "rondo.task-refused.1-2.i", nil, nil, "unknown verb"},
		{"verb of many words", "rondo.a-b-c-d.x.i", nil, nil, "unknown verb"},
		{"unknown control", "rondo.control.explode.i", nil, nil, "unknown control"},
		{"reserved orchestration", "rondo.start.rondo%2Ex.i", nil, nil, "reserved"},
		{"bad escape", "rondo.start.once.%ZZ", nil, nil, "hex digits"},
		{"cut escape", "rondo.start.once.a%2", nil, nil, "hex digits"},
		{"not utf-8", "rondo.start.once.%FF%FE", nil, nil, "UTF-8"},
		{"control characters", "rondo.start.once.a%00b", nil, nil, "does not print"},
		{"instance of a kilobyte", "rondo.start.once." + strings.Repeat("i", 1024), nil, nil, "over the limit"},
		{"name of a kilobyte", "rondo.start." + strings.Repeat("n", 1024) + ".i", nil, nil, "over the limit"},
		{"id of a child", "rondo.start.once.x~1.2", nil, nil, ""}, // four words: the broker does not take it
		{"id of a child, encoded", "rondo.start.once.x~1%2E2", nil, nil, "reserved"},
		{"conflict", "rondo.start.once.hostile-1", nats.Header{events.HeaderConflict: {"maybe"}}, nil, "is none of"},
		{"parent", "rondo.internal_start.once.hostile-2",
			nats.Header{events.HeaderMsgID: {"m"}, events.HeaderParent: {"nonsense"}}, nil, "Rondo-Parent"},
		{"attributes", "rondo.start.once.hostile-3", nats.Header{events.HeaderAttributes: {"{"}}, nil,
			"Rondo-Attributes"},
		{"many attributes", "rondo.start.once.hostile-4", nats.Header{events.HeaderAttributes: {manyAttributes()}}, nil,
			"attributes"},
		{"answer without an incarnation", "rondo.task-done.1-2.i", nil, nil, "Rondo-Incarnation"},
		{"answer to no place", "rondo.task-done.x.i", nats.Header{events.HeaderIncarnation: {"a"}}, nil,
			"<execution>-<event>"},
		{"answer to a place beyond numbers", "rondo.task-done.99999999999999999999-1.i",
			nats.Header{events.HeaderIncarnation: {"a"}}, nil, "<execution>-<event>"},
		{"child without an outcome", "rondo.child-ended.1-2.i", nats.Header{events.HeaderIncarnation: {"a"}}, nil,
			"neither done nor failed"},
		{"timer of no time", "rondo.timer-due.1-2.i",
			nats.Header{events.HeaderIncarnation: {"a"}, events.HeaderDue: {"tomorrow"}}, nil, "not a time"},
		{"work for no attempt", "rondo.task._.double.1-2.i",
			nats.Header{events.HeaderIncarnation: {"a"}, events.HeaderAttempt: {"none"}}, nil, "Rondo-Attempt"},
		{"large", "rondo.start.once.hostile-5", nil, bytes.Repeat([]byte("x"), 1000<<10), "over the limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := r.publish(c.subject, c.header, c.body)
			if c.says == "" {
				if err == nil {
					t.Error("the broker took it")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m := s.dead(r, c.subject)
			if got := m.Header.Get(natsbroker.HeaderDeadDetail); !strings.Contains(got, c.says) ||
				m.Header.Get(natsbroker.HeaderDeadReason) == "" ||
				m.Header.Get(natsbroker.HeaderDeadSubject) != c.subject {
				t.Errorf("the dead letter says %q; want it to say %s:\n%v", got, c.says, m.Header)
			}
		})
	}
	s.begin(jobs[25:], false)
	s.letGo(jobs)
	s.finished(jobs, patience)
	s.settled()
}

func manyAttributes() string {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `,"k%d":"v"`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// TestStrangeButGoodMessages publishes odd but valid messages.
func TestStrangeButGoodMessages(t *testing.T) {
	s := newSystem(t, openSQLite(t), plays...)
	s.orchestrate()
	s.labour()
	r := s.raw()
	for i, c := range []struct {
		name, id string
		header   nats.Header
		body     string
		want     any
	}{
		{"dots", "order.7.of.today", nil, `"a"`, "a"},
		{"blanks and wildcards", "all * of > them", nil, `"a"`, "a"},
		{"unicode", "Käse & Brot 🧀", nil, `"a"`, "a"},
		{"longest", strings.Repeat("ä", 128), nil, `"a"`, "a"},
		{"percent", "100%", nil, `"a"`, "a"},
		{"slashes", "a/b\\c", nil, `"a"`, "a"},
		{"quotes", `"quoted" 'twice'`, nil, `"a"`, "a"},
		{"CloudEvents", "cloud", nats.Header{"ce-id": {"1"}, "ce-source": {"/shop"}, "ce-type": {"order"},
			"ce-specversion": {"1.0"}}, `"a"`, "a"},
		{"trace", "traced", nats.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
			`"a"`, "a"},
		{"bad trace", "badly traced", nats.Header{"traceparent": {"\x01nonsense"}}, `"a"`, "a"},
		{"unknown headers", "headed", nats.Header{"X-Whatever": {"1", "2"}, "Rondo-Unknown": {"x"}}, `"a"`, "a"},
		{"large input", "large", nil, `"` + strings.Repeat("x", 900<<10) + `"`, strings.Repeat("x", 900<<10)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := r.publish("rondo.start.once."+events.EncodeToken(c.id), c.header, []byte(c.body)); err != nil {
				t.Fatal(i, err)
			}
			s.completed(c.id, c.want)
		})
	}
	// A body that is not JSON is a string; code that wants a number fails with a decoding error.
	if err := r.publish("rondo.start.chain.plain", nil, []byte("no JSON at all")); err != nil {
		t.Fatal(err)
	}
	if info := s.ended("plain"); info.Status != round.Failed || !strings.Contains(info.Error.Error(), "invalid input") {
		t.Errorf("it is %s: %+v", info.Status, info.Error)
	}
	s.settled()
}

// FuzzInbound decodes arbitrary messages of all subjects as the orchestrator does.
func FuzzInbound(f *testing.F) {
	f.Add("rondo.start.once.i", "Rondo-Parent", "1-2.incarnation.id", []byte(`{}`))
	f.Add("rondo.task-done.1-2.i", "Rondo-Incarnation", "x", []byte(`"a"`))
	f.Add("rondo.task._.double.1-2.i", "Rondo-Attempt", "1", []byte(nil))
	code, err := orchestration.NewRegistry(basics...)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, subject, header, value string, body []byte) {
		m, err := events.Decode("rondo", subject, events.Header{header: {value}}, body, "1@2")
		if err != nil {
			return
		}
		if m.ID == "" || m.Instance == "" || m.Content == nil {
			t.Fatalf("%q gives %+v", subject, m)
		}
		if _, err := events.Encode("rondo", m); err != nil {
			t.Fatalf("%q gives %+v, which cannot be sent on: %v", subject, m, err)
		}
		in := round.New(&round.Config{Code: code}, round.Known{Instance: m.Instance})
		turn := in.Decide([]round.Delivery{{Message: m, Attempts: 1, NumDelivered: 1}}, time.Now())
		if len(turn.Receipts) != 1 || turn.Receipts[0].Verdict == 0 {
			t.Fatalf("%q has no receipt: %+v", subject, turn)
		}
	})
}
