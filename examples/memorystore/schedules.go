package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// scheduler implements [history.Schedules], except for the lists, which a reader has.
type scheduler struct{ *session }

// ChangeSchedule implements [history.Schedules].
func (s scheduler) ChangeSchedule(ctx context.Context, c history.ScheduleChange) (keys []history.OutboxKey, ok bool,
	err error) {
	_, err = call(ctx, s.session, "change_schedule", func() (any, error) {
		if err := c.Check(); err != nil {
			return nil, &history.Error{Class: history.Permanent, Op: "change_schedule", Err: err}
		}
		if s.schedules[c.ID].Version != c.Expected {
			return nil, nil
		}
		ok, keys = true, s.addToOutbox(c.Messages)
		if c.Delete {
			delete(s.schedules, c.ID)
			return nil, nil
		}
		row := copyOf(c.Schedule)
		row.WakeAt, row.ChangedAt = instant(row.WakeAt), instant(row.ChangedAt)
		if row.Version = c.Expected + 1; c.Expected == 0 { // another one than that of a former schedule
			row.Version = 1 + rand.Int64N(1<<52) //nolint:gosec // it is no secret
		}
		s.schedules[c.ID] = row
		return nil, nil
	})
	return keys, ok, err
}

// instant is a time as it is stored.
func instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return events.Instant(t)
}

// copyOf returns a schedule that the caller may change.
func copyOf(x history.Schedule) history.Schedule {
	x.Data = bytes.Clone(x.Data)
	return x
}

// Schedule implements [history.Schedules].
func (s scheduler) Schedule(ctx context.Context, id string) (x history.Schedule, ok bool, err error) {
	_, err = call(ctx, s.session, "schedule", func() (any, error) {
		x, ok = s.schedules[id]
		x = copyOf(x)
		return nil, nil
	})
	return x, ok, err
}

// maxDue bounds the data of the schedules that are due, in bytes.
const maxDue = 8 << 20

func dataOf(x history.Schedule) int { return len(x.Data) }

// DueSchedules implements [history.Schedules].
func (s scheduler) DueSchedules(ctx context.Context, before time.Time, limit int) ([]history.Schedule, error) {
	return call(ctx, s.session, "due_schedules", func() (due []history.Schedule, err error) {
		for _, x := range s.schedules {
			if !x.WakeAt.IsZero() && x.WakeAt.Before(before) {
				due = append(due, copyOf(x))
			}
		}
		slices.SortFunc(due, func(x, y history.Schedule) int {
			return cmp.Or(x.WakeAt.Compare(y.WakeAt), strings.Compare(x.ID, y.ID))
		})
		bounded := *s.session
		bounded.bytes = maxDue
		return page(&bounded, due, history.Page{Limit: limit}.Size(), dataOf), nil
	})
}

// ListSchedules implements [history.Schedules].
func (s reader) ListSchedules(ctx context.Context, filter history.ScheduleFilter,
	p history.Page) (history.ScheduleList, error) {
	return call(ctx, s.session, "list_schedules", func() (list history.ScheduleList, err error) {
		const cursor = "schedule "
		after, ok := strings.CutPrefix(p.Cursor, cursor)
		if !ok && p.Cursor != "" || ok && events.CheckInstance(after) != nil {
			return list, fmt.Errorf("cursor %q: %w", p.Cursor, history.ErrBadCursor)
		}
		var all []history.Schedule
		for id, x := range s.schedules {
			if strings.HasPrefix(id, filter.IDPrefix) && id > after {
				all = append(all, x)
			}
		}
		slices.SortFunc(all, func(x, y history.Schedule) int { return strings.Compare(x.ID, y.ID) })
		for _, x := range page(s.session, all, p.Size(), dataOf) {
			list.Schedules = append(list.Schedules, copyOf(x))
		}
		if n := len(list.Schedules); n < len(all) {
			list.Next = cursor + list.Schedules[n-1].ID
		}
		return list, nil
	})
}
