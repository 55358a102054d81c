package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rondo-run/rondo/pkg/events"
)

// fields are the local times that a cron or a calendar matches, as sets of bits.
type fields struct {
	second, minute, hour, day, month, weekday uint64
	// either says that one of the days is enough.
	either bool
	// years are the years from 2000 on; nil matches all of them.
	years []bool
}

// everyHour tells whether the pattern matches in each hour of a day. Then it follows real time.
func (f fields) everyHour() bool { return f.hour&(1<<24-1) == 1<<24-1 }

// parser reads the fields. The package does the rest itself: time zones and @every.
var parser = cron.NewParser(
	cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// fieldSyntax is stricter than the parser, which accepts "1,,2", "," and "*-5".
var fieldSyntax = regexp.MustCompile(
	`^([*?]|\w+(-\w+)?)(/\d+)?(,([*?]|\w+(-\w+)?)(/\d+)?)*$`)

// cronField is a field of a cron, with its values.
type cronField struct{ name, values string }

// order are the fields of a cron in their order. The first may be left out.
var order = []cronField{{"second", "0 to 59"}, {"minute", "0 to 59"}, {"hour", "0 to 23"},
	{"day of the month", "1 to 31"}, {"month", "1 to 12 or JAN to DEC"}, {"day of the week", "0 to 6 or SUN to SAT"}}

// compile reads a specification. The anchor is for @every.
func (s Spec) compile(anchor time.Time) (*pattern, error) {
	p := &pattern{start: bare(s.Start), end: bare(s.End), zone: time.UTC}
	pattern := strings.Join(strings.Fields(s.Cron), " ")
	every := strings.HasPrefix(pattern, "@every ")
	var errs []error
	switch {
	case pattern != "" && len(s.Calendars) > 0:
		errs = append(errs, errors.New("cron and calendars are mutually exclusive; leave out one of them"))
	case pattern == "" && len(s.Calendars) == 0:
		errs = append(errs, errors.New("it has no time; give it a cron like 30 6 * * MON-FRI, or calendars"))
	case len(s.Calendars) > maxCalendars:
		errs = append(errs, events.Limit("calendars of a schedule", int64(len(s.Calendars)), maxCalendars,
			"use another schedule for the rest"))
	case every:
		errs = append(errs, p.parseEvery(pattern, s.Zone, anchor))
	case pattern != "":
		f, err := parseCron(pattern)
		p.fields = []fields{f}
		errs = append(errs, err)
	}
	for i, c := range s.Calendars {
		f, err := c.parse()
		if err != nil {
			err = fmt.Errorf("calendar %d: %w", i+1, err)
		}
		p.fields = append(p.fields, f)
		errs = append(errs, err)
	}
	if !every {
		errs = append(errs, p.findZone(s.Zone))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// findZone loads the time zone.
func (p *pattern) findZone(name string) error {
	switch name {
	case "", "UTC", "Etc/UTC":
		p.utc = true
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return fmt.Errorf("time zone %q is not known; write it like Europe/Berlin, or leave it out for UTC", name)
	}
	p.zone = zone
	return nil
}

// parseEvery reads @every. It counts whole seconds from the start, or from the anchor.
func (p *pattern) parseEvery(pattern, zone string, anchor time.Time) error {
	d, err := time.ParseDuration(strings.TrimPrefix(pattern, "@every "))
	switch {
	case err != nil || d < time.Second || d%time.Second != 0:
		return fmt.Errorf("cron %q: want whole seconds, one at least, like @every 90s or @every 1h", pattern)
	case d > events.MaxDelay:
		return fmt.Errorf("cron %q: want at most 100 years, like @every 24h", pattern)
	case zone != "":
		return fmt.Errorf("cron %q: it is the same in every time zone; leave out %s", pattern, zone)
	}
	p.utc, p.every, p.anchor = true, int64(d/time.Second), anchor.Unix()
	if !p.start.IsZero() {
		p.anchor = ceil(p.start)
	}
	return nil
}

// parseCron reads a cron with five or six fields, or a name for one.
func parseCron(pattern string) (fields, error) {
	six := strings.Fields(pattern)
	if len(six) == 5 {
		six = append([]string{"0"}, six...)
	}
	parsed, err := parser.Parse(strings.Join(six, " "))
	s, ok := parsed.(*cron.SpecSchedule)
	plain := strings.HasPrefix(pattern, "@") || !slices.ContainsFunc(six, func(f string) bool {
		return !fieldSyntax.MatchString(f)
	})
	if err != nil || !ok || !plain || strings.Contains(pattern, "TZ=") {
		return fields{}, fmt.Errorf(
			"cron %q: %s; write it like 30 6 * * MON-FRI (at 6:30 on weekdays), */10 * * * * * (each ten seconds), "+
				"@daily or @every 1h", pattern, explainCron(pattern))
	}
	f := fieldsOf(s)
	if !strings.HasPrefix(pattern, "@") {
		// As cron does it: a field that begins with a star restricts nothing, even with a step.
		f.either = !isStar(six[3]) && !isStar(six[5])
	}
	return f, nil
}

func isStar(field string) bool { return field[0] == '*' || field[0] == '?' }

func fieldsOf(s *cron.SpecSchedule) fields {
	return fields{second: s.Second, minute: s.Minute, hour: s.Hour, day: s.Dom, month: s.Month, weekday: s.Dow}
}

// explainCron tells why a cron cannot be parsed.
func explainCron(written string) string {
	all := strings.Fields(written)
	switch {
	case strings.Contains(written, "TZ="):
		return "the time zone has a setting of its own"
	case strings.HasPrefix(written, "@"):
		return fmt.Sprintf("there is no %s; there are @hourly, @daily, @weekly, @monthly, @yearly and @every",
			all[0])
	case len(all) != 5 && len(all) != 6:
		return fmt.Sprintf("want 5 fields, or 6 with seconds; it has %d", len(all))
	}
	for i, f := range all {
		if _, err := parseField(6-len(all)+i, f); err != nil {
			return err.Error()
		}
	}
	return "invalid"
}

// parseField reads one field of a cron, by its place in the order.
func parseField(place int, text string) (*cron.SpecSchedule, error) {
	alone := slices.Repeat([]string{"*"}, len(order))
	alone[place] = text
	parsed, err := parser.Parse(strings.Join(alone, " "))
	s, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok || !fieldSyntax.MatchString(text) {
		return nil, fmt.Errorf("%s %q: want %s, as a number, a list, a range or a step", order[place].name, text,
			order[place].values)
	}
	return s, nil
}

// parse reads a calendar.
func (c Calendar) parse() (f fields, err error) {
	var errs []error
	read := func(place int, text, absent string) *cron.SpecSchedule {
		if text == "" {
			text = absent
		}
		s, err := parseField(place, text)
		if err != nil {
			errs = append(errs, err)
			return &cron.SpecSchedule{}
		}
		return s
	}
	f.second = read(0, c.Second, "0").Second
	f.minute = read(1, c.Minute, "0").Minute
	f.hour = read(2, c.Hour, "0").Hour
	f.day = read(3, c.Day, "*").Dom
	f.month = read(4, c.Month, "*").Month
	f.weekday = read(5, c.Weekday, "*").Dow
	f.years, err = parseYears(c.Year)
	return f, errors.Join(append(errs, err)...)
}

// parseYears reads the field of years, which cron does not have. It returns nil for all years.
func parseYears(text string) ([]bool, error) {
	if text == "" || text == "*" {
		return nil, nil
	}
	years := make([]bool, lastYear-firstYear+1)
	for part := range strings.SplitSeq(text, ",") {
		first, last, step, ok := parseYearRange(part)
		if !ok {
			return nil, fmt.Errorf("year %q: want 2000 to 2199, as a number, a list, a range or a step", text)
		}
		for y := first; y <= last; y += step {
			years[y-firstYear] = true
		}
	}
	return years, nil
}

func parseYearRange(part string) (first, last, step int, ok bool) {
	span, by, stepped := strings.Cut(part, "/")
	from, to, isRange := strings.Cut(span, "-")
	var errs [3]error
	first, last, step = firstYear, lastYear, 1
	if span != "*" {
		first, errs[0] = strconv.Atoi(from)
		switch {
		case isRange:
			last, errs[1] = strconv.Atoi(to)
		case !stepped:
			last = first
		}
	}
	if stepped {
		step, errs[2] = strconv.Atoi(by)
	}
	ok = errors.Join(errs[:]...) == nil && fieldSyntax.MatchString(part) &&
		firstYear <= first && first <= last && last <= lastYear && 0 < step && step <= lastYear
	return first, last, step, ok
}
