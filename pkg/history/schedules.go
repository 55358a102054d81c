package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Schedules is what starts orchestrations regularly. The store does not interpret a schedule.
type Schedules interface {
	// ChangeSchedule stores a schedule in place of the one with its id, or removes that. The same
	// transaction stores the messages of the runs that the schedule starts, as outbox entries, and
	// the method returns their keys. It reports false and changes nothing if the stored version is
	// not the expected one.
	//
	// If the outcome of the commit is unknown, the store finds it out. If the schedule was changed
	// again by then, it may not be able to, and the error is of class [Ambiguous]. A deletion
	// without messages counts as done if the schedule of that version is gone.
	ChangeSchedule(ctx context.Context, change ScheduleChange) (entries []OutboxKey, ok bool, err error)
	// Schedule returns one; false if there is none.
	Schedule(ctx context.Context, id string) (Schedule, bool, error)
	// ListSchedules returns a page, in the order of the bytes of the ids. Pages are stable, as
	// those of [Reader.List] are.
	ListSchedules(ctx context.Context, filter ScheduleFilter, page Page) (ScheduleList, error)
	// DueSchedules returns schedules that have to be looked at before a moment, the earliest first.
	// Limits are those of [Page]. It returns fewer if their data has many megabytes, and at least
	// one. It changes nothing, so it returns them again until they are changed.
	//
	// A schedule that another process has stored may be missing if it should have been looked at
	// [ScheduleSlack] before. One of the next [ScheduleLooks] calls of each store returns it.
	DueSchedules(ctx context.Context, before time.Time, limit int) ([]Schedule, error)
}

// Schedule is a stored schedule.
type Schedule struct {
	ID string
	// Version tells the states of a schedule apart. The first one is a random number, so that a
	// schedule that is created again repeats no version of the deleted one. Each change adds 1.
	Version int64
	// WakeAt is when the schedule has to be looked at; zero: never.
	WakeAt time.Time
	// ChangedAt is the time of the last change, by the clock of the process that has made it.
	ChangedAt time.Time
	// Data is opaque to the store.
	Data []byte
}

// ScheduleChange is a change of one schedule. Times are stored in microseconds.
type ScheduleChange struct {
	// Schedule is the new state, without its version.
	Schedule
	// Expected is the version of the stored schedule; 0: there is none.
	Expected int64
	// Delete removes the schedule. Of the new state, the id counts alone.
	Delete bool
	// Messages are stored in the outbox together with the change.
	Messages []events.Wire
}

// MaxScheduleData is the largest data of a schedule, in bytes.
const MaxScheduleData = 1 << 20

// ErrScheduleTooLarge says that the data of a schedule is larger than [MaxScheduleData].
var ErrScheduleTooLarge = errors.New("the schedule is too large")

// The bounds of what [Schedules.DueSchedules] may not find at once. On CockroachDB, a search walks
// over all times at which schedules were to be looked at in the last hours. So a store begins where
// it has found nothing before, less ScheduleSlack, and from the start every ScheduleLooks calls.
const (
	ScheduleSlack = 10 * time.Minute
	ScheduleLooks = 16
)

// Check validates a change: such mistakes are the caller's.
func (c ScheduleChange) Check() error {
	switch {
	case c.ID == "":
		return errors.New("history: a change of a schedule without an id")
	case events.CheckInstance(c.ID) != nil:
		return fmt.Errorf("history: the id of a schedule: %w", events.CheckInstance(c.ID))
	case c.Expected < 0:
		return fmt.Errorf("history: schedule %q: there is no version %d", c.ID, c.Expected)
	case c.Delete && c.Expected == 0:
		return fmt.Errorf("history: schedule %q: a deletion without an expected version", c.ID)
	case len(c.Data) > MaxScheduleData:
		return fmt.Errorf("history: schedule %q: %w: %d bytes, the limit is %d", c.ID, ErrScheduleTooLarge,
			len(c.Data), MaxScheduleData)
	}
	return nil
}

// ScheduleFilter says which schedules are meant.
type ScheduleFilter struct {
	// IDPrefix begins their ids.
	IDPrefix string
}

// ScheduleList is a page of schedules.
type ScheduleList struct {
	Schedules []Schedule
	// Next is the cursor of the next page, "" if there is none.
	Next string
}
