package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

var _ query.Schedules = (*Manager)(nil)

const (
	// changeTries bounds the attempts to change a schedule that others change at the same time.
	changeTries = 20
	// nextTimes is how many next occurrences are told.
	nextTimes = 10
)

// List implements [query.Schedules].
func (m *Manager) List(ctx context.Context, prefix string, page history.Page) (query.ScheduleList, error) {
	now, err := m.config.Now(ctx)
	if err != nil {
		return query.ScheduleList{}, err
	}
	list, err := m.store.ListSchedules(ctx, history.ScheduleFilter{IDPrefix: prefix}, page)
	if err != nil {
		return query.ScheduleList{}, err
	}
	out := query.ScheduleList{Schedules: []query.Schedule{}, Next: list.Next}
	for _, row := range list.Schedules {
		state, err := schedule.Decode(row.Data)
		if err != nil {
			m.unreadable.Do(func() { m.log.Error("schedule cannot be read", "schedule", row.ID, "error", err) })
			out.Schedules = append(out.Schedules, query.Schedule{ID: row.ID, Problem: err.Error()})
			continue
		}
		out.Schedules = append(out.Schedules, describe(row.ID, state, now, 1))
	}
	return out, nil
}

// describe is a schedule for readers, without its runs.
func describe(id string, s *schedule.State, now time.Time, next int) query.Schedule {
	out := query.Schedule{ID: id, Spec: s.Spec, Paused: s.Paused, Note: s.Note, Revision: s.Edition,
		Created: s.Created, Changed: s.Changed, Finished: s.Finished(), Started: s.Started, Missed: s.Missed,
		Skipped: s.Skipped}
	for _, b := range s.Buffered {
		out.Buffered = append(out.Buffered, b.Occurrence)
	}
	if err := json.Unmarshal(s.Action, &out.Run); err != nil {
		out.Problem = err.Error()
	}
	out.Next = s.Upcoming(now, next)
	return out
}

// Get implements [query.Schedules].
func (m *Manager) Get(ctx context.Context, id string) (query.Schedule, error) {
	now, err := m.config.Now(ctx)
	if err != nil {
		return query.Schedule{}, err
	}
	row, state, err := m.stored(ctx, id)
	if err != nil {
		return query.Schedule{}, err
	}
	out := describe(row.ID, state, now, nextTimes)
	var ids []string
	for _, r := range state.Runs {
		ids = append(ids, r.Instance)
	}
	is, err := m.statuses(ctx, state, ids)
	if err != nil {
		return query.Schedule{}, err
	}
	for _, r := range slices.Backward(state.Runs) {
		run := query.ScheduleRun{Instance: r.Instance, Nominal: r.Nominal, At: r.At, StartedAt: r.StartedAt,
			Reason: string(r.Reason), Status: "pending"}
		switch x := is[r.Instance]; {
		case r.Status == schedule.StatusOccupied:
			run.Status = r.Status
		case x.Word != "":
			run.Status = x.Word
		case r.Ended && r.Status != "":
			run.Status = r.Status
		case x.Kind == schedule.Gone || r.Seen:
			run.Status = "deleted"
		}
		out.Runs = append(out.Runs, run)
	}
	return out, nil
}

// stored reads a schedule, or returns [query.ErrNoSchedule].
func (m *Manager) stored(ctx context.Context, id string) (history.Schedule, *schedule.State, error) {
	row, ok, err := m.store.Schedule(ctx, id)
	switch {
	case err != nil:
		return row, nil, err
	case !ok:
		return row, nil, fmt.Errorf("schedule %q: %w", id, query.ErrNoSchedule)
	}
	state, err := schedule.Decode(row.Data)
	if err != nil {
		return row, nil, refused("schedule %q cannot be read (%v); put it again, or delete it", id, err)
	}
	return row, state, nil
}

// refused is the error of a request that is wrong.
func refused(format string, args ...any) error {
	return &broker.ResponseError{Code: history.Permanent.String(), Message: fmt.Errorf(format, args...).Error()}
}

// Put implements [query.Schedules].
func (m *Manager) Put(ctx context.Context, p query.PutSchedule) (query.PutResult, error) {
	s := p.Schedule
	s.Run.Input = codec.Canonical(s.Run.Input)
	if err := check(s); err != nil {
		return query.PutResult{}, refused("schedule %q: %w", s.ID, err)
	}
	if !p.Unchecked {
		if err := m.checkStart(s.Run); err != nil {
			return query.PutResult{}, refused("schedule %q: %w", s.ID, err)
		}
	}
	action, err := json.Marshal(s.Run)
	if err != nil {
		return query.PutResult{}, refused("schedule %q: %w", s.ID, err)
	}
	changed := false
	row, state, now, err := m.modify(ctx, s.ID, func(now time.Time, old *schedule.State) (*schedule.State, error) {
		switch {
		case old != nil && p.New:
			return nil, refused("schedule %q: there is one already, of %s", s.ID, old.Changed.Format(time.RFC3339))
		case p.Expected != 0 && (old == nil || old.Edition != p.Expected):
			return nil, fmt.Errorf("schedule %q: %w", s.ID, query.ErrScheduleChanged)
		case old == nil:
			old, changed = schedule.New(s.ID, now, s.Spec, action, s.Paused), true
		default:
			changed = old.Put(now, s.Spec, action, s.Paused || old.Paused)
		}
		if s.Paused && s.Note != "" && old.Pause(s.Note) {
			changed = true
		}
		if !changed {
			return nil, nil
		}
		return old, nil
	})
	if err != nil {
		return query.PutResult{}, err
	}
	return query.PutResult{Schedule: describe(row.ID, state, now, nextTimes), Changed: changed}, nil
}

// check checks a schedule without the code that it starts.
func check(s query.Schedule) error {
	start := &events.Start{Orchestration: s.Run.Orchestration, Version: s.Run.Version, Input: s.Run.Input,
		Attributes: s.Run.Attributes}
	errs := []error{events.CheckChosenInstance(s.ID), s.Spec.Check(s.ID), events.CheckAttributes(start.Attributes)}
	if len(s.Run.Attributes) >= events.MaxAttributes {
		errs = append(errs, events.Limit("attributes of a schedule", int64(len(s.Run.Attributes)),
			events.MaxAttributes-1, "each run has one more, which names its schedule"))
	}
	errs = append(errs, checkNote(s.Note))
	if len(s.Run.Input) > query.MaxScheduleInput {
		errs = append(errs, events.Limit("input of a schedule (bytes)", int64(len(s.Run.Input)), query.MaxScheduleInput,
			"keep the data in a store and pass a reference to it"))
	}
	_, err := events.Encode(events.DefaultPrefix, events.Message{ID: "x", Instance: s.ID, Content: start})
	return errors.Join(append(errs, err)...)
}

// checkNote checks the note about a pause.
func checkNote(note string) error {
	if len(note) <= query.MaxScheduleNote {
		return nil
	}
	return events.Limit("note of a schedule (bytes)", int64(len(note)), query.MaxScheduleNote, "write less")
}

// checkStart checks that there is code that takes a start.
func (m *Manager) checkStart(s query.Start) error {
	const remedy = "put it unchecked if its code is deployed later"
	known, bad := m.config.CheckStart(&events.Start{Orchestration: s.Orchestration, Version: s.Version, Input: s.Input})
	if bad != nil {
		return fmt.Errorf("each start of %s would fail: %s; %s", s.Orchestration, bad.Message, remedy)
	}
	if known {
		return nil
	}
	all := make(map[string][]string)
	for _, member := range m.config.Members() {
		if member.Knows(s.Orchestration, s.Version) {
			return nil // which does not check the input
		}
		for name, versions := range member.Code {
			all[name] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(all[name], versions))))
		}
	}
	if versions, has := all[s.Orchestration]; has {
		return fmt.Errorf("no orchestrator that is running has %s %s; its versions are %s; %s", s.Orchestration,
			s.Version, strings.Join(versions, ", "), remedy)
	}
	names := slices.Sorted(maps.Keys(all))
	return fmt.Errorf("no orchestrator that is running has %q%s; they have %s; %s", s.Orchestration,
		settings.DidYouMean(s.Orchestration, names), strings.Join(names, ", "), remedy)
}

// Change implements [query.Schedules].
func (m *Manager) Change(ctx context.Context, id string, c query.ScheduleChange) (query.Schedule, error) {
	n := 0
	for _, is := range []bool{c.Pause, c.Resume, c.Trigger, c.Backfill != nil} {
		if is {
			n++
		}
	}
	if n != 1 {
		return query.Schedule{}, refused("schedule %q: want one of pause, resume, trigger and backfill", id)
	}
	if err := checkNote(c.Note); err != nil {
		return query.Schedule{}, refused("schedule %q: %w", id, err)
	}
	row, state, now, err := m.modify(ctx, id, func(now time.Time, s *schedule.State) (*schedule.State, error) {
		if s == nil {
			return nil, fmt.Errorf("schedule %q: %w", id, query.ErrNoSchedule)
		}
		var err error
		changed := true
		switch {
		case c.Pause:
			changed = s.Pause(c.Note)
		case c.Resume:
			changed = s.Resume(now)
		case c.Trigger:
			_, err = s.Trigger(now, c.Overlap)
		default:
			err = s.Backfill(now, c.Backfill.From, c.Backfill.To, c.Overlap)
		}
		if err != nil {
			return nil, refused("%w", err)
		}
		if !changed {
			return nil, nil
		}
		return s, nil
	})
	if err != nil {
		return query.Schedule{}, err
	}
	return describe(row.ID, state, now, nextTimes), nil
}

// modification changes the stored state of a schedule, nil if there is none, and returns the new
// one, nil if nothing is to change.
type modification func(now time.Time, s *schedule.State) (*schedule.State, error)

// modify changes a schedule, also if others change it at the same time. It returns the schedule,
// and the time of the change.
func (m *Manager) modify(ctx context.Context, id string, f modification) (history.Schedule, *schedule.State,
	time.Time, error) {
	for range changeTries {
		now, err := m.config.Now(ctx)
		if err != nil {
			return history.Schedule{}, nil, now, err
		}
		row, ok, err := m.store.Schedule(ctx, id)
		if err != nil {
			return row, nil, now, err
		}
		var old *schedule.State
		if ok {
			if old, err = schedule.Decode(row.Data); err != nil {
				old = nil // it is replaced
			}
		} else {
			row = history.Schedule{ID: id}
		}
		state, err := f(now, old)
		if err != nil {
			return row, nil, now, err
		}
		if state == nil {
			return row, old, now, nil
		}
		done, err := m.commit(ctx, now, time.Now(), row, state, nil)
		if err != nil || done {
			return row, state, now, err
		}
	}
	return history.Schedule{}, nil, time.Time{}, &history.Error{Class: history.Contended, Op: "change a schedule",
		Err: fmt.Errorf("schedule %q: others keep changing it", id)}
}

// Drop implements [query.Schedules].
func (m *Manager) Drop(ctx context.Context, id string) error {
	for range changeTries {
		row, ok, err := m.store.Schedule(ctx, id)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("schedule %q: %w", id, query.ErrNoSchedule)
		}
		_, done, err := m.store.ChangeSchedule(ctx, history.ScheduleChange{Schedule: history.Schedule{ID: id},
			Expected: row.Version, Delete: true})
		if err != nil || done {
			m.forget(row)
			return err
		}
	}
	return &history.Error{Class: history.Contended, Op: "delete a schedule",
		Err: fmt.Errorf("schedule %q: others keep changing it", id)}
}
