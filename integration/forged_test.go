package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/codec"
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

// TestHostileClientsStartNoRuns has a client start the runs of a schedule before the schedule does,
// with the message ids that the schedule will use, and another instance with its attribute.
func TestHostileClientsStartNoRuns(t *testing.T) {
	s := newSystem(t, openSQLite(t), basics...)
	s.orchestrate()
	r := s.raw()
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	forged := map[string]string{events.HeaderMsgID: "nightly@2026-01-01T00:00:00Z",
		events.HeaderNATSMsgID: "nightly@2026-01-02T00:00:00Z"}
	for i, name := range []string{events.HeaderMsgID, events.HeaderNATSMsgID} {
		id := fmt.Sprintf("schedule/nightly/1/2026-01-%02dT00:00:00Z/%d", i+1, i+1)
		err := r.publish("rondo.start.childless."+forged[name], nats.Header{name: {id}}, []byte(`"evil"`))
		if err != nil {
			t.Fatal(err)
		}
	}
	err := r.publish("rondo.start.childless.evil", nats.Header{
		events.HeaderAttributes: {`{"rondo.schedule":"nightly"}`}}, []byte(`"evil"`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.schedules().Put(t.Context(), query.PutSchedule{Schedule: query.Schedule{ID: "nightly",
		Run:  query.Start{Orchestration: "childless", Input: codec.Payload(`"good"`)},
		Spec: schedule.Spec{Calendars: []schedule.Calendar{{Year: "2026", Month: "1", Day: "1,2", Hour: "0"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.schedules().Change(t.Context(), "nightly", query.ScheduleChange{Backfill: &query.Backfill{
		From: day, To: day.Add(25 * time.Hour)}, Overlap: schedule.Allow}); err != nil {
		t.Fatal(err)
	}
	for _, id := range forged {
		s.completed(id, "child of good")
	}
	if t.Failed() {
		return // there is no dead letter to wait for
	}
	for _, id := range forged {
		if letter := s.dead(r, "rondo.start.childless."+id); !strings.Contains(
			letter.Header.Get(natsbroker.HeaderDeadDetail), "reserved") {
			t.Errorf("the dead letter says %v", letter.Header)
		}
	}
	s.dead(r, "rondo.start.childless.evil")
	for _, x := range s.runsOf("nightly") {
		if x.Instance == "evil" {
			t.Error("an instance of a client has the attribute of a schedule")
		}
	}
}
