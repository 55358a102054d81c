package historytest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/jobs/jobstest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Fixtures are databases as released versions have left them. Later versions must be able to read
// them and to go on with them.
//
//	Fill       creates the contents of a fixture, with the newest version; only ever add to it
//	Reading    is all that a reader gets from a store, to keep it beside the fixture
//	Compare    checks that a reader still gets all that it once got
//	GoOn       continues every instance

// FixtureNow is when a fixture is filled and read.
var FixtureNow = Began.Add(24 * time.Hour)

// Fill fills an empty database for a fixture.
func Fill(tb testing.TB, s history.Store) {
	tb.Helper()
	f := fixture{tb, s}
	runs, child, ended, buried := NewActor("runs"), NewActor("child"), NewActor("ended"), NewActor("buried")
	f.commit(runs.StartAndCall(WithAttributes(map[string]string{"region": "eu", "größe": "L"}),
		func(s *events.Started) {
			s.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		}))
	f.commit(Together(runs.Set("stock", `{"sku":"a1","n":7}`), runs.Set("empty", ""), runs.SetStatus(`"half"`)),
		child.Start(WithParent(runs)))
	f.commit(Sends(child.Note(), "from-child", "runs"))

	f.commit(ended.Start(WithAttributes(map[string]string{"region": "us"})))
	f.commit(ended.Set("kept", "[1,2,3]"))
	f.commit(ended.At(Began.Add(time.Hour)).ContinueAsNew())
	f.commit(ended.At(Began.Add(2 * time.Hour)).Fail("card declined"))
	f.commit(ended.At(Began.Add(3*time.Hour)).Start(WithMessage("again"), WithName("refund", "2.0.0"),
		WithAttributes(map[string]string{"region": "us"})))
	f.commit(ended.At(Began.Add(4 * time.Hour)).Complete(`{"refunded":true}`))

	f.commit(buried.StartAndCall())
	_, err := s.Delete(tb.Context(), []string{"buried"}, history.Deletion{Force: true})
	f.ok(err)
	_, err = s.LeaseOutbox(tb.Context(), f.lease(Began.Add(-time.Hour)))
	f.ok(err)
	_, err = s.LeaseOverdue(tb.Context(), f.lease(Began.Add(-time.Hour)))
	f.ok(err)
	jobstest.Fill(tb, queuesOf(s))
	f.fillSchedules()
}

// fillSchedules creates a schedule that was changed, and one that rests.
func (f fixture) fillSchedules() {
	f.Helper()
	hourly := history.ScheduleChange{Schedule: history.Schedule{ID: "hourly", WakeAt: Began.Add(time.Hour),
		ChangedAt: Began, Data: []byte(`{"cron":"@hourly"}`)}}
	f.schedule(hourly)
	hourly.Messages = []events.Wire{{Subject: "rondo.inbox.1.hourly", Body: []byte("{}"),
		Header: events.Header{events.HeaderMsgID: {"from-schedule"}}}}
	hourly.WakeAt = Began.Add(2 * time.Hour)
	f.schedule(hourly)
	f.schedule(history.ScheduleChange{Schedule: history.Schedule{ID: "rests", ChangedAt: Began, Data: []byte("{}")}})
}

// schedule changes a schedule from the version that it has.
func (f fixture) schedule(c history.ScheduleChange) {
	f.Helper()
	now, _, err := f.store.Schedule(f.Context(), c.ID)
	f.ok(err)
	c.Expected = now.Version
	if _, ok, err := f.store.ChangeSchedule(f.Context(), c); err != nil || !ok {
		f.Fatalf("schedule %q was changed: %t, %v", c.ID, ok, err)
	}
}

// queuesOf is where a store has its queues.
func queuesOf(s history.Store) jobs.Store { return s.(interface{ Queues() jobs.Store }).Queues() }

// Reading is all that can be read from a fixture, as JSON.
func Reading(tb testing.TB, s history.Store) []byte {
	tb.Helper()
	ctx, f := tb.Context(), fixture{tb, s}
	all := make(map[string]any)
	put := func(v any, err error, path string, args ...any) {
		tb.Helper()
		f.ok(err)
		all[fmt.Sprintf(path, args...)] = v
	}
	list, err := s.List(ctx, history.Filter{}, history.Page{})
	put(list, err, "list")
	for _, region := range []string{"eu", "us"} {
		some, err := s.List(ctx, history.Filter{Attributes: map[string]string{"region": region}}, history.Page{})
		put(len(some.Instances), err, "count of %s", region)
	}
	metrics, err := s.Metrics(ctx)
	put(metrics, err, "metrics")
	put(jobstest.Reading(tb, queuesOf(s)), nil, "queues")
	schedules, err := s.ListSchedules(ctx, history.ScheduleFilter{}, history.Page{})
	put(schedules, err, "schedules")
	for _, i := range list.Instances {
		values, err := s.Values(ctx, i.Instance)
		put(values, err, "values of %s", i.Instance)
		status, err := s.CustomStatus(ctx, i.Instance, -1)
		put(status, err, "custom status of %s", i.Instance)
		tree, err := s.Tree(ctx, i.Instance)
		put(tree, err, "tree of %s", i.Instance)
		known, err := s.Load(ctx, []string{i.Instance}, nil)
		put(known[0].Row, err, "row of %s", i.Instance)
		f.ok(known[0].Unreadable)
		executions, err := s.Executions(ctx, i.Instance, 0, 100)
		put(executions, err, "executions of %s", i.Instance)
		for _, x := range executions {
			export, err := history.Export(ctx, s, i.Instance, x.Execution)
			f.ok(err)
			var lines []json.RawMessage
			for _, e := range export.Events {
				data, err := events.EncodeEvent(e)
				f.ok(err)
				lines = append(lines, data)
			}
			put(lines, nil, "history of %s, execution %d", i.Instance, x.Execution)
			if x.Execution == i.Execution && !reflect.DeepEqual(known[0].History, export.Events) {
				tb.Errorf("%q: what is loaded is not what is exported", i.Instance)
			}
		}
	}
	data, err := json.MarshalIndent(all, "", "\t")
	f.ok(err)
	return append(data, '\n')
}

// Compare checks that everything is still read as it was once. There may be more now.
func Compare(tb testing.TB, now, once []byte) {
	tb.Helper()
	var got, want any
	if err := json.Unmarshal(now, &got); err != nil {
		tb.Fatal(err)
	}
	if err := json.Unmarshal(once, &want); err != nil {
		tb.Fatal(err)
	}
	compare(tb, "", got, want)
}

func compare(tb testing.TB, path string, got, want any) {
	tb.Helper()
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			for k, v := range w {
				compare(tb, path+"/"+k, g[k], v)
			}
			return
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i, v := range w {
				compare(tb, fmt.Sprintf("%s/%d", path, i), g[i], v)
			}
			return
		}
	}
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("%s is read as %v, and was %v", path, got, want)
	}
}

// GoOn commits further turns to the instances of a fixture.
func GoOn(tb testing.TB, s history.Store) {
	tb.Helper()
	ctx, f := tb.Context(), fixture{tb, s}
	known, err := s.Load(ctx, []string{"runs", "child", "ended", "buried"}, nil)
	f.ok(err)
	now := FixtureNow
	runs, child, ended := Resume(known[0], now), Resume(known[1], now), Resume(known[2], now)
	if known[3].Row.Execution != 0 {
		tb.Errorf("the deleted instance is there: %+v", known[3])
	}
	// The start that was before the deletion still finds the tombstone.
	r, err := s.Commit(ctx, Batch(tb, NewActor("buried").StartAndCall()))
	if err != nil || r.Outcomes[0].Status != history.Deleted {
		tb.Errorf("the deleted instance is started by the same message: %+v, %v", r, err)
	}
	f.commit(NewActor("buried").Start(WithMessage("another")))

	entries, err := s.LeaseOutbox(ctx, f.lease(now.Add(time.Second)))
	f.ok(err)
	var keys []history.OutboxKey
	ids := make(map[string]bool)
	for _, p := range entries {
		f.ok(p.Err)
		keys = append(keys, p.Key)
		for _, m := range p.Messages {
			for _, id := range slices.Concat(m.Header[events.HeaderMsgID], m.Header[events.HeaderNATSMsgID]) {
				ids[id] = true
			}
		}
	}
	if !ids["from-child"] {
		tb.Errorf("in the outbox is %v", ids)
	}
	f.ok(s.RemoveOutbox(ctx, keys))
	overdue, err := s.LeaseOverdue(ctx, f.lease(now.Add(time.Second)))
	if err != nil || len(overdue) == 0 || overdue[0].Instance != "runs" {
		tb.Errorf("overdue: %+v, %v", overdue, err)
	}

	f.commit(runs.Note(), child.Note())
	f.commit(runs.Set("stock", "1"), child.Complete("1"))
	f.commit(runs.Remove("empty"))
	f.commit(runs.ContinueAsNew())
	f.commit(runs.Complete("1"),
		ended.Start(WithMessage("once more"), WithAttributes(map[string]string{"region": "asia"})))
	f.commit(ended.Note())
	for region, want := range map[string]int{"eu": 1, "us": 0, "asia": 1} {
		some, err := s.List(ctx, history.Filter{Attributes: map[string]string{"region": region}}, history.Page{})
		if err != nil || len(some.Instances) != want {
			tb.Errorf("%d instances of region %s, %v", len(some.Instances), region, err)
		}
	}
	_, err = s.Prune(ctx, "ended", history.Keep{})
	f.ok(err)
	_, err = s.Delete(ctx, []string{"runs", "ended", "buried"}, history.Deletion{Force: true})
	f.ok(err)
	for more := true; more; {
		more, err = s.Tidy(ctx)
		f.ok(err)
	}
	if n, err := s.Count(ctx, history.Filter{}, 0); err != nil || n != 0 {
		tb.Errorf("%d instances are left, %v", n, err)
	}
	jobstest.GoOn(tb, queuesOf(s))

	due, err := s.DueSchedules(ctx, now, 100)
	f.ok(err)
	for _, x := range due { // none in a version without them
		f.schedule(history.ScheduleChange{Schedule: history.Schedule{ID: x.ID, ChangedAt: now, Data: x.Data}})
	}
	f.schedule(history.ScheduleChange{Schedule: history.Schedule{ID: "new", WakeAt: now, ChangedAt: now}})
	due, err = s.DueSchedules(ctx, now.Add(time.Second), 100)
	if err != nil || len(due) != 1 || due[0].ID != "new" {
		tb.Errorf("due: %+v, %v", due, err)
	}
}

// fixture is a store that is filled, read or taken further.
type fixture struct {
	testing.TB
	store history.Store
}

func (f fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f fixture) lease(before time.Time) history.Lease {
	return history.Lease{Before: before, Until: FixtureNow.Add(time.Hour), Limit: 100}
}

func (f fixture) commit(turns ...*round.Turn) {
	f.Helper()
	r, err := f.store.Commit(f.Context(), Batch(f.TB, turns...))
	f.ok(err)
	for i, o := range r.Outcomes {
		if o.Status != history.Committed {
			f.Fatalf("the turn of %q was not taken: %v, stored %+v, %v", turns[i].Instance, o.Status, o.Actual, o.Err)
		}
	}
}
