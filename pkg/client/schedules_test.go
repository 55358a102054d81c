package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// newSystemWithSchedules starts a system, and does what an orchestrator does about schedules when
// it starts.
func newSystemWithSchedules(t testing.TB) *system {
	t.Helper()
	s := newSystem(t, code()...)
	_, err := s.bus.HealSchedules(t.Context())
	must(t, err)
	return s
}

func TestNoSchedulesYet(t *testing.T) {
	s := newSystem(t, code()...)
	c := s.client(client.Options{})
	if all, err := client.Collect(c.Schedules().All(soon(t))); len(all) != 0 || err != nil {
		t.Errorf("got %v, %v", all, err)
	}
	if err := c.Schedules().Delete(soon(t), "x"); !errors.Is(err, client.ErrNoSchedule) {
		t.Errorf("got %v", err)
	}
	err := c.Schedules().Put(soon(t), client.Schedule{ID: "x", Orchestration: "echo", Cron: "@daily"})
	if err == nil || !strings.Contains(err.Error(), "an orchestrator makes it when it starts") {
		t.Errorf("got %v", err)
	}
}

func TestSchedulesAreKept(t *testing.T) {
	s := newSystemWithSchedules(t)
	o := client.Options{Now: func() time.Time { return time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC) }}
	c := s.client(o)
	ctx := soon(t)
	must(t, c.Schedules().Put(ctx, client.Schedule{
		ID: "nightly report/ü", Orchestration: "echo", Version: "1.0.0", Input: codec.Payload(` "a" `),
		Attributes: map[string]string{"k": "v"},
		Cron:       "30  2 * * MON-FRI", Zone: "Europe/Berlin", Overlap: client.OverlapReplace,
	}))
	must(t, c.Schedules().Put(ctx,
		client.Schedule{ID: "often", Orchestration: "echo", Cron: "@every 1h", Overlap: client.OverlapEach}))
	never := client.Schedule{ID: "never", Orchestration: "echo", Cron: "0 0 30 2 *"}
	if err := c.Schedules().Put(ctx, never); err == nil ||
		!strings.Contains(err.Error(), `schedule "never": cron "0 0 30 2 *": it has no next time`) {
		t.Errorf("got %v", err)
	}
	never.ID = "often"
	if err := c.Schedules().Put(ctx, never); err == nil {
		t.Error("a schedule that is never due was stored")
	}

	all, err := client.Collect(c.Schedules().All(ctx))
	must(t, err)
	if len(all) != 2 || all[1].ID != "often" || all[1].Cron != "@every 1h" || len(all[1].Next) != 0 ||
		all[1].Overlap != client.OverlapEach {
		t.Fatalf("got %+v", all)
	}
	r := all[0]
	if r.Orchestration != "echo" || r.Version != "1.0.0" || string(r.Input) != `"a"` || r.Attributes["k"] != "v" ||
		r.Cron != "30 2 * * MON-FRI" || r.Zone != "Europe/Berlin" ||
		r.Overlap != client.OverlapReplace || r.Paused || !r.Changed.Equal(o.Now()) {
		t.Errorf("got %+v", r)
	}
	// On Sunday, 29 March 2026, clocks go forward.
	if want := "[2026-03-30 00:30:00 +0000 UTC 2026-03-31 00:30:00 +0000 UTC"; !strings.HasPrefix(fmt.Sprint(r.Next),
		want) || len(r.Next) != 5 {
		t.Errorf("it is time at %v", r.Next)
	}

	must(t, c.Schedules().Pause(ctx, r.ID))
	must(t, c.Schedules().Pause(ctx, r.ID))
	if r, err = c.Schedules().Get(ctx, r.ID); err != nil || !r.Paused || len(r.Next) != 0 || r.Orchestration != "echo" {
		t.Errorf("got %+v, %v", r, err)
	}
	must(t, c.Schedules().Resume(ctx, r.ID))
	if r, err = c.Schedules().Get(ctx, r.ID); err != nil || r.Paused || len(r.Next) != 5 {
		t.Errorf("got %+v, %v", r, err)
	}
	must(t, c.Schedules().Delete(ctx, r.ID))
	for _, err := range []error{c.Schedules().Delete(ctx, r.ID), c.Schedules().Pause(ctx, r.ID),
		c.Schedules().Resume(ctx, r.ID)} {
		if !errors.Is(err, client.ErrNoSchedule) {
			t.Errorf("got %v", err)
		}
	}
}

func TestSchedulesAreChecked(t *testing.T) {
	s := newSystemWithSchedules(t)
	c := s.client(client.Options{})
	ctx := soon(t)
	good := client.Schedule{ID: "x", Orchestration: "echo", Cron: "@daily"}
	for want, change := range map[string]func(*client.Schedule){
		"instance id: it is empty":            func(s *client.Schedule) { s.ID = "" },
		"is reserved for the ids of children": func(s *client.Schedule) { s.ID = "x~1.2" },
		"bytes are over the limit of 256": func(s *client.Schedule) {
			s.ID, s.Overlap = strings.Repeat("x", 250), client.OverlapEach
		},
		"orchestration name: it is empty":                          func(s *client.Schedule) { s.Orchestration = "" },
		"write it like 30 6 * * MON-FRI":                           func(s *client.Schedule) { s.Cron = "at noon" },
		`cron "1 2 3": want 5 fields, or 6 with seconds; it has 3`: func(s *client.Schedule) { s.Cron = "1 2 3" },
		`cron "60 * * * *": minute "60": want 0 to 59, as`:         func(s *client.Schedule) { s.Cron = "60 * * * *" },
		`second "a": want 0 to 59`:                                 func(s *client.Schedule) { s.Cron = "a * * * * *" },
		`day of the week "MON-FRY": want 0 to 6 or SUN to SAT`:     func(s *client.Schedule) { s.Cron = "0 6 * * MON-FRY" },
		"there is no @evry; there are @hourly":                     func(s *client.Schedule) { s.Cron = "@evry 1s" },
		"no such month has that day":                               func(s *client.Schedule) { s.Cron = "0 0 30 2 *" },
		"CRON_TZ=UTC": func(s *client.Schedule) {
			s.Cron = "CRON_TZ=UTC 1 * * * * *"
		},
		"want whole seconds, one at least": func(s *client.Schedule) { s.Cron = "@every 1500ms" },
		"it is the same in every time zone": func(s *client.Schedule) {
			s.Cron, s.Zone = "@every 1h", "Europe/Berlin"
		},
		`time zone "Mars" is not known`:                     func(s *client.Schedule) { s.Zone = "Mars" },
		`overlap "maybe" is none of skip, replace and each`: func(s *client.Schedule) { s.Overlap = "maybe" },
		"input of a schedule (bytes): 524289 is over the limit": func(s *client.Schedule) {
			s.Input = make(codec.Payload, 512<<10+1)
		},
		"attribute name": func(s *client.Schedule) {
			s.Attributes = map[string]string{"": "x"}
		},
	} {
		bad := good
		change(&bad)
		if err := c.Schedules().Put(ctx, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if all, err := client.Collect(c.Schedules().All(ctx)); len(all) != 0 || err != nil {
		t.Errorf("got %+v, %v", all, err)
	}
}

// TestSchedulesStart: the broker starts what a schedule says, as the overlap says, until it is
// paused.
func TestSchedulesStart(t *testing.T) {
	t.Parallel()
	s := newSystemWithSchedules(t)
	c := s.client(client.Options{})
	ctx := soon(t)
	must(t, c.Schedules().Put(ctx,
		client.Schedule{ID: "again", Orchestration: "echo", Cron: "@every 1s", Input: codec.Payload(`"a"`)}))
	must(t, c.Schedules().Put(ctx, client.Schedule{ID: "replaced", Orchestration: "keeper", Cron: "* * * * * *",
		Input: codec.Payload(`"b"`), Overlap: client.OverlapReplace}))
	must(t, c.Schedules().Put(ctx,
		client.Schedule{ID: "kept", Orchestration: "keeper", Cron: "* * * * * *", Input: codec.Payload(`"c"`)}))
	must(t, c.Schedules().Put(ctx, client.Schedule{ID: "each", Orchestration: "echo", Cron: "* * * * * *",
		Input: codec.Payload(`"d"`), Overlap: client.OverlapEach}))
	kept := exists(t, c, "kept")
	for _, id := range []string{"again", "replaced"} {
		stands(t, c, id, func(i client.Instance) bool { return i.Execution >= 3 })
	}
	waitUntil(t, func() bool {
		list, err := c.Instances().List(ctx,
			client.Filter{IDPrefix: "each@", Statuses: []client.Status{client.Completed}}, client.Page{})
		must(t, err)
		return len(list.Instances) >= 2
	})
	if now := exists(t, c, "kept"); now.Execution != kept.Execution || now.Status != client.Running {
		t.Errorf("what was running is now %+v", now)
	}
	for _, id := range []string{"again", "replaced", "kept", "each"} {
		must(t, c.Schedules().Pause(ctx, id))
	}
	if n, err := c.Schedules().Ensure(ctx); n != 0 || err != nil {
		t.Errorf("%d paused schedules were started, %v", n, err)
	}
}

// TestSchedulesHeal: what the broker has lost is published again.
func TestSchedulesHeal(t *testing.T) {
	s := newSystemWithSchedules(t)
	c := s.client(client.Options{})
	ctx := soon(t)
	must(t, c.Schedules().Put(ctx, client.Schedule{ID: "a", Orchestration: "echo", Cron: "@daily"}))
	must(t, c.Schedules().Put(ctx, client.Schedule{ID: "b", Orchestration: "echo", Cron: "@daily", Paused: true}))
	// another subject
	must(t, c.Schedules().Put(ctx, client.Schedule{ID: "a", Orchestration: "keeper", Cron: "@every 24h"}))
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(time.Minute))
	must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must(t, err)
	stream, err := js.Stream(ctx, "RONDO_LATER")
	must(t, err)
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("the broker has %d schedules", n)
	}
	if n, err := c.Schedules().Ensure(ctx); n != 0 || err != nil {
		t.Errorf("%d schedules were missing, %v", n, err)
	}
	must(t, stream.Purge(ctx))
	for _, want := range []int{1, 0} {
		if n, err := c.Schedules().Ensure(ctx); n != want || err != nil {
			t.Errorf("%d schedules were missing, %v", n, err)
		}
	}
}

func TestEachInstance(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 0, 999, time.FixedZone("x", 3600))
	if got := query.EachInstance("nightly", at); got != "nightly@2026-03-01T12:00:00Z" ||
		events.CheckChosenInstance(got) != nil {
		t.Errorf("got %s", got)
	}
}
