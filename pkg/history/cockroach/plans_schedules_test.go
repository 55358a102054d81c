package cockroach

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// scheduleCases are what the store does with schedules, of which there are 20,000: half of them
// wake, and 49 are due.
var scheduleCases = []planCase{
	{name: "schedule", rows: 3, indexes: "schedules_pkey",
		do: func(w *crowd) error {
			_, ok, err := w.store.Schedule(w.Context(), "schedule-010000")
			if err == nil && !ok {
				err = fmt.Errorf("there is no such schedule")
			}
			return err
		}},
	{name: "list schedules", rows: 50, indexes: "schedules_pkey",
		do: func(w *crowd) error { return w.schedules(w.store.ListSchedules, history.ScheduleFilter{}) }},
	{name: "list schedules by prefix", rows: 50, indexes: "schedules_pkey",
		do: func(w *crowd) error {
			return w.schedules(w.store.ListSchedules, history.ScheduleFilter{IDPrefix: "schedule-01"})
		}},
	{name: "list schedules within bytes", rows: 250, indexes: "schedules_pkey",
		do: func(w *crowd) error {
			return w.schedules(w.store.Within(1<<20).ListSchedules, history.ScheduleFilter{})
		}},
	{name: "due schedules, none", rows: 3, indexes: "schedules_by_wake",
		do: func(w *crowd) error { return w.due(0, w.now.AddDate(0, 0, -1)) }},
	{name: "due schedules, some", rows: 110, indexes: "schedules_by_wake",
		do: func(w *crowd) error { return w.due(49, w.now) }},
	{name: "change a schedule", rows: 20, indexes: "schedules_pkey; -", prepare: changes("schedule-010000", false)},
	{name: "put a schedule", rows: 20, indexes: "-", prepare: changes("schedule-new-%d", false)},
	{name: "drop a schedule", rows: 20, indexes: "schedules_pkey", prepare: changes("schedule-0100%d2", true)},
}

// schedules reads three pages of a list.
func (w *crowd) schedules(list func(context.Context, history.ScheduleFilter, history.Page) (history.ScheduleList,
	error), f history.ScheduleFilter) error {
	page := history.Page{Limit: 20}
	for range 3 {
		l, err := list(w.Context(), f, page)
		if err != nil {
			return err
		}
		if len(l.Schedules) != 20 || l.Next == "" {
			return fmt.Errorf("%d schedules are on a page", len(l.Schedules))
		}
		page.Cursor = l.Next
	}
	return nil
}

// due expects a number of due schedules.
func (w *crowd) due(n int, before time.Time) error {
	due, err := w.store.DueSchedules(w.Context(), before, 100)
	if err == nil && len(due) != n {
		err = fmt.Errorf("%d schedules are due", len(due))
	}
	return err
}

// changes changes a schedule, along with the start of a run unless it is deleted. The id may have a
// %d for the half of the test.
func changes(id string, drop bool) func(*crowd) func() error {
	return func(w *crowd) func() error {
		c := history.ScheduleChange{Delete: drop}
		c.ID = strings.Replace(id, "%d", fmt.Sprint(w.half), 1)
		s, _, err := w.blind.Schedule(w.Context(), c.ID)
		if err != nil {
			w.Fatal(err)
		}
		c.Expected, c.WakeAt, c.ChangedAt = s.Version, w.now.Add(time.Hour), w.now
		if !drop {
			start := historytest.NewActor(w.id("run")).At(w.now).Start()
			c.Messages = historytest.Batch(w, historytest.Sends(start, w.id("message"), "somebody")).Turns[0].Messages
		}
		return func() error {
			_, ok, err := w.store.ChangeSchedule(w.Context(), c)
			if err == nil && !ok {
				err = fmt.Errorf("the change was refused")
			}
			return err
		}
	}
}
