package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/x/plural"
	"github.com/rondo-run/rondo/pkg/events"
)

// Spec says when a schedule starts an instance, and which starts it leaves out.
type Spec struct {
	// Cron has five fields (minute, hour, day of the month, month, day of the week) or six with
	// seconds before them; or it is one of @hourly, @daily, @weekly, @monthly and @yearly, or
	// @every with a duration of whole seconds. If both days are restricted, either has to match.
	Cron string `json:"cron,omitempty"`
	// Calendars are the alternative to Cron. One of them has to match.
	Calendars []Calendar `json:"calendars,omitempty"`
	// Zone is the IANA name of the time zone. Default: UTC.
	Zone string `json:"zone,omitempty"`
	// Start and End bound the occurrences: none is before Start, and none is at End or later.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Limit bounds how many runs the schedule starts. Default: no limit.
	Limit int `json:"limit,omitempty"`
	// Jitter bounds the delay of a start. The delay follows from the ids of the schedule and of the
	// occurrence. Maximum: 24 h.
	Jitter events.Duration `json:"jitter,omitempty"`
	// CatchUp bounds how late a run may start, counted from the end of the jitter. An occurrence
	// that is found later is missed. Default: 24 h. Minimum: 10 s.
	CatchUp events.Duration `json:"catch_up,omitempty"`
	// Overlap is the policy for an occurrence while a run has not ended. Default: [Skip].
	Overlap Overlap `json:"overlap,omitempty"`
}

// Calendar matches local times. Each field has the syntax of a field of cron, such as "*", "1-5",
// "*/15", "MON-FRI" or "1,15". All fields have to match.
type Calendar struct {
	// Second, Minute and Hour default to 0.
	Second string `json:"second,omitempty"`
	Minute string `json:"minute,omitempty"`
	Hour   string `json:"hour,omitempty"`
	// Day, Month, Weekday and Year default to *. A year is from 2000 to 2199.
	Day     string `json:"day,omitempty"`
	Month   string `json:"month,omitempty"`
	Weekday string `json:"weekday,omitempty"`
	Year    string `json:"year,omitempty"`
}

// Overlap is a policy for occurrences that come due while a run has not ended.
type Overlap string

// The policies.
const (
	// Skip starts nothing.
	Skip Overlap = "skip"
	// BufferOne keeps one occurrence until the run has ended, and skips further ones.
	BufferOne Overlap = "buffer_one"
	// BufferAll keeps the occurrences, and starts one after the other.
	BufferAll Overlap = "buffer_all"
	// Allow starts a run beside the others.
	Allow Overlap = "allow"
	// CancelOther cancels the runs, and keeps the newest occurrence until they have ended.
	CancelOther Overlap = "cancel_other"
	// TerminateOther terminates the runs, and starts the next one at once.
	TerminateOther Overlap = "terminate_other"
)

var overlaps = []Overlap{Skip, BufferOne, BufferAll, Allow, CancelOther, TerminateOther}

// The limits of a specification.
const (
	// DefaultCatchUp is the default of [Spec.CatchUp].
	DefaultCatchUp = 24 * time.Hour
	minCatchUp     = 10 * time.Second
	maxJitter      = 24 * time.Hour
	maxCalendars   = 100
	maxPattern     = 1 << 10 // bytes of a cron, and of a field of a calendar
	firstYear      = 2000
	lastYear       = 2199
)

// Check returns the first error of a policy: an unknown name. "" stands for a default.
func (o Overlap) Check() error {
	if o == "" || slices.Contains(overlaps, o) {
		return nil
	}
	names := make([]string, 0, len(overlaps))
	for _, x := range overlaps {
		names = append(names, string(x))
	}
	return fmt.Errorf("overlap %q is unknown; choose one of %s", string(o), strings.Join(names, ", "))
}

// Check returns all errors of the specification of a schedule with this id. Each says how to write
// it instead.
func (s Spec) Check(id string) error {
	errs := []error{checkID(id)}
	p, err := s.compile(time.Unix(0, 0))
	errs = append(errs, err, s.Overlap.Check())
	if s.Limit < 0 {
		errs = append(errs, fmt.Errorf("limit %d: want 1 or more, or leave it out", s.Limit))
	}
	if j := time.Duration(s.Jitter); j < 0 || j > maxJitter {
		errs = append(errs, fmt.Errorf("jitter %s: want a duration from 0s to 24h", j))
	}
	if c := time.Duration(s.CatchUp); c != 0 && (c < minCatchUp || c > events.MaxDelay) {
		errs = append(errs, fmt.Errorf("catch_up %s: want at least 10s, such as 1h, or leave it out for 24h", c))
	}
	bounded := !s.Start.IsZero() && !s.End.IsZero()
	switch {
	case bounded && !s.Start.Before(s.End):
		errs = append(errs, fmt.Errorf("start %s is not before end %s; write an earlier start or a later end",
			s.Start.Format(time.RFC3339), s.End.Format(time.RFC3339)))
	case err == nil:
		if _, ok := p.next(Occurrence{}); !ok {
			errs = append(errs, s.never())
			break
		}
		for i := range s.Calendars { // each look would search it up to the last year
			alone := pattern{fields: p.fields[i : i+1], zone: p.zone, utc: p.utc}
			if _, ok := alone.next(Occurrence{}); !ok {
				errs = append(errs, fmt.Errorf("calendar %d: no day of the years 2000 to 2199 matches; leave it out",
					i+1))
			}
		}
	}
	return errors.Join(append(errs, s.checkSizes())...)
}

// checkSizes bounds the texts of a specification: each change of the state writes them, too.
func (s Spec) checkSizes() error {
	var errs []error
	check := func(what, text string) {
		if len(text) > maxPattern {
			errs = append(errs, events.Limit(what+" (bytes)", int64(len(text)), maxPattern, "use steps and ranges"))
		}
	}
	check("cron of a schedule", s.Cron)
	for _, c := range s.Calendars {
		for _, text := range []string{c.Second, c.Minute, c.Hour, c.Day, c.Month, c.Weekday, c.Year} {
			check("field of a calendar", text)
		}
	}
	return errors.Join(errs...)
}

// checkID returns the error of an id, with room for the ids of its instances.
func checkID(id string) error {
	if err := events.CheckInstance(id); err != nil {
		return err
	}
	return events.CheckInstance(Instance(id, "2199-12-31T23:59:59+00:00"))
}

// never is the error of a specification without any occurrence.
func (s Spec) never() error {
	switch {
	case !s.Start.IsZero() || !s.End.IsZero():
		return errors.New("it has no time between start and end, up to the year 2199; move start or end")
	case s.Cron != "":
		return fmt.Errorf("cron %q: it has no next time: no such month has that day", s.Cron)
	}
	return fmt.Errorf("%s: no day of the years 2000 to 2199 matches; leave out a field",
		plural.Count(len(s.Calendars), "calendar"))
}

// Instance returns the id of the instance that a schedule starts for an occurrence.
func Instance(id, nominal string) string { return id + "@" + nominal }

// Next returns the first occurrence after a moment; false if there is none until the year 2199, or
// if the specification has an error. The anchor is the moment from which @every counts if the
// specification has no start: [State.Created].
func (s Spec) Next(after, anchor time.Time) (Occurrence, bool) {
	return s.NextAfter(Occurrence{At: after}, anchor)
}

// NextAfter returns the occurrence that follows another one: its moment may be the same, as with
// several local times that the clocks leave out. An occurrence without a nominal time stands for
// all of its moment.
func (s Spec) NextAfter(o Occurrence, anchor time.Time) (Occurrence, bool) {
	p, err := s.compile(anchor)
	if err != nil {
		return Occurrence{}, false
	}
	return p.next(o)
}

// normal returns the specification with its defaults, and written in one way.
func (s Spec) normal() Spec {
	s.Cron = strings.Join(strings.Fields(s.Cron), " ")
	s.Calendars = slices.Clone(s.Calendars)
	if s.CatchUp == 0 {
		s.CatchUp = events.Duration(DefaultCatchUp)
	}
	if s.Overlap == "" {
		s.Overlap = Skip
	}
	s.Start, s.End = bare(s.Start), bare(s.End)
	return s
}

// equal tells whether two specifications mean the same.
func (s Spec) equal(o Spec) bool {
	s, o = s.normal(), o.normal()
	if !s.Start.Equal(o.Start) || !s.End.Equal(o.End) || !slices.Equal(s.Calendars, o.Calendars) {
		return false
	}
	return s.Cron == o.Cron && s.Zone == o.Zone && s.Limit == o.Limit && s.Jitter == o.Jitter &&
		s.CatchUp == o.CatchUp && s.Overlap == o.Overlap
}

// bare returns a time as JSON keeps it: in UTC.
func bare(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}
