package broker

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// Schedules let the broker publish messages again and again.
type Schedules interface {
	// PutSchedule stores a schedule, in place of what there is of its id, and lets it go on from
	// now, or stops it if it is paused. What the broker does not understand is a [*Refused], and
	// changes nothing.
	PutSchedule(ctx context.Context, s Schedule) error
	// Schedules lists all, by id.
	Schedules(ctx context.Context) ([]Schedule, error)
	// DropSchedule removes one, and tells whether there was one.
	DropSchedule(ctx context.Context, id string) (found bool, err error)
	// HealSchedules publishes again what the broker has lost of schedules, and tells of how many.
	HealSchedules(ctx context.Context) (int, error)
}

// Schedule says when a message is published.
type Schedule struct {
	ID string `json:"id"`
	// Pattern is six fields of cron, beginning with seconds, or one of @every, @hourly, @daily,
	// @weekly, @monthly and @yearly. Zone is the time zone for it, "" for UTC.
	Pattern string `json:"pattern"`
	Zone    string `json:"zone,omitempty"`
	// Paused says that nothing is published now.
	Paused bool `json:"paused,omitempty"`
	// Message is what is published. It needs no id: each time it is another one.
	Message events.Wire `json:"message"`
	// Changed is when it was stored.
	Changed time.Time `json:"changed"`
}
