package broker

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Schedules let the broker publish messages again and again.
type Schedules interface {
	// PutSchedule stores a schedule in place of an earlier one with its id. The schedule goes on
	// from now, or stops if it is paused. The error is a [*Refused] if the broker does not
	// understand the schedule; then nothing changes.
	PutSchedule(ctx context.Context, s Schedule) error
	// Schedules lists all schedules, by id.
	Schedules(ctx context.Context) ([]Schedule, error)
	// DropSchedule removes a schedule, and reports whether there was one.
	DropSchedule(ctx context.Context, id string) (found bool, err error)
	// HealSchedules publishes the schedules again that the broker has lost, and returns their
	// number.
	HealSchedules(ctx context.Context) (int, error)
}

// Schedule defines when the broker publishes a message.
type Schedule struct {
	ID string `json:"id"`
	// Pattern is six fields of cron, beginning with seconds, or one of @every, @hourly, @daily,
	// @weekly, @monthly and @yearly. Zone is the time zone for it, "" for UTC.
	Pattern string `json:"pattern"`
	Zone    string `json:"zone,omitempty"`
	// Paused says that the broker publishes nothing now.
	Paused bool `json:"paused,omitempty"`
	// Message is the message to publish. It needs no id: each time it is a new message.
	Message events.Wire `json:"message"`
	// Changed is when it was stored.
	Changed time.Time `json:"changed"`
}
