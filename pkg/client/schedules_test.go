package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/codec"
)

func TestNoSchedulesYet(t *testing.T) {
	c := newSystem(t, code()...).client(client.Options{})
	if all, err := client.Collect(c.Schedules().All(soon(t))); len(all) != 0 || err != nil {
		t.Errorf("got %v, %v", all, err)
	}
	for _, err := range []error{c.Schedules().Delete(soon(t), "x"), c.Schedules().Pause(soon(t), "x", ""),
		c.Schedules().Resume(soon(t), "x"), c.Schedules().Trigger(soon(t), "x", "")} {
		if !errors.Is(err, client.ErrNoSchedule) {
			t.Errorf("got %v", err)
		}
	}
}

// TestAScheduleComesBackAsItWasPut puts one with everything that a schedule can have.
func TestAScheduleComesBackAsItWasPut(t *testing.T) {
	c := newSystem(t, code()...).client(client.Options{})
	ctx := soon(t)
	put := client.Schedule{
		ID: "nightly report/ü", Orchestration: "echo", Version: "1.0.0", Input: codec.Payload(` "a" `),
		Attributes: map[string]string{"k": "v"}, Calendars: []client.Calendar{{Hour: "2", Minute: "30",
			Weekday: "MON-FRI"}, {Hour: "12", Weekday: "SAT,SUN", Year: "2027-2199"}},
		Zone: "Europe/Berlin", Start: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		End: time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC), Limit: 100, Jitter: time.Minute, CatchUp: time.Hour,
		Overlap: client.OverlapBufferAll, Paused: true, Note: "not yet",
	}
	got, err := c.Schedules().Put(ctx, put)
	must(t, err)
	read, err := c.Schedules().Get(ctx, put.ID)
	must(t, err)
	all, err := client.Collect(c.Schedules().All(ctx))
	must(t, err)
	want := put
	want.Input = codec.Payload(`"a"`)
	for how, is := range map[string]client.Schedule{"put": got, "got": read, "listed": all[0]} {
		if is.Revision != 1 || is.Created.IsZero() || !is.Changed.Equal(is.Created) || is.Finished || len(is.Next) > 0 {
			t.Errorf("%s: its state is %+v", how, is.ScheduleState)
		}
		is.ScheduleState = client.ScheduleState{}
		if fmt.Sprint(is) != fmt.Sprint(want) {
			t.Errorf("%s: it is\n%v, want\n%v", how, is, want)
		}
	}
	must(t, c.Schedules().Resume(ctx, put.ID))
	if read, err = c.Schedules().Get(ctx, put.ID); err != nil || read.Paused || len(read.Next) != 10 ||
		read.Note != "" || read.Next[0].Before(put.Start) {
		t.Errorf("it is %+v, %v", read, err)
	}
}

// TestAPutThatIsOutOfDate: another client has changed the schedule since it was read.
func TestAPutThatIsOutOfDate(t *testing.T) {
	c := newSystem(t, code()...).client(client.Options{})
	ctx := soon(t)
	s, err := c.Schedules().Put(ctx, client.Schedule{ID: "s", Orchestration: "echo", Cron: "@daily",
		Input: codec.Payload(`"1"`)})
	must(t, err)
	other := s
	other.Cron = "@hourly"
	_, err = c.Schedules().Put(ctx, other)
	must(t, err)
	s.Cron = "@weekly"
	if _, err := c.Schedules().Put(ctx, s); !errors.Is(err, client.ErrScheduleChanged) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Schedules().Put(ctx, s, client.OnlyNew()); err == nil {
		t.Error("there is one already")
	}
	s.Revision = 0
	if s, err = c.Schedules().Put(ctx, s); err != nil || s.Revision != 3 || s.Cron != "@weekly" {
		t.Errorf("it is %+v, %v", s, err)
	}
	again, err := c.Schedules().Put(ctx, s)
	if err != nil || again.Revision != 3 || !again.Changed.Equal(s.Changed) {
		t.Errorf("a put of the same: %+v, %v", again, err)
	}
}

func TestSchedulesAreChecked(t *testing.T) {
	c := newSystem(t, code()...).client(client.Options{})
	ctx := soon(t)
	good := client.Schedule{ID: "x", Orchestration: "echo", Cron: "@daily", Input: codec.Payload(`"1"`)}
	for want, change := range map[string]func(*client.Schedule){
		"instance id: it is empty":                   func(s *client.Schedule) { s.ID = "" },
		"is reserved for the ids of children":        func(s *client.Schedule) { s.ID = "x~1.2" },
		"bytes are over the limit of 256":            func(s *client.Schedule) { s.ID = strings.Repeat("x", 250) },
		"orchestration name: it is empty":            func(s *client.Schedule) { s.Orchestration = "" },
		`no orchestrator that is running has "ecko"`: func(s *client.Schedule) { s.Orchestration = "ecko" },
		"it has no time":                             func(s *client.Schedule) { s.Cron = "" },
		"mutually exclusive": func(s *client.Schedule) {
			s.Calendars = []client.Calendar{{Hour: "1"}}
		},
		"write it like 30 6 * * MON-FRI":                           func(s *client.Schedule) { s.Cron = "at noon" },
		`cron "1 2 3": want 5 fields, or 6 with seconds; it has 3`: func(s *client.Schedule) { s.Cron = "1 2 3" },
		`cron "60 * * * *": minute "60": want 0 to 59, as`:         func(s *client.Schedule) { s.Cron = "60 * * * *" },
		"no such month has that day":                               func(s *client.Schedule) { s.Cron = "0 0 30 2 *" },
		"want whole seconds, one at least": func(s *client.Schedule) {
			s.Cron = "@every 1500ms"
		},
		`time zone "Mars" is not known`: func(s *client.Schedule) { s.Zone = "Mars" },
		`overlap "maybe" is unknown`:    func(s *client.Schedule) { s.Overlap = "maybe" },
		"input of a schedule (bytes): 524289 is over the limit": func(s *client.Schedule) {
			s.Input = make(codec.Payload, 512<<10+1)
		},
		"attribute name": func(s *client.Schedule) {
			s.Attributes = map[string]string{"": "x"}
		},
	} {
		bad := good
		change(&bad)
		if _, err := c.Schedules().Put(ctx, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	good.Orchestration = "ecko"
	_, err := c.Schedules().Put(ctx, good, client.Unchecked())
	must(t, err)
}

// TestSchedulesStart: runs start at their times, as the overlap says, until the schedule is paused.
func TestSchedulesStart(t *testing.T) {
	t.Parallel()
	c := newSystem(t, code()...).client(client.Options{})
	ctx := soon(t)
	for _, s := range []client.Schedule{
		{ID: "again", Orchestration: "echo", Cron: "@every 1s", Input: codec.Payload(`"a"`), Overlap: client.OverlapAllow},
		{ID: "replaced", Orchestration: "keeper", Cron: "* * * * * *", Input: codec.Payload(`"b"`),
			Overlap: client.OverlapTerminateOther},
		{ID: "kept", Orchestration: "keeper", Cron: "* * * * * *", Input: codec.Payload(`"c"`)},
	} {
		_, err := c.Schedules().Put(ctx, s)
		must(t, err)
	}
	runs := func(id string) (all []client.ScheduleRun) {
		s, err := c.Schedules().Get(ctx, id)
		must(t, err)
		return s.Runs
	}
	waitUntil(t, func() bool {
		n := 0
		for _, r := range runs("again") {
			if r.Status == string(client.Completed) {
				n++
			}
		}
		return n >= 2
	})
	waitUntil(t, func() bool {
		all := runs("replaced")
		return len(all) >= 3 && all[len(all)-1].Status == string(client.Terminated)
	})
	waitUntil(t, func() bool {
		s, err := c.Schedules().Get(ctx, "kept")
		must(t, err)
		return s.Skipped >= 2 && len(s.Runs) == 1 && s.Runs[0].Status == string(client.Running)
	})
	for _, id := range []string{"again", "replaced", "kept"} {
		must(t, c.Schedules().Pause(ctx, id, "enough"))
	}
	before := len(runs("again"))
	must(t, c.Schedules().Trigger(ctx, "again", ""))
	waitUntil(t, func() bool { return len(runs("again")) == before+1 })
	list, err := c.Instances().List(ctx, client.Filter{Attributes: map[string]string{"rondo.schedule": "kept"}},
		client.Page{})
	if err != nil || len(list.Instances) != 1 || !strings.HasPrefix(list.Instances[0].ID, "kept@") {
		t.Errorf("found by the attribute: %+v, %v", list.Instances, err)
	}
}

func TestManySchedules(t *testing.T) {
	c := newSystem(t, code()...).client(client.Options{})
	ctx := soon(t)
	const many = 250 // several pages
	for i := range many {
		_, err := c.Schedules().Put(ctx, client.Schedule{ID: fmt.Sprintf("s%03d", i), Orchestration: "echo",
			Cron: "@yearly", Paused: i%2 == 0, Input: codec.Payload(`"1"`)})
		must(t, err)
	}
	all, err := client.Collect(c.Schedules().All(ctx))
	if err != nil || len(all) != many || all[0].ID != "s000" || all[many-1].ID != "s249" || len(all[1].Next) != 1 {
		t.Errorf("%d are listed, %v", len(all), err)
	}
}
