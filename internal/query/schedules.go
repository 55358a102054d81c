package query

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/history"
)

// The methods about schedules.
const (
	MethodSchedules      = "schedules"
	MethodSchedule       = "schedule"
	MethodPutSchedule    = "put-schedule"
	MethodChangeSchedule = "change-schedule"
	MethodDropSchedule   = "drop-schedule"
)

// MaxScheduleInput bounds the input of a schedule: each change of its state writes it, too.
const MaxScheduleInput = 512 << 10

// MaxScheduleNote bounds the note about a pause.
const MaxScheduleNote = 1 << 10

// Schedules stores and changes schedules.
type Schedules interface {
	// List returns a page of schedules, by id. They have no Runs.
	List(ctx context.Context, prefix string, page history.Page) (ScheduleList, error)
	// Get returns a schedule, or [ErrNoSchedule].
	Get(ctx context.Context, id string) (Schedule, error)
	// Put stores a schedule, unless it is stored already.
	Put(ctx context.Context, p PutSchedule) (PutResult, error)
	// Change pauses or resumes a schedule, or has it start runs now.
	Change(ctx context.Context, id string, change ScheduleChange) (Schedule, error)
	// Drop deletes a schedule, or returns [ErrNoSchedule].
	Drop(ctx context.Context, id string) error
}

var (
	// ErrNoSchedule says that there is no schedule of an id.
	ErrNoSchedule = errors.New("there is no such schedule")
	// ErrScheduleChanged says that a schedule has another revision than the caller expects.
	ErrScheduleChanged = errors.New("the schedule was changed meanwhile")
)

// Schedule is a schedule as JSON.
type Schedule struct {
	ID string `json:"id"`
	// Run is what each run starts.
	Run Start `json:"run"`
	schedule.Spec
	Paused bool   `json:"paused,omitempty"`
	Note   string `json:"note,omitempty"`

	// Revision counts the changes of the definition.
	Revision int64     `json:"revision,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	Changed  time.Time `json:"changed,omitzero"`
	// Finished says that it starts nothing any more.
	Finished bool `json:"finished,omitempty"`
	// Started, Missed and Skipped count its occurrences.
	Started int64 `json:"started,omitempty"`
	Missed  int64 `json:"missed,omitempty"`
	Skipped int64 `json:"skipped,omitempty"`
	// Buffered are the occurrences that wait for the end of a run.
	Buffered []schedule.Occurrence `json:"buffered,omitempty"`
	// Next are the next occurrences, Runs the last runs, the newest first.
	Next []schedule.Occurrence `json:"next,omitempty"`
	Runs []ScheduleRun         `json:"runs,omitempty"`
	// Problem says why the schedule cannot be read; it then starts nothing.
	Problem string `json:"problem,omitempty"`
}

// ScheduleRun is a run of a schedule as JSON.
type ScheduleRun struct {
	Instance  string    `json:"instance"`
	Nominal   string    `json:"nominal"`
	At        time.Time `json:"at"`
	StartedAt time.Time `json:"started_at"`
	// Reason says why it was started: schedule, catch-up, trigger or backfill.
	Reason string `json:"reason"`
	// Status is that of its instance; "pending" before there is one, and "deleted" afterwards;
	// "id_in_use" if another start has begun that instance.
	Status string `json:"status"`
}

// ScheduleList is a page of schedules as JSON.
type ScheduleList struct {
	Schedules []Schedule `json:"schedules"`
	Next      string     `json:"next,omitempty"`
}

// PutSchedule is a request to store a schedule.
type PutSchedule struct {
	Schedule Schedule `json:"schedule"`
	// Expected is the revision that it replaces; 0: whatever is there. With New, there must be no
	// schedule of that id.
	Expected int64 `json:"expected,omitempty"`
	New      bool  `json:"new,omitempty"`
	// Unchecked stores it also if no orchestrator has its code, or its input does not fit.
	Unchecked bool `json:"unchecked,omitempty"`
}

// PutResult is the answer to it.
type PutResult struct {
	Schedule Schedule `json:"schedule"`
	// Changed says that it was stored; otherwise, it was there already.
	Changed bool `json:"changed"`
}

// ScheduleChange is a change of a schedule. One of Pause, Resume, Trigger and Backfill is set.
type ScheduleChange struct {
	Pause    bool      `json:"pause,omitempty"`
	Note     string    `json:"note,omitempty"` // with Pause
	Resume   bool      `json:"resume,omitempty"`
	Trigger  bool      `json:"trigger,omitempty"`
	Backfill *Backfill `json:"backfill,omitempty"`
	// Overlap is for the runs of Trigger and Backfill; empty: that of the schedule.
	Overlap schedule.Overlap `json:"overlap,omitempty"`
}

// Backfill starts the runs of a time that has passed: from the first moment, and before the last.
type Backfill struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// scheduleMethods are the methods about schedules.
func (a *answerer) scheduleMethods() map[string]method {
	s := a.o.Schedules
	all := map[string]method{
		MethodSchedules: func(ctx context.Context, q Question) (any, error) {
			return s.List(ctx, q.filter().IDPrefix, q.page())
		},
		MethodSchedule: func(ctx context.Context, q Question) (any, error) { return s.Get(ctx, q.Schedule) },
		MethodPutSchedule: func(ctx context.Context, q Question) (any, error) {
			if q.Put == nil {
				return nil, badQuestion("question for %s: which schedule? It is a JSON object like %s",
					MethodPutSchedule, exampleOf(MethodPutSchedule))
			}
			return s.Put(ctx, *q.Put)
		},
		MethodChangeSchedule: func(ctx context.Context, q Question) (any, error) {
			if q.Change == nil {
				return nil, badQuestion("question for %s: which change? It is a JSON object like %s",
					MethodChangeSchedule, exampleOf(MethodChangeSchedule))
			}
			return s.Change(ctx, q.Schedule, *q.Change)
		},
		MethodDropSchedule: func(ctx context.Context, q Question) (any, error) {
			return struct{}{}, s.Drop(ctx, q.Schedule)
		},
	}
	if a.o.ReadOnly {
		for _, name := range []string{MethodPutSchedule, MethodChangeSchedule, MethodDropSchedule} {
			all[name] = func(context.Context, Question) (any, error) { return nil, ErrReadOnly }
		}
	}
	return all
}

// remoteSchedules has orchestrators answer.
type remoteSchedules struct{ *Reader }

// NewSchedules returns the schedules of a system, by requests to its orchestrators.
func NewSchedules(r *Reader) Schedules { return remoteSchedules{r} }

func (r remoteSchedules) List(ctx context.Context, prefix string, page history.Page) (ScheduleList, error) {
	var a ScheduleList
	err := r.ask(ctx, MethodSchedules, Question{Filter: &Filter{IDPrefix: prefix}, Limit: int64(page.Size()),
		Cursor: page.Cursor}, &a)
	return a, err
}

func (r remoteSchedules) Get(ctx context.Context, id string) (Schedule, error) {
	var a Schedule
	err := r.ask(ctx, MethodSchedule, Question{Schedule: id}, &a)
	return a, err
}

func (r remoteSchedules) Put(ctx context.Context, p PutSchedule) (PutResult, error) {
	var a PutResult
	err := r.ask(ctx, MethodPutSchedule, Question{Put: &p}, &a)
	return a, err
}

func (r remoteSchedules) Change(ctx context.Context, id string, change ScheduleChange) (Schedule, error) {
	var a Schedule
	err := r.ask(ctx, MethodChangeSchedule, Question{Schedule: id, Change: &change}, &a)
	return a, err
}

func (r remoteSchedules) Drop(ctx context.Context, id string) error {
	var a struct{}
	return r.ask(ctx, MethodDropSchedule, Question{Schedule: id}, &a)
}
