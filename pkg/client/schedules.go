package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
)

// Schedule starts an orchestration again and again. The broker does it, so that nothing has to run
// for it.
type Schedule struct {
	ID string `json:"id"`
	// Orchestration is what is started, Version which one of it, Input with what: it is taken as it
	// is.
	Orchestration string            `json:"orchestration"`
	Version       string            `json:"version,omitempty"`
	Input         events.Payload    `json:"input,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	// Cron says when: five fields (minute, hour, day of the month, month, day of the week), or six
	// with seconds before them (which are left out again when they say 0), or one of @hourly,
	// @daily, @weekly, @monthly, @yearly, and @every with a duration. Zone is the time zone for it,
	// such as Europe/Berlin; "" is UTC.
	Cron string `json:"cron"`
	Zone string `json:"zone,omitempty"`
	// Overlap says what happens when it is time and what was started before has not ended.
	Overlap Overlap `json:"overlap,omitempty"`
	Paused  bool    `json:"paused,omitempty"`

	// Changed is when it was stored, Next are the next times; both are told, and need not be given.
	// There are none for @every, which is counted from when the broker last started.
	Changed time.Time   `json:"changed,omitzero"`
	Next    []time.Time `json:"next,omitempty"`
}

// Overlap says what a schedule does while what it has started before is running.
type Overlap string

// The choices.
const (
	// OverlapSkip starts nothing then. The instance has the id of the schedule.
	OverlapSkip Overlap = "skip"
	// OverlapReplace terminates what is running, and starts it afresh. The instance has the id of
	// the schedule.
	OverlapReplace Overlap = "replace"
	// OverlapEach starts an instance of its own each time, with an id as [query.EachInstance] makes
	// it.
	OverlapEach Overlap = "each"
)

const (
	// maxScheduleInput bounds the input of a schedule: it is stored twice.
	maxScheduleInput = 512 << 10
	// nextTimes is how many are told.
	nextTimes = 5
)

// ErrNoSchedule says that there is no schedule of an id.
var ErrNoSchedule = errors.New("there is no such schedule")

// cronFields reads what the broker reads. What it does not understand, the broker refuses.
var cronFields = cron.NewParser(
	cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

func (c *Client) scheduler() (broker.Schedules, error) {
	s, ok := c.broker.(broker.Schedules)
	if !ok {
		return nil, errors.New("this broker keeps no schedules")
	}
	return s, nil
}

// PutSchedule stores a schedule, in place of what there is of its id. The next start is counted
// from now.
func (c *Client) PutSchedule(ctx context.Context, s Schedule) error {
	b, err := c.scheduler()
	if err != nil {
		return err
	}
	x, err := c.stored(s)
	if err != nil {
		return fmt.Errorf("schedule %q: %w", s.ID, err)
	}
	return explainSchedule(s, b.PutSchedule(ctx, x))
}

// stored checks a schedule and makes what the broker keeps of it.
func (c *Client) stored(s Schedule) (broker.Schedule, error) {
	pattern, _, err := parseCron(s.Cron, s.Zone)
	start := &events.Start{Orchestration: s.Orchestration, Version: s.Version, Input: events.Canonical(s.Input),
		Attributes: s.Attributes}
	errs := []error{events.CheckChosenInstance(s.ID), events.CheckName("orchestration", s.Orchestration),
		events.CheckAttributes(s.Attributes), err}
	switch s.Overlap {
	case OverlapSkip, "":
		start.Conflict = events.RestartFinished
	case OverlapReplace:
		start.Conflict = events.ReplaceRunning
	case OverlapEach:
		errs = append(errs, events.CheckInstance(query.EachInstance(s.ID, time.Unix(0, 0))))
	default:
		errs = append(errs, fmt.Errorf("overlap %q is none of %s, %s and %s", s.Overlap, OverlapSkip,
			OverlapReplace, OverlapEach))
	}
	if len(s.Input) > maxScheduleInput {
		errs = append(errs, events.Limit("input of a schedule (bytes)", int64(len(s.Input)), maxScheduleInput,
			"keep the data in a store and pass a reference to it"))
	}
	if err := errors.Join(errs...); err != nil {
		return broker.Schedule{}, err
	}
	w, err := c.encode(events.Message{Instance: s.ID, Content: start})
	if err != nil {
		return broker.Schedule{}, err
	}
	if s.Overlap == OverlapEach {
		w.Header[query.HeaderEach] = []string{"true"}
	}
	return broker.Schedule{ID: s.ID, Pattern: pattern, Zone: s.Zone, Paused: s.Paused, Message: w,
		Changed: events.Instant(c.o.Now())}, nil
}

// parseCron makes the pattern that the broker takes, and finds out when it is time; nil for @every.
func parseCron(pattern, zone string) (string, func(time.Time) time.Time, error) {
	pattern = strings.Join(strings.Fields(pattern), " ")
	if every, ok := strings.CutPrefix(pattern, "@every "); ok {
		d, err := time.ParseDuration(every)
		switch {
		case err != nil || d < time.Second || d%time.Second != 0:
			return "", nil, fmt.Errorf("cron %q: want whole seconds, one at least, like @every 90s or @every 1h",
				pattern)
		case zone != "":
			return "", nil, fmt.Errorf("cron %q: it is the same in every time zone; leave out %s", pattern, zone)
		}
		return pattern, nil, nil
	}
	if len(strings.Fields(pattern)) == 5 {
		pattern = "0 " + pattern
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return "", nil, fmt.Errorf("time zone %q is not known; write it like Europe/Berlin, or leave it out for UTC",
			zone)
	}
	s, err := cronFields.Parse(pattern)
	if err != nil || strings.Contains(pattern, "TZ=") {
		return "", nil, fmt.Errorf(
			"cron %q: %v; write it like 30 6 * * MON-FRI (at 6:30 on weekdays), */10 * * * * * (each ten seconds), "+
				"@daily or @every 1h", pattern, err)
	}
	return pattern, func(t time.Time) time.Time { return s.Next(t.In(location)) }, nil
}

// withoutSeconds writes a pattern as people do: with seconds only if they say something.
func withoutSeconds(pattern string) string {
	if f := strings.Fields(pattern); len(f) == 6 && f[0] == "0" {
		return strings.Join(f[1:], " ")
	}
	return pattern
}

// explainSchedule says what a broker that refuses a schedule may mean.
func explainSchedule(s Schedule, err error) error {
	var refused *broker.Refused
	if errors.As(err, &refused) {
		return fmt.Errorf("schedule %q: the broker does not take cron %q in time zone %q: %w", s.ID,
			s.Cron, s.Zone, err)
	}
	return err
}

// Schedules lists all schedules, by id.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	b, err := c.scheduler()
	if err != nil {
		return nil, err
	}
	list, err := b.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Schedule, 0, len(list))
	for _, x := range list {
		s, err := c.scheduleOf(x)
		if err != nil {
			return nil, fmt.Errorf("schedule %q: %w", x.ID, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// scheduleOf reads what the broker keeps.
func (c *Client) scheduleOf(x broker.Schedule) (Schedule, error) {
	m, err := events.Decode(c.broker.Prefix(), x.Message.Subject, x.Message.Header, x.Message.Body, "")
	if err != nil {
		return Schedule{}, err
	}
	start, ok := m.Content.(*events.Start)
	if !ok {
		return Schedule{}, fmt.Errorf("it sends a message that says %s, and starts nothing", m.Content.Verb())
	}
	s := Schedule{
		ID: x.ID, Orchestration: start.Orchestration, Version: start.Version, Input: start.Input,
		Attributes: start.Attributes,
		Cron:       withoutSeconds(x.Pattern), Zone: x.Zone, Paused: x.Paused, Changed: x.Changed, Overlap: OverlapSkip,
	}
	switch {
	case len(x.Message.Header[query.HeaderEach]) > 0:
		s.Overlap = OverlapEach
	case start.Conflict == events.ReplaceRunning:
		s.Overlap = OverlapReplace
	}
	_, next, err := parseCron(x.Pattern, x.Zone)
	if err != nil || next == nil || x.Paused {
		return s, nil // the broker understands it, or it could not be stored
	}
	for t := c.o.Now(); len(s.Next) < nextTimes; {
		if t = next(t); t.IsZero() { // such as the 30th of February
			break
		}
		s.Next = append(s.Next, t.UTC())
	}
	return s, nil
}

// Schedule gives the schedule of an id, or [ErrNoSchedule].
func (c *Client) Schedule(ctx context.Context, id string) (Schedule, error) {
	all, err := c.Schedules(ctx)
	if err != nil {
		return Schedule{}, err
	}
	for _, s := range all {
		if s.ID == id {
			return s, nil
		}
	}
	return Schedule{}, fmt.Errorf("schedule %q: %w", id, ErrNoSchedule)
}

// PauseSchedule lets a schedule start nothing until it is resumed. What it has started goes on.
func (c *Client) PauseSchedule(ctx context.Context, id string) error { return c.pause(ctx, id, true) }

// ResumeSchedule lets a paused schedule go on. What would have been started meanwhile is not.
func (c *Client) ResumeSchedule(ctx context.Context, id string) error { return c.pause(ctx, id, false) }

func (c *Client) pause(ctx context.Context, id string, paused bool) error {
	s, err := c.Schedule(ctx, id)
	if err != nil || s.Paused == paused {
		return err
	}
	s.Paused = paused
	return c.PutSchedule(ctx, s)
}

// DropSchedule removes a schedule. What it has started goes on.
func (c *Client) DropSchedule(ctx context.Context, id string) error {
	b, err := c.scheduler()
	if err != nil {
		return err
	}
	found, err := b.DropSchedule(ctx, id)
	if err == nil && !found {
		return fmt.Errorf("schedule %q: %w", id, ErrNoSchedule)
	}
	return err
}

// EnsureSchedules publishes again what the broker has lost of schedules, and tells of how many. The
// orchestrators do it when they start.
func (c *Client) EnsureSchedules(ctx context.Context) (int, error) {
	b, err := c.scheduler()
	if err != nil {
		return 0, err
	}
	return b.HealSchedules(ctx)
}
