package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Schedule starts an orchestration again and again. It is stored in the database, and the
// orchestrators start its runs, each once. A run is an instance of its own, with the id of the
// schedule, "@" and the time, like nightly@2027-01-01T03:00:00Z. Its attribute rondo.schedule is
// the id of the schedule.
type Schedule struct {
	ID string `json:"id"`
	// Orchestration is the name of the orchestration to start, Version its version, Input its
	// input, unchanged.
	Orchestration string            `json:"orchestration"`
	Version       string            `json:"version,omitempty"`
	Input         codec.Payload     `json:"input,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	// Cron says when: five fields (minute, hour, day of the month, month, day of the week), or six
	// with seconds before them, or one of @hourly, @daily, @weekly, @monthly, @yearly, and @every
	// with a duration. Calendars say it field by field, in place of Cron.
	Cron      string     `json:"cron,omitempty"`
	Calendars []Calendar `json:"calendars,omitempty"`
	// Zone is the time zone for them, such as Europe/Berlin; "" is UTC. Where clocks are put
	// forward over the time of a run, it starts right after the gap; where a time comes twice, it
	// starts at the first one only. Schedules that run every hour are not affected.
	Zone string `json:"zone,omitempty"`
	// Start and End bound the times of the runs: not before Start, and before End.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Limit is the number of runs after which the schedule ends; 0: it does not.
	Limit int `json:"limit,omitempty"`
	// Jitter delays each run by a part of it that is different for each.
	Jitter time.Duration `json:"-"`
	// CatchUp is for how long a run is started late, after an absence of all orchestrators. What
	// would be later is missed. Default: 24 h.
	CatchUp time.Duration `json:"-"`
	// Overlap decides about a run whose predecessor has not ended.
	Overlap Overlap `json:"overlap,omitempty"`
	// Paused has it start nothing until it is resumed. A Put without it leaves a paused schedule
	// paused. Note says why.
	Paused bool   `json:"paused,omitempty"`
	Note   string `json:"note,omitempty"`

	ScheduleState
}

// ScheduleState has the counts and times of a schedule. A Put ignores it, except for Revision.
type ScheduleState struct {
	// Revision counts the changes of the definition. A Put with one replaces that revision only,
	// or returns [ErrScheduleChanged].
	Revision int64 `json:"revision,omitempty"`
	// Created is when it was stored first, Changed when the definition was changed last.
	Created time.Time `json:"created,omitzero"`
	Changed time.Time `json:"changed,omitzero"`
	// Finished says that it starts nothing any more: its Limit or End is reached.
	Finished bool `json:"finished,omitempty"`
	// Started counts the runs, Missed the times at which no orchestrator looked for longer than
	// CatchUp, and Skipped those that Overlap left out.
	Started int64 `json:"started,omitempty"`
	Missed  int64 `json:"missed,omitempty"`
	Skipped int64 `json:"skipped,omitempty"`
	// Buffered are the times of runs that wait for the end of their predecessor.
	Buffered []time.Time `json:"buffered,omitempty"`
	// Next are the next times: one in a list, and ten from Get.
	Next []time.Time `json:"next,omitempty"`
	// Runs are the last runs, the newest first: at least 20 of them. Lists leave them out.
	Runs []ScheduleRun `json:"runs,omitempty"`
	// Problem says why the schedule cannot be read; it then starts nothing.
	Problem string `json:"problem,omitempty"`
}

// Calendar is a set of times. Each field has numbers, lists, ranges and steps, as in a cron: "*",
// "1-5", "*/15" or "MON-FRI". An empty Second, Minute or Hour is 0; another empty field is "*".
type Calendar struct {
	Second  string `json:"second,omitempty"`
	Minute  string `json:"minute,omitempty"`
	Hour    string `json:"hour,omitempty"`
	Day     string `json:"day,omitempty"`
	Month   string `json:"month,omitempty"`
	Weekday string `json:"weekday,omitempty"`
	Year    string `json:"year,omitempty"`
}

// ScheduleRun is a run of a schedule.
type ScheduleRun struct {
	Instance string `json:"instance"`
	// At is its time, StartedAt when it was started.
	At        time.Time `json:"at"`
	StartedAt time.Time `json:"started_at"`
	// Reason says why: "schedule", "catch-up", "trigger" or "backfill".
	Reason string `json:"reason"`
	// Status is the status of the instance, "pending" before there is one, or "deleted". It is
	// "id_in_use" if another start has begun the instance of this id: then the run did not begin.
	Status string `json:"status"`
}

// Overlap says what a schedule does about a run whose predecessor has not ended.
type Overlap string

// The choices.
const (
	// OverlapSkip leaves the run out. It is the default.
	OverlapSkip Overlap = "skip"
	// OverlapBufferOne starts one run after the predecessor has ended, and leaves out the others.
	OverlapBufferOne Overlap = "buffer_one"
	// OverlapBufferAll starts all of them, one after the other.
	OverlapBufferAll Overlap = "buffer_all"
	// OverlapAllow starts the run at once, beside the other.
	OverlapAllow Overlap = "allow"
	// OverlapCancelOther cancels the predecessor, and starts the run when that has ended.
	OverlapCancelOther Overlap = "cancel_other"
	// OverlapTerminateOther terminates the predecessor, and starts the run at once.
	OverlapTerminateOther Overlap = "terminate_other"
)

// ErrNoSchedule is the error of a call about a schedule that does not exist.
var ErrNoSchedule = query.ErrNoSchedule

// ErrScheduleChanged is the error of a Put with another revision than the stored one.
var ErrScheduleChanged = query.ErrScheduleChanged

// Schedules manages the schedules of a system: see [Client.Schedules]. It is safe for concurrent
// use.
type Schedules struct{ c *Client }

// Schedules returns the part of the client that manages schedules. An orchestrator must be running.
func (c *Client) Schedules() Schedules { return Schedules{c} }

func (s Schedules) all() query.Schedules { return query.NewSchedules(query.NewReader(s.c.broker)) }

// A PutOption changes what [Schedules.Put] checks.
type PutOption struct{ apply func(*query.PutSchedule) }

// Unchecked has a schedule stored also if no running orchestrator has its code, or its input does
// not fit that.
func Unchecked() PutOption { return PutOption{func(p *query.PutSchedule) { p.Unchecked = true }} }

// OnlyNew has [Schedules.Put] fail if there is a schedule of that id.
func OnlyNew() PutOption { return PutOption{func(p *query.PutSchedule) { p.New = true }} }

// Put creates a schedule, or replaces the one of its id, and returns it as it is stored. A schedule
// that is stored already stays as it is, with all runs that are due. Otherwise, the next run is
// counted from now. Put refuses what [Schedule.Check] refuses, an orchestration that no running
// orchestrator has, and an input that does not fit.
func (s Schedules) Put(ctx context.Context, x Schedule, options ...PutOption) (Schedule, error) {
	if err := x.Check(); err != nil {
		return Schedule{}, err
	}
	p := query.PutSchedule{Schedule: x.wire(), Expected: x.Revision}
	for _, o := range options {
		o.apply(&p)
	}
	got, err := s.all().Put(ctx, p)
	return scheduleOf(got.Schedule), err
}

// Check returns the errors that [Schedules.Put] returns without an orchestrator: an invalid id,
// name, version, attribute, time or overlap, or too large an input.
func (x Schedule) Check() error {
	err := errors.Join(orchestration.CheckStart(x.Orchestration, nil, time.Time{}, orchestration.ID(x.ID),
		orchestration.Version(x.Version), orchestration.Attributes(x.Attributes)), x.wire().Spec.Check(x.ID))
	if len(x.Input) > query.MaxScheduleInput {
		err = errors.Join(err, events.Limit("input of a schedule (bytes)", int64(len(x.Input)), query.MaxScheduleInput,
			"keep the data in a store and pass a reference to it"))
	}
	if err != nil {
		return fmt.Errorf("schedule %q: %w", x.ID, err)
	}
	return nil
}

func (x Schedule) wire() query.Schedule {
	return query.Schedule{ID: x.ID, Paused: x.Paused, Note: x.Note,
		Run: query.Start{Orchestration: x.Orchestration, Version: x.Version, Input: codec.Canonical(x.Input),
			Attributes: x.Attributes},
		Spec: schedule.Spec{Cron: x.Cron,
			Calendars: convert(x.Calendars, func(c Calendar) schedule.Calendar { return schedule.Calendar(c) }),
			Zone:      x.Zone, Start: x.Start, End: x.End, Limit: x.Limit, Jitter: events.Duration(x.Jitter),
			CatchUp: events.Duration(x.CatchUp), Overlap: schedule.Overlap(x.Overlap)}}
}

func scheduleOf(q query.Schedule) Schedule {
	at := func(o schedule.Occurrence) time.Time { return o.At }
	return Schedule{ID: q.ID, Paused: q.Paused, Note: q.Note, Orchestration: q.Run.Orchestration,
		Version: q.Run.Version, Input: q.Run.Input, Attributes: q.Run.Attributes,
		Cron: q.Cron, Calendars: convert(q.Calendars, func(c schedule.Calendar) Calendar { return Calendar(c) }),
		Zone: q.Zone, Start: q.Start, End: q.End, Limit: q.Limit, Jitter: time.Duration(q.Jitter),
		CatchUp: time.Duration(q.CatchUp), Overlap: Overlap(q.Overlap),
		ScheduleState: ScheduleState{Revision: q.Revision, Created: q.Created, Changed: q.Changed, Finished: q.Finished,
			Started: q.Started, Missed: q.Missed, Skipped: q.Skipped, Buffered: convert(q.Buffered, at),
			Next: convert(q.Next, at), Problem: q.Problem,
			Runs: convert(q.Runs, func(r query.ScheduleRun) ScheduleRun {
				return ScheduleRun{Instance: r.Instance, At: r.At, StartedAt: r.StartedAt, Reason: r.Reason,
					Status: r.Status}
			})}}
}

// All iterates over all schedules, by id. An error ends the loop.
func (s Schedules) All(ctx context.Context) iter.Seq2[Schedule, error] {
	return paged(func(cursor string) ([]Schedule, string, error) {
		list, err := s.all().List(ctx, "", history.Page{Limit: pageSize, Cursor: cursor})
		return convert(list.Schedules, scheduleOf), list.Next, err
	})
}

// Get returns the schedule of an id, with its last runs, or [ErrNoSchedule].
func (s Schedules) Get(ctx context.Context, id string) (Schedule, error) {
	x, err := s.all().Get(ctx, id)
	return scheduleOf(x), err
}

// Pause lets a schedule start nothing until it is resumed. Instances that it has started go on. The
// note says why; it may be empty.
func (s Schedules) Pause(ctx context.Context, id, note string) error {
	return s.change(ctx, id, query.ScheduleChange{Pause: true, Note: note})
}

// Resume resumes a paused schedule. It starts nothing for the times that have passed.
func (s Schedules) Resume(ctx context.Context, id string) error {
	return s.change(ctx, id, query.ScheduleChange{Resume: true})
}

// Trigger starts a run now, also of a paused schedule. An empty overlap is that of the schedule.
func (s Schedules) Trigger(ctx context.Context, id string, overlap Overlap) error {
	return s.change(ctx, id, query.ScheduleChange{Trigger: true, Overlap: schedule.Overlap(overlap)})
}

// Backfill starts the runs of a time that has passed, from one moment to before another. A run
// whose instance exists is not started again. An empty overlap is that of the schedule.
func (s Schedules) Backfill(ctx context.Context, id string, from, to time.Time, overlap Overlap) error {
	return s.change(ctx, id, query.ScheduleChange{Backfill: &query.Backfill{From: from, To: to},
		Overlap: schedule.Overlap(overlap)})
}

func (s Schedules) change(ctx context.Context, id string, change query.ScheduleChange) error {
	_, err := s.all().Change(ctx, id, change)
	return err
}

// Delete deletes a schedule, or returns [ErrNoSchedule]. Instances that it has started go on.
func (s Schedules) Delete(ctx context.Context, id string) error {
	return s.all().Drop(ctx, id)
}
