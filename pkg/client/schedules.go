package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Schedule starts an orchestration again and again. The broker does it, so that nothing has to run
// for it.
type Schedule struct {
	ID string `json:"id"`
	// Orchestration is the name of the orchestration to start, Version its version, Input its
	// input, unchanged.
	Orchestration string            `json:"orchestration"`
	Version       string            `json:"version,omitempty"`
	Input         codec.Payload     `json:"input,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	// Cron says when: five fields (minute, hour, day of the month, month, day of the week), or six
	// with seconds before them (which are left out again when they say 0), or one of @hourly,
	// @daily, @weekly, @monthly, @yearly, and @every with a duration. Zone is the time zone for it,
	// such as Europe/Berlin; "" is UTC.
	Cron string `json:"cron"`
	Zone string `json:"zone,omitempty"`
	// Overlap decides about the instance of the previous time if it has not ended.
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
	// OverlapReplace terminates a running instance and starts a new one. The instance has the id of
	// the schedule.
	OverlapReplace Overlap = "replace"
	// OverlapEach starts an instance of its own each time. Its id is that of the schedule, "@" and
	// the time, like nightly@2027-01-01T03:00:00Z.
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

// Schedules manages the schedules of a system: see [Client.Schedules]. It is safe for concurrent
// use.
type Schedules struct{ c *Client }

// Schedules returns the part of the client that manages schedules.
func (c *Client) Schedules() Schedules { return Schedules{c} }

func (s Schedules) broker() (broker.Schedules, error) { return s.c.broker.schedules() }

// Put creates a schedule, or replaces the one of its id. The next start is counted from now. Put
// refuses what [Schedule.Check] refuses, and a cron that the broker does not take. It does not
// check whether an orchestrator has the orchestration and its version, nor whether the input fits.
func (s Schedules) Put(ctx context.Context, x Schedule) error {
	b, err := s.broker()
	if err != nil {
		return err
	}
	stored, err := s.c.stored(x)
	if err != nil {
		return err
	}
	return explainSchedule(x, b.PutSchedule(ctx, stored))
}

// Check returns what [Schedules.Put] refuses in a schedule: an invalid id, name, version,
// attribute, cron or overlap, or too large an input. A broker may still refuse a cron.
func (s Schedule) Check() error {
	_, err := s.pattern()
	return err
}

// pattern checks a schedule and returns the pattern that the broker takes.
func (s Schedule) pattern() (string, error) {
	pattern, next, err := parseCron(s.Cron, s.Zone)
	if err == nil && next != nil && next(time.Now()).IsZero() {
		err = fmt.Errorf("cron %q: it has no next time: no such month has that day", s.Cron)
	}
	errs := []error{orchestration.CheckStart(s.Orchestration, nil, time.Time{}, orchestration.ID(s.ID),
		orchestration.Version(s.Version), orchestration.Attributes(s.Attributes)), err}
	switch s.Overlap {
	case OverlapSkip, OverlapReplace, "":
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
		return "", fmt.Errorf("schedule %q: %w", s.ID, err)
	}
	return pattern, nil
}

// stored checks a schedule and makes what the broker keeps of it.
func (c *Client) stored(s Schedule) (broker.Schedule, error) {
	pattern, err := s.pattern()
	if err != nil {
		return broker.Schedule{}, err
	}
	start := &events.Start{Orchestration: s.Orchestration, Version: s.Version, Input: codec.Canonical(s.Input),
		Attributes: s.Attributes}
	switch s.Overlap {
	case OverlapReplace:
		start.Conflict = events.ReplaceRunning
	case OverlapEach:
	default:
		start.Conflict = events.RestartFinished
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
	written := pattern
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
			"cron %q: %s; write it like 30 6 * * MON-FRI (at 6:30 on weekdays), */10 * * * * * (each ten seconds), "+
				"@daily or @every 1h", written, explainCron(written))
	}
	return pattern, func(t time.Time) time.Time { return s.Next(t.In(location)) }, nil
}

// cronField is a field of a cron, with its values.
type cronField struct{ name, values string }

// cronOrder are the fields in their order. The first may be left out.
var cronOrder = []cronField{{"second", "0 to 59"}, {"minute", "0 to 59"}, {"hour", "0 to 23"},
	{"day of the month", "1 to 31"}, {"month", "1 to 12 or JAN to DEC"}, {"day of the week", "0 to 6 or SUN to SAT"}}

// explainCron tells why a cron cannot be parsed.
func explainCron(written string) string {
	fields := strings.Fields(written)
	switch {
	case strings.Contains(written, "TZ="):
		return "the time zone has a setting of its own"
	case strings.HasPrefix(written, "@"):
		return fmt.Sprintf("there is no %s; there are @hourly, @daily, @weekly, @monthly, @yearly and @every",
			fields[0])
	case len(fields) != 5 && len(fields) != 6:
		return fmt.Sprintf("want 5 fields, or 6 with seconds; it has %d", len(fields))
	}
	order := cronOrder[6-len(fields):]
	for i, f := range fields {
		alone := slices.Repeat([]string{"*"}, 6)
		alone[6-len(fields)+i] = f
		if _, err := cronFields.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("%s %q: want %s, as a number, a list, a range or a step", order[i].name, f,
				order[i].values)
		}
	}
	return "invalid"
}

// withoutSeconds writes a pattern in the usual five fields, unless its seconds matter.
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

// All iterates over all schedules, by id. An error ends the loop.
func (s Schedules) All(ctx context.Context) iter.Seq2[Schedule, error] {
	return func(yield func(Schedule, error) bool) {
		list, err := s.list(ctx)
		if err != nil {
			yield(Schedule{}, err)
			return
		}
		for _, x := range list {
			out, err := s.c.scheduleOf(x)
			if err != nil {
				err = fmt.Errorf("schedule %q: %w", x.ID, err)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

func (s Schedules) list(ctx context.Context) ([]broker.Schedule, error) {
	b, err := s.broker()
	if err != nil {
		return nil, err
	}
	return b.Schedules(ctx)
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
		//lint:ignore nilerr the broker understands the pattern, or it could not be stored
		return s, nil
	}
	for t := c.o.Now(); len(s.Next) < nextTimes; {
		if t = next(t); t.IsZero() { // such as the 30th of February
			break
		}
		s.Next = append(s.Next, t.UTC())
	}
	return s, nil
}

// Get returns the schedule of an id, or [ErrNoSchedule].
func (s Schedules) Get(ctx context.Context, id string) (Schedule, error) {
	for x, err := range s.All(ctx) {
		if err != nil || x.ID == id {
			return x, err
		}
	}
	return Schedule{}, fmt.Errorf("schedule %q: %w", id, ErrNoSchedule)
}

// Pause lets a schedule start nothing until it is resumed. Instances that it has started go on.
func (s Schedules) Pause(ctx context.Context, id string) error { return s.pause(ctx, id, true) }

// Resume resumes a paused schedule. It starts nothing for the times that have passed.
func (s Schedules) Resume(ctx context.Context, id string) error { return s.pause(ctx, id, false) }

func (s Schedules) pause(ctx context.Context, id string, paused bool) error {
	x, err := s.Get(ctx, id)
	if err != nil || x.Paused == paused {
		return err
	}
	x.Paused = paused
	return s.Put(ctx, x)
}

// Delete deletes a schedule, or returns [ErrNoSchedule]. Instances that it has started go on.
func (s Schedules) Delete(ctx context.Context, id string) error {
	b, err := s.broker()
	if err != nil {
		return err
	}
	found, err := b.DropSchedule(ctx, id)
	if err == nil && !found {
		return fmt.Errorf("schedule %q: %w", id, ErrNoSchedule)
	}
	return err
}

// Ensure publishes again the schedules that the broker has lost, and returns how many. The
// orchestrators do so when they start.
func (s Schedules) Ensure(ctx context.Context) (int, error) {
	b, err := s.broker()
	if err != nil {
		return 0, err
	}
	return b.HealSchedules(ctx)
}
