package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/internal/seedtest"
)

// plain is a random pattern, and what it matches, written without the package.
type plain struct {
	cron                              string
	minutes, hours, doms, months, dow []bool
	either                            bool
}

// randomField returns a field and its values: a star, or a list of one to four numbers.
func randomField(r *rand.Rand, low, high int, starred float64) (string, []bool) {
	set := make([]bool, high+1)
	if r.Float64() < starred {
		for i := low; i <= high; i++ {
			set[i] = true
		}
		return "*", set
	}
	var parts []string
	for range 1 + r.IntN(4) {
		n := low + r.IntN(high-low+1)
		set[n] = true
		parts = append(parts, fmt.Sprint(n))
	}
	return strings.Join(parts, ","), set
}

func randomPlain(r *rand.Rand) (p plain) {
	var f [5]string
	f[0], p.minutes = randomField(r, 0, 59, 0.1)
	f[1], p.hours = randomField(r, 0, 23, 0.4)
	if r.IntN(3) == 0 { // the hours of most changes
		f[1], p.hours = "0-3", make([]bool, 24)
		copy(p.hours, []bool{true, true, true, true})
	}
	f[2], p.doms = randomField(r, 1, 31, 0.7)
	f[3], p.months = randomField(r, 1, 12, 0.8)
	f[4], p.dow = randomField(r, 0, 6, 0.7)
	p.either = f[2] != "*" && f[4] != "*"
	p.cron = strings.Join(f[:], " ")
	return p
}

// matches tells whether the clock shows a time of the pattern, in whole minutes.
func (p plain) matches(wall time.Time) bool {
	byDay, byWeekday := p.doms[wall.Day()], p.dow[wall.Weekday()]
	return p.minutes[wall.Minute()] && p.hours[wall.Hour()] && p.months[wall.Month()] &&
		(byDay && byWeekday || p.either && (byDay || byWeekday))
}

// TestNextAgainstAWalk compares the occurrences of random patterns with those that a walk through
// all minutes of a year finds. A fixed time is at the minute at which the clock passes it for the
// first time; a pattern of each hour is at each minute that shows it.
func TestNextAgainstAWalk(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seedtest.Draw(t), 1))
	for _, c := range []struct {
		zone string
		year int
	}{
		{"Europe/Berlin", 2027}, {"America/Sao_Paulo", 2018}, {"Africa/Cairo", 2024}, {"Asia/Beirut", 2022},
		{"Australia/Lord_Howe", 2023}, {"America/St_Johns", 2028}, {"Pacific/Apia", 2011}, {"Asia/Pyongyang", 2018},
		{"Europe/Moscow", 2014}, {"Africa/Casablanca", 2023}, {"Australia/Sydney", 2044}, {"UTC", 2026},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		patterns := make([]plain, racetest.Size(20, 4))
		for i := range patterns {
			patterns[i] = randomPlain(r)
		}
		from := time.Date(c.year, 1, 1, 0, 0, 0, 0, time.UTC)
		want := walk(zone, patterns, from, from.AddDate(1, 0, 0))
		for i, p := range patterns {
			s := cronIn(c.zone, p.cron)
			var got []string
			most := racetest.Size(2000, 300)
			o, ok := s.Next(from.Add(-1), from)
			for ; ok && o.At.Before(from.AddDate(1, 0, 0)) && len(got) < most; o, ok = s.NextAfter(o, from) {
				got = append(got, o.At.Format(time.RFC3339)+" "+o.Nominal)
				if again, _ := s.Next(o.At.Add(-1), from); again.At != o.At {
					t.Fatalf("%s in %s: Next before %s is at %s", p.cron, c.zone, o.At, again.At)
				}
			}
			if want := want[i][:min(len(got)+1, len(want[i]), most)]; !slices.Equal(got, want) {
				t.Errorf("%s in %s %d: %s", p.cron, c.zone, c.year, difference(got, want))
			}
		}
	}
}

func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("occurrence %d of %d: got %q, want %q", i, len(want),
				got[min(i, len(got)):min(i+2, len(got))], want[min(i, len(want)):min(i+2, len(want))])
		}
	}
	return "equal"
}

func walk(zone *time.Location, patterns []plain, from, to time.Time) [][]string {
	all := make([][]string, len(patterns))
	wallAt := func(t time.Time) time.Time {
		_, offset := t.In(zone).Zone()
		return t.Add(time.Duration(offset) * time.Second)
	}
	top := wallAt(from.AddDate(0, 0, -3)) // the highest time that the clock has shown
	for t := from.AddDate(0, 0, -3); t.Before(to); t = t.Add(time.Minute) {
		wall := wallAt(t)
		passed := top.Add(time.Minute)
		if wall.After(top) {
			top = wall
		}
		if t.Before(from) {
			continue
		}
		for i, p := range patterns {
			if !slices.Contains(p.hours, false) {
				if p.matches(wall) {
					name := t.In(zone).Format("2006-01-02T15:04:05-07:00")
					if zone == time.UTC {
						name = t.Format("2006-01-02T15:04:05Z")
					}
					all[i] = append(all[i], t.Format(time.RFC3339)+" "+name)
				}
				continue
			}
			for w := passed; !w.After(wall); w = w.Add(time.Minute) {
				if p.matches(w) {
					name := w.Format("2006-01-02T15:04:05")
					if zone == time.UTC {
						name += "Z"
					}
					all[i] = append(all[i], t.Format(time.RFC3339)+" "+name)
				}
			}
		}
	}
	return all
}

// TestLastDayOfALeapYear: package time returns an end of its zone's period that has passed.
func TestLastDayOfALeapYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "Australia/Sydney", "America/St_Johns", "Pacific/Apia"} {
		for _, cron := range []string{"0 * * * *", "0 12 * * *"} {
			s := cronIn(zone, cron)
			after := time.Date(2048, 12, 30, 0, 0, 0, 0, time.UTC)
			for range 100 {
				o, ok := s.Next(after, after)
				if step := o.At.Sub(after); !ok || step <= 0 || step > 25*time.Hour {
					t.Fatalf("%s in %s: %v after %s", cron, zone, o, after)
				}
				after = o.At
			}
		}
	}
}

// TestTheDelayIsSpread: the jitter is below its bound, the same each time, and differs between
// occurrences and schedules.
func TestTheDelayIsSpread(t *testing.T) {
	t.Parallel()
	day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	tenths := make(map[time.Duration]int)
	for i := range 1000 {
		s := schedule.New(fmt.Sprint("s", i), day, spec{Cron: "@daily", Jitter: 100e9}, nil, false)
		wake := s.WakeAt(day)
		delay := wake.Sub(day.AddDate(0, 0, 1))
		if delay < 0 || delay >= 100*time.Second || wake != s.WakeAt(day.Add(time.Hour)) {
			t.Fatalf("the delay of %s is %s", s.ID, delay)
		}
		tenths[delay/(10*time.Second)]++
	}
	for tenth, n := range tenths {
		if n < 50 || n > 200 || len(tenths) != 10 {
			t.Errorf("%d of 1000 delays are in tenth %d", n, tenth)
		}
	}
}
