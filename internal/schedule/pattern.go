package schedule

import (
	"math"
	"math/bits"
	"time"
)

// Occurrence is a time of a schedule.
type Occurrence struct {
	// Nominal is the name of the occurrence within its schedule: the local time that the pattern
	// matches, such as 2027-03-28T02:30:00.
	Nominal string `json:"nominal,omitempty"`
	// At is the moment of the occurrence, without its jitter.
	At time.Time `json:"at"`
}

// covers tells whether an occurrence is o or comes after o. Occurrences are in the order of their
// moments, those of one moment in the order of their names. Without a name, o stands for all of its
// moment.
func (o Occurrence) covers(x Occurrence) bool {
	if c := x.At.Compare(o.At); c != 0 {
		return c < 0
	}
	return o.Nominal == "" || x.Nominal <= o.Nominal
}

// The forms of a nominal time. Milliseconds are only in those of triggers.
const (
	localForm   = "2006-01-02T15:04:05"
	offsetForm  = "2006-01-02T15:04:05-07:00"
	utcForm     = "2006-01-02T15:04:05Z"
	triggerForm = "2006-01-02T15:04:05.000Z"
)

// pattern finds the occurrences of a specification.
//
// It computes with local times as if they were times of UTC, in seconds: a local time is the moment
// at which a clock in UTC shows it.
type pattern struct {
	fields     []fields
	zone       *time.Location
	utc        bool
	every      int64 // seconds between two occurrences; 0 for fields
	anchor     int64
	start, end time.Time
}

// The years with occurrences, as seconds. A zone may be a day ahead or behind.
var (
	earliest = time.Date(firstYear-1, 12, 30, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(lastYear+1, 1, 3, 0, 0, 0, 0, time.UTC)
)

// next returns the first occurrence that c does not cover.
func (p *pattern) next(c Occurrence) (Occurrence, bool) {
	for _, bound := range []time.Time{p.start, earliest} {
		if !bound.IsZero() && c.At.Before(bound) {
			c = Occurrence{At: bound.Add(-1)}
		}
	}
	if c.At.After(latest) {
		return Occurrence{}, false
	}
	var best Occurrence
	found := false
	if p.every > 0 {
		best, found = p.nextEvery(c)
	}
	for _, f := range p.fields {
		find := p.nextFixed
		if f.everyHour() {
			find = p.nextHourly
		}
		if o, ok := find(f, c); ok && (!found || best.covers(o)) {
			best, found = o, true
		}
	}
	if !found || !p.end.IsZero() && !best.At.Before(p.end) {
		return Occurrence{}, false
	}
	return best, true
}

// nextEvery counts from the anchor, in both directions.
func (p *pattern) nextEvery(c Occurrence) (Occurrence, bool) {
	first := ceil(c.At)
	if c.Nominal == "" {
		first = c.At.Unix() + 1
	}
	for k := first + modulo(p.anchor-first, p.every); ; k += p.every {
		t := time.Unix(k, 0).UTC()
		if o := (Occurrence{t.Format(utcForm), t}); !c.covers(o) {
			return o, t.Year() <= lastYear
		}
	}
}

// nextFixed finds an occurrence at a fixed local time. It is at the moment at which the local clock
// shows that time or a later one for the first time: after a gap, and in the first of two hours
// with the same times.
func (p *pattern) nextFixed(f fields, c Occurrence) (Occurrence, bool) {
	at := c.At
	if c.Nominal == "" {
		at = at.Add(1)
	}
	from := p.reached(at)
	if last, err := time.Parse(localForm, c.Nominal); err == nil && p.first(last.Unix()).Equal(c.At) {
		from = max(from, last.Unix()+1)
	}
	for {
		local, ok := f.next(from, math.MaxInt64)
		if !ok {
			return Occurrence{}, false
		}
		t := p.first(local)
		if o := (Occurrence{p.fixedName(local), t}); !c.covers(o) {
			return o, true
		}
		from = local + 1
	}
}

// nextHourly finds an occurrence by real time: each moment at which the local clock shows a time
// that matches. It searches one period with the same offset after the other.
func (p *pattern) nextHourly(f fields, c Occurrence) (Occurrence, bool) {
	for t := c.At; t.Before(latest); {
		_, end := p.period(t)
		offset := p.offset(t)
		from, to := ceil(t)+offset, int64(math.MaxInt64)
		if !end.IsZero() {
			to = end.Unix() + offset - 1
		}
		for {
			local, ok := f.next(from, to)
			if !ok {
				break
			}
			at := time.Unix(local-offset, 0).UTC()
			if o := (Occurrence{p.hourlyName(local, at), at}); !c.covers(o) {
				return o, true
			}
			from = local + 1
		}
		if end.IsZero() {
			break
		}
		t = end
	}
	return Occurrence{}, false
}

// fixedName is the nominal time of a local time.
func (p *pattern) fixedName(local int64) string {
	if p.utc {
		return time.Unix(local, 0).UTC().Format(utcForm)
	}
	return time.Unix(local, 0).UTC().Format(localForm)
}

// hourlyName is the nominal time of a moment. If a calendar with a fixed time has the same
// occurrence, they are one, with the name of that calendar.
func (p *pattern) hourlyName(local int64, at time.Time) string {
	if p.utc {
		return at.Format(utcForm)
	}
	for _, f := range p.fields {
		if !f.everyHour() && f.matches(local) && p.first(local).Equal(at) {
			return p.fixedName(local)
		}
	}
	return at.In(p.zone).Format(offsetForm)
}

// offset is the difference between local time and UTC at a moment, in seconds.
func (p *pattern) offset(t time.Time) int64 {
	_, offset := t.In(p.zone).Zone()
	return int64(offset)
}

// period returns the bounds of a time with the same offset. There may be others that have it, too.
func (p *pattern) period(t time.Time) (start, end time.Time) {
	start, end = t.In(p.zone).ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// ZoneBounds takes each year of a rule to have 365 days: on the last day of a leap year,
		// the end that it returns has passed. No rule changes clocks on that day.
		end = t.Add(time.Hour)
	}
	return start, end
}

const (
	// widest is more than the offset of any zone.
	widest = 26 * time.Hour
	day    = 86_400 // seconds
)

// first returns the moment at which the local clock shows a time, or a later one, for the first
// time.
func (p *pattern) first(local int64) time.Time {
	if p.utc {
		return time.Unix(local, 0).UTC()
	}
	t := time.Unix(local, 0).Add(-widest)
	for {
		start, end := p.period(t)
		at := time.Unix(local-p.offset(t), 0).UTC()
		switch {
		case !end.IsZero() && !at.Before(end):
			t = end
		case !start.IsZero() && at.Before(start): // it is in the gap before this period
			return start.UTC()
		default:
			return at
		}
	}
}

// reached returns the first local time that no local clock has shown before a moment. For these and
// no earlier ones, [pattern.first] is not before the moment.
func (p *pattern) reached(t time.Time) int64 {
	before := t.Add(-1)
	top := ceil(t) + p.offset(before)
	for {
		start, _ := p.period(before)
		if start.IsZero() || t.Sub(start) > 2*widest {
			return top
		}
		before = start.Add(-1)
		top = max(top, start.Unix()+p.offset(before))
	}
}

// next returns the first local time from one moment to another that matches.
func (f fields) next(from, to int64) (int64, bool) {
	from = max(from, time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	at := time.Unix(from, 0).UTC()
	year, month, dom := at.Date()
	second := int(modulo(from, day))
	for ; year <= lastYear; year, month, dom, second = year+1, 1, 1, 0 {
		if f.years != nil && !f.years[year-firstYear] {
			continue
		}
		for ; month <= 12; month, dom, second = month+1, 1, 0 {
			first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
			if first.Unix() > to {
				return 0, false
			}
			if f.month>>month&1 == 0 {
				continue
			}
			days := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
			for ; dom <= days; dom, second = dom+1, 0 {
				if !f.onDay(dom, (int(first.Weekday())+dom-1)%7) {
					continue
				}
				if s, ok := f.inDay(second); ok {
					local := first.Unix() + int64(dom-1)*day + int64(s)
					return local, local <= to
				}
			}
		}
	}
	return 0, false
}

// matches tells whether a local time matches.
func (f fields) matches(local int64) bool {
	next, ok := f.next(local, local)
	return ok && next == local
}

func (f fields) onDay(dom, weekday int) bool {
	byDay, byWeekday := f.day>>dom&1 == 1, f.weekday>>weekday&1 == 1
	if f.either {
		return byDay || byWeekday
	}
	return byDay && byWeekday
}

// inDay returns the first second of a day, from one on, that matches.
func (f fields) inDay(from int) (int, bool) {
	hour, minute, second := from/3600, from/60%60, from%60
	h := nextBit(f.hour, hour)
	if h == hour {
		m := nextBit(f.minute, minute)
		if m == minute {
			if s := nextBit(f.second, second); s < 60 {
				return h*3600 + m*60 + s, true
			}
			m = nextBit(f.minute, minute+1)
		}
		if m < 60 {
			return h*3600 + m*60 + nextBit(f.second, 0), true
		}
		h = nextBit(f.hour, hour+1)
	}
	if h > 23 {
		return 0, false
	}
	return h*3600 + nextBit(f.minute, 0)*60 + nextBit(f.second, 0), true
}

// nextBit returns the lowest bit that is set, from one on; 64 if there is none. The parser sets the
// highest bit for a star.
func nextBit(set uint64, from int) int {
	set &^= 1 << 63
	return bits.TrailingZeros64(set >> from << from)
}

// ceil is a moment in seconds, rounded up.
func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// modulo is the remainder that is not negative.
func modulo(a, b int64) int64 { return (a%b + b) % b }
