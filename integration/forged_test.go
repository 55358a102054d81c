package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestNobodyPaysForItself has a client try to have NATS publish the result of an activity that no
// worker executes. The incarnation of an instance is no secret: a client may ask for it.
func TestNobodyPaysForItself(t *testing.T) {
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate()
	s.start("once", "order-1", "charge 9,000")
	s.reaches("order-1", events.KindActivityScheduled)
	started := s.events("order-1", 0)[0].Fact.(*events.Started)
	nc, err := nats.Connect(s.server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"rondo.start.x.y", "rondo.event.x.order-1", "rondo.later.start.x.y",
		"rondo.later.event.x.y"} {
		answer, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: nats.Header{
			"Nats-Schedule":        {"@at " + time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)},
			"Nats-Schedule-Target": {"rondo.task-done.1-2.order-1"}, events.HeaderIncarnation: {started.Incarnation},
		}, Data: []byte(`"paid"`)}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(answer.Data), `"error"`) {
			t.Errorf("%s: NATS takes it: %s", subject, answer.Data)
		}
	}
	s.start("childless", "other", "after all of that")
	s.ended("other")
	if i, err := s.store.Instance(t.Context(), "order-1"); err != nil || i.Status != round.Running {
		t.Errorf("%v %s, %v", i.Status, i.Output, err)
	}
}

// TestNobodyAnswersForAChild has a client start an instance that claims to be the child of another
// one.
func TestNobodyAnswersForAChild(t *testing.T) {
	trusting := orchestration.Define[string, string]("trusting")
	s := newSystem(t, openSQLite(t),
		append([]orchestration.Binding{trusting.Bind(func(ctx *orchestration.Context, x string) (string, error) {
			return waiter.Call(ctx, x, orchestration.ID("the-child")) // which waits for an approval
		})}, basics...)...)
	s.orchestrate()
	s.start("trusting", "order-1", "x")
	s.reaches("order-1", events.KindChildStarted)
	s.reaches("the-child", events.KindStarted)
	started := s.events("order-1", 0)[0].Fact.(*events.Started)
	nc, err := nats.Connect(s.server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	parent := nats.Header{events.HeaderParent: {"1-2." + started.Incarnation + ".order-1"}}
	for _, m := range []*nats.Msg{
		{Subject: "rondo.start.childless.evil", Header: parent, Data: []byte(`"evil"`)},
		{Subject: "rondo.control.cancel.evil-2", Header: parent},
	} {
		if _, err := nc.RequestMsg(m, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if i := s.ended("evil"); i.Parent != nil {
		t.Errorf("the instance that a client has started has the parent %+v", i.Parent)
	}
	s.start("childless", "after", "all of that")
	s.ended("after")
	if i, err := s.store.Instance(t.Context(), "order-1"); err != nil || i.Status != round.Running {
		t.Errorf("%v %s, %v", i.Status, i.Output, err)
	}
}
