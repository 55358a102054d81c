package schedule_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have no time zones

	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/events"
)

type (
	spec     = schedule.Spec
	calendar = schedule.Calendar
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	x, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return x.UTC()
}

func cronIn(zone, cron string) spec { return spec{Cron: cron, Zone: zone} }

func TestCheckTakes(t *testing.T) {
	t.Parallel()
	for _, s := range []spec{
		cronIn("", "30 6 * * MON-FRI"), cronIn("UTC", "*/10 * * * * *"), cronIn("Europe/Berlin", " 0  0 1,15 * ? "),
		cronIn("", "@hourly"), cronIn("Asia/Tokyo", "@daily"), cronIn("", "@weekly"), cronIn("", "@monthly"),
		cronIn("", "@yearly"), cronIn("", "@every 90s"), cronIn("", "@every  1h"), cronIn("", "0 0 29 2 *"),
		cronIn("", "5/20 8-18/2 * jan-MAR,12 0,6"),
		{Calendars: []calendar{{}, {Hour: "*", Minute: "*/15", Second: "30"}}},
		{Calendars: []calendar{{Day: "29", Month: "FEB", Weekday: "SUN"}}},
		{Calendars: []calendar{{Year: "2000,2100-2110/2,2150/10"}, {Year: "*/4"}}},
		{Cron: "@daily", Start: time.Unix(0, 0), End: time.Unix(2e9, 0), Limit: 3, Jitter: events.Duration(time.Hour),
			CatchUp: events.Duration(10 * time.Second), Overlap: schedule.TerminateOther},
	} {
		if err := s.Check("a id/ü"); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	daily := func(change func(*spec)) spec {
		s := spec{Cron: "@daily"}
		change(&s)
		return s
	}
	one := func(c calendar) spec { return spec{Calendars: []calendar{c}} }
	for _, c := range []struct {
		spec spec
		want string
	}{
		{spec{}, `it has no time; give it a cron like 30 6 * * MON-FRI, or calendars`},
		{spec{Cron: "@daily", Calendars: []calendar{{}}}, "cron and calendars are mutually exclusive; leave out one"},
		{spec{Calendars: make([]calendar, 101)}, "calendars of a schedule: 101 is over the limit of 100"},
		{spec{Calendars: []calendar{{}, {Day: "31", Month: "2,4"}}}, "calendar 2: no day of the years 2000 to 2199"},
		{cronIn("", strings.Repeat("1,", 600)+"1 * * * *"),
			"cron of a schedule (bytes): 1209 is over the limit of 1024"},
		{one(calendar{Hour: strings.Repeat("1,", 600) + "1"}), "field of a calendar (bytes): 1201 is over the limit"},
		{cronIn("", "at night"), `cron "at night": want 5 fields, or 6 with seconds; it has 2; write it like 30 6`},
		{cronIn("", "60 * * * *"), `minute "60": want 0 to 59, as a number, a list, a range or a step`},
		{cronIn("", "61 0 * * * *"), `second "61": want 0 to 59`},
		{cronIn("", "0 24 * * *"), `hour "24": want 0 to 23`},
		{cronIn("", "0 0 0 * *"), `day of the month "0": want 1 to 31`},
		{cronIn("", "0 0 * DEB *"), `month "DEB": want 1 to 12 or JAN to DEC`},
		{cronIn("", "0 0 * * 7"), `day of the week "7": want 0 to 6 or SUN to SAT`},
		{cronIn("", "5-1 * * * *"), `minute "5-1"`},
		{cronIn("", "*/0 * * * *"), `minute "*/0"`},
		{cronIn("", "1,,2 * * * *"), `minute "1,,2"`},
		{cronIn("", ", * * * *"), `minute ","`},
		{cronIn("", "*-5 * * * *"), `minute "*-5"`},
		{cronIn("", "+5 * * * *"), `minute "+5"`},
		{cronIn("", "1-2-3 * * * *"), `minute "1-2-3"`},
		{cronIn("", "CRON_TZ=UTC 0 0 * * *"), "the time zone has a setting of its own"},
		{cronIn("", "@reboot"),
			"there is no @reboot; there are @hourly, @daily, @weekly, @monthly, @yearly and @every"},
		{cronIn("", "@every"), "there is no @every"},
		{cronIn("", "@every 10ms"), "want whole seconds, one at least, like @every 90s or @every 1h"},
		{cronIn("", "@every 1500ms"), "want whole seconds"},
		{cronIn("", "@every soon"), "want whole seconds"},
		{cronIn("", "@every 1000000h"), "want at most 100 years"},
		{cronIn("Europe/Berlin", "@every 1h"), "it is the same in every time zone; leave out Europe/Berlin"},
		{cronIn("Local", "@daily"),
			`time zone "Local" is not known; write it like Europe/Berlin, or leave it out for UTC`},
		{cronIn("Mars/Base", "@daily"), `time zone "Mars/Base" is not known`},
		{cronIn("", "0 0 30 2 *"), `cron "0 0 30 2 *": it has no next time: no such month has that day`},
		{one(calendar{Second: "60"}), `calendar 1: second "60": want 0 to 59`},
		{one(calendar{Minute: "x"}), `calendar 1: minute "x"`},
		{one(calendar{Hour: "25"}), `calendar 1: hour "25"`},
		{one(calendar{Day: "32"}), `calendar 1: day of the month "32"`},
		{one(calendar{Month: "13"}), `calendar 1: month "13"`},
		{one(calendar{Weekday: "MON TUE"}), `calendar 1: day of the week "MON TUE"`},
		{one(calendar{Year: "1999"}), `calendar 1: year "1999": want 2000 to 2199`},
		{one(calendar{Year: "2200"}), `year "2200"`},
		{one(calendar{Year: "2010-2005"}), `year "2010-2005"`},
		{one(calendar{Year: "2010/0"}), `year "2010/0"`},
		{one(calendar{Year: "2010,"}), `year "2010,"`},
		{one(calendar{Year: "+2010"}), `year "+2010"`},
		{one(calendar{Day: "31", Month: "2,4,6,9,11"}),
			"1 calendar: no day of the years 2000 to 2199 matches; leave out"},
		{daily(func(s *spec) { s.Limit = -1 }), "limit -1: want 1 or more, or leave it out"},
		{daily(func(s *spec) { s.Jitter = -1 }), "want a duration from 0s to 24h"},
		{daily(func(s *spec) { s.Jitter = events.Duration(25 * time.Hour) }),
			"jitter 25h0m0s: want a duration from 0s"},
		{daily(func(s *spec) { s.CatchUp = events.Duration(time.Second) }),
			"catch_up 1s: want at least 10s, such as 1h"},
		{daily(func(s *spec) { s.CatchUp = -1 }), "want at least 10s"},
		{daily(func(s *spec) { s.Overlap = "wait" }), `overlap "wait" is unknown; choose one of skip, buffer_one, ` +
			"buffer_all, allow, cancel_other, terminate_other"},
		{daily(func(s *spec) { s.Start, s.End = time.Unix(9, 0), time.Unix(9, 0) }), "is not before end"},
		{daily(func(s *spec) { s.Start, s.End = time.Unix(9, 0), time.Unix(99, 0) }), "no time between start and end"},
		{daily(func(s *spec) { s.Start = time.Date(2200, 1, 2, 0, 0, 0, 0, time.UTC) }), "up to the year 2199"},
	} {
		if err := c.spec.Check("x"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.spec, err, c.want)
		}
	}
	for _, id := range []string{"", "a\n", strings.Repeat("x", 240)} {
		if err := (spec{Cron: "@daily"}).Check(id); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
}

// TestCheckReturnsAllErrors: one call is enough to mend a specification.
func TestCheckReturnsAllErrors(t *testing.T) {
	t.Parallel()
	err := spec{Cron: "60 * * * *", Zone: "Mars/Base", Overlap: "wait", Limit: -1}.Check("")
	for _, want := range []string{"instance id", "minute", "Mars/Base", "overlap", "limit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %s is missing", err, want)
		}
	}
}

func TestSpecAsJSON(t *testing.T) {
	t.Parallel()
	s := spec{Calendars: []calendar{{Hour: "2"}}, Zone: "Asia/Tokyo", Start: at(t, "2027-01-01T00:00:00Z"),
		Jitter: events.Duration(90 * time.Second), CatchUp: events.Duration(time.Hour), Overlap: schedule.Allow}
	want := `{"calendars":[{"hour":"2"}],"zone":"Asia/Tokyo","start":"2027-01-01T00:00:00Z","jitter":"1m30s",` +
		`"catch_up":"1h0m0s","overlap":"allow"}`
	if data, err := json.Marshal(s); err != nil || string(data) != want {
		t.Errorf("got %s, %v, want %s", data, err, want)
	}
}

// list returns occurrences as "moment nominal".
func list(s spec, after, anchor time.Time, n int) (all []string) {
	o, ok := s.Next(after, anchor)
	for ; ok && len(all) < n; o, ok = s.NextAfter(o, anchor) {
		all = append(all, o.At.Format("01-02T15:04:05")+" "+o.Nominal)
	}
	return all
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spec  spec
		after string
		want  []string
	}{
		{"fixed, forward", cronIn("Europe/Berlin", "30 2 * * *"), "2027-03-27T00:00:00Z", []string{
			"03-27T01:30:00 2027-03-27T02:30:00", "03-28T01:00:00 2027-03-28T02:30:00",
			"03-29T00:30:00 2027-03-29T02:30:00"}},
		{"fixed, back", cronIn("Europe/Berlin", "30 2 * * *"), "2027-10-30T12:00:00Z", []string{
			"10-31T00:30:00 2027-10-31T02:30:00", "11-01T01:30:00 2027-11-01T02:30:00"}},
		{"fixed, from between the two", cronIn("Europe/Berlin", "30 2 * * *"), "2027-10-31T00:30:00Z", []string{
			"11-01T01:30:00 2027-11-01T02:30:00"}},
		{"several in one gap", cronIn("Europe/Berlin", "*/30 1-3 * * *"), "2027-03-28T00:00:00Z", []string{
			"03-28T00:30:00 2027-03-28T01:30:00", "03-28T01:00:00 2027-03-28T02:00:00",
			"03-28T01:00:00 2027-03-28T02:30:00", "03-28T01:00:00 2027-03-28T03:00:00",
			"03-28T01:30:00 2027-03-28T03:30:00", "03-28T23:00:00 2027-03-29T01:00:00"}},
		{"hourly, forward", cronIn("Europe/Berlin", "30 * * * *"), "2027-03-28T00:00:00Z", []string{
			"03-28T00:30:00 2027-03-28T01:30:00+01:00", "03-28T01:30:00 2027-03-28T03:30:00+02:00",
			"03-28T02:30:00 2027-03-28T04:30:00+02:00"}},
		{"hourly, back", cronIn("Europe/Berlin", "30 0-23 * * *"), "2027-10-31T00:00:00Z", []string{
			"10-31T00:30:00 2027-10-31T02:30:00+02:00", "10-31T01:30:00 2027-10-31T02:30:00+01:00",
			"10-31T02:30:00 2027-10-31T03:30:00+01:00"}},
		{"every ten minutes", cronIn("Europe/Berlin", "*/10 * * * *"), "2027-10-31T00:39:00Z", []string{
			"10-31T00:40:00 2027-10-31T02:40:00+02:00", "10-31T00:50:00 2027-10-31T02:50:00+02:00",
			"10-31T01:00:00 2027-10-31T02:00:00+01:00", "10-31T01:10:00 2027-10-31T02:10:00+01:00"}},
		{"offset 0", cronIn("Europe/London", "@hourly"), "2027-01-01T00:00:00Z", []string{
			"01-01T01:00:00 2027-01-01T01:00:00+00:00"}},
		{"gap at midnight, Sao Paulo", cronIn("America/Sao_Paulo", "@daily"), "2018-11-03T12:00:00Z", []string{
			"11-04T03:00:00 2018-11-04T00:00:00", "11-05T02:00:00 2018-11-05T00:00:00"}},
		{"back at midnight, Sao Paulo", cronIn("America/Sao_Paulo", "30 23 * * *"), "2018-02-17T12:00:00Z", []string{
			"02-18T01:30:00 2018-02-17T23:30:00", "02-19T02:30:00 2018-02-18T23:30:00"}},
		{"gap at midnight, Cairo", cronIn("Africa/Cairo", "15 0 * * FRI"), "2024-04-25T12:00:00Z", []string{
			"04-25T22:00:00 2024-04-26T00:15:00", "05-02T21:15:00 2024-05-03T00:15:00"}},
		{"hourly on a day, Cairo", cronIn("Africa/Cairo", "30 * 26 4 *"), "2024-04-25T12:00:00Z", []string{
			"04-25T22:30:00 2024-04-26T01:30:00+03:00"}},
		{"gap at midnight, Beirut", cronIn("Asia/Beirut", "0 0 * * *"), "2022-03-26T00:00:00Z", []string{
			"03-26T22:00:00 2022-03-27T00:00:00", "03-27T21:00:00 2022-03-28T00:00:00"}},
		{"half an hour forward", cronIn("Australia/Lord_Howe", "15,45 2 * * *"), "2023-09-30T15:00:00Z", []string{
			"09-30T15:30:00 2023-10-01T02:15:00", "09-30T15:45:00 2023-10-01T02:45:00"}},
		{"half an hour back", cronIn("Australia/Lord_Howe", "45 1 * * *"), "2023-04-01T12:00:00Z", []string{
			"04-01T14:45:00 2023-04-02T01:45:00", "04-02T15:15:00 2023-04-03T01:45:00"}},
		{"half an hour back, hourly", cronIn("Australia/Lord_Howe", "45 * * * *"), "2023-04-01T14:00:00Z", []string{
			"04-01T14:45:00 2023-04-02T01:45:00+11:00", "04-01T15:15:00 2023-04-02T01:45:00+10:30",
			"04-01T16:15:00 2023-04-02T02:45:00+10:30"}},
		{"half hours off", cronIn("America/St_Johns", "30 2 * * *"), "2027-03-13T12:00:00Z", []string{
			"03-14T05:30:00 2027-03-14T02:30:00", "03-15T05:00:00 2027-03-15T02:30:00"}},
		{"a day left out", cronIn("Pacific/Apia", "0 12 * * *"), "2011-12-29T12:00:00Z", []string{
			"12-29T22:00:00 2011-12-29T12:00:00", "12-30T10:00:00 2011-12-30T12:00:00",
			"12-30T22:00:00 2011-12-31T12:00:00"}},
		{"a day left out, hourly", cronIn("Pacific/Apia", "0 * 30 12 *"), "2011-12-01T00:00:00Z", []string{
			"12-29T10:00:00 2012-12-30T00:00:00+14:00"}},
		{"standard offset forward", cronIn("Asia/Pyongyang", "45 23 * * *"), "2018-05-03T20:00:00Z", []string{
			"05-04T15:00:00 2018-05-04T23:45:00", "05-05T14:45:00 2018-05-05T23:45:00"}},
		{"standard offset back", cronIn("Europe/Moscow", "30 1 * * *"), "2014-10-25T12:00:00Z", []string{
			"10-25T21:30:00 2014-10-26T01:30:00", "10-26T22:30:00 2014-10-27T01:30:00"}},
		{"UTC", cronIn("UTC", "30 2 * * *"), "2027-03-28T00:00:00.5Z", []string{
			"03-28T02:30:00 2027-03-28T02:30:00Z", "03-29T02:30:00 2027-03-29T02:30:00Z"}},
		{"UTC, hourly", cronIn("", "@hourly"), "2027-03-28T00:00:00Z", []string{"03-28T01:00:00 2027-03-28T01:00:00Z"}},
		{"strictly after", cronIn("", "* * * * * *"), "2027-03-28T00:00:00Z", []string{
			"03-28T00:00:01 2027-03-28T00:00:01Z"}},
		{"leap day", cronIn("", "0 0 29 2 *"), "2097-01-01T00:00:00Z", []string{"02-29T00:00:00 2104-02-29T00:00:00Z"}},
		{"either day", cronIn("", "0 0 13 * FRI"), "2027-08-05T00:00:00Z", []string{
			"08-06T00:00:00 2027-08-06T00:00:00Z", "08-13T00:00:00 2027-08-13T00:00:00Z",
			"08-20T00:00:00 2027-08-20T00:00:00Z"}},
		{"a step of a star restricts nothing", cronIn("", "0 0 */2 * MON"), "2027-08-02T00:00:00Z", []string{
			"08-09T00:00:00 2027-08-09T00:00:00Z", "08-23T00:00:00 2027-08-23T00:00:00Z"}},
		{"both days of a calendar", spec{Calendars: []calendar{{Day: "13", Weekday: "FRI"}}}, "2027-01-01T00:00:00Z",
			[]string{"08-13T00:00:00 2027-08-13T00:00:00Z", "10-13T00:00:00 2028-10-13T00:00:00Z"}},
		{"years", spec{Calendars: []calendar{{Day: "1", Month: "1", Year: "2000/100,2150"}}}, "2000-01-01T00:00:00Z",
			[]string{"01-01T00:00:00 2100-01-01T00:00:00Z", "01-01T00:00:00 2150-01-01T00:00:00Z"}},
		{"several calendars, one occurrence", spec{Zone: "Europe/Berlin", Calendars: []calendar{
			{Hour: "*", Minute: "30"}, {Hour: "2", Minute: "30"}, {Hour: "2", Minute: "30"}}},
			"2027-10-31T00:00:00Z", []string{"10-31T00:30:00 2027-10-31T02:30:00",
				"10-31T01:30:00 2027-10-31T02:30:00+01:00", "10-31T02:30:00 2027-10-31T03:30:00+01:00"}},
		{"several calendars in a gap", spec{Zone: "Europe/Berlin", Calendars: []calendar{
			{Hour: "*"}, {Hour: "2", Minute: "30"}}}, "2027-03-28T00:00:00Z", []string{
			"03-28T01:00:00 2027-03-28T02:30:00", "03-28T01:00:00 2027-03-28T03:00:00+02:00",
			"03-28T02:00:00 2027-03-28T04:00:00+02:00"}},
		{"every", cronIn("", "@every 90s"), "2027-01-01T00:00:00Z", []string{
			"01-01T00:00:15 2027-01-01T00:00:15Z", "01-01T00:01:45 2027-01-01T00:01:45Z"}},
		{"every, from start", spec{Cron: "@every 90s", Start: at(t, "2027-01-01T00:00:01.5Z")}, "2026-01-01T00:00:00Z",
			[]string{"01-01T00:00:02 2027-01-01T00:00:02Z", "01-01T00:01:32 2027-01-01T00:01:32Z"}},
		{"start and end", spec{Cron: "@hourly", Start: at(t, "2027-01-01T02:00:00Z"),
			End: at(t, "2027-01-01T04:00:00Z")},
			"2026-01-01T00:00:00Z", []string{"01-01T02:00:00 2027-01-01T02:00:00Z",
				"01-01T03:00:00 2027-01-01T03:00:00Z"}},
		{"the last year", cronIn("Pacific/Apia", "30 23 31 12 *"), "2198-12-31T12:00:00Z", []string{
			"12-31T10:30:00 2199-12-31T23:30:00"}},
	} {
		anchor := at(t, "2027-01-01T00:01:45.123Z")
		n := len(c.want)
		if slices.Contains([]string{"start and end", "the last year"}, c.name) {
			n++ // there are no more
		}
		if got := list(c.spec, at(t, c.after), anchor, n); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestNever: a pattern without occurrences ends after the last year, and so does the search.
func TestNever(t *testing.T) {
	t.Parallel()
	for _, s := range []spec{
		cronIn("", "0 0 30 2 *"), cronIn("Europe/Berlin", "* * * 30 2 *"), cronIn("Europe/Berlin", "* * 1 30 2 *"),
		{Zone: "Pacific/Apia", Calendars: []calendar{{Hour: "*", Year: "2011", Month: "12", Day: "30"}}},
		{Cron: "nonsense"}, {Cron: "@every 1s", End: time.Unix(1, 0)},
	} {
		if o, ok := s.Next(time.Unix(2, 0), time.Unix(0, 0)); ok {
			t.Errorf("%+v: got %v", s, o)
		}
	}
	if o, ok := cronIn("", "* * * * *").Next(at(t, "2199-12-31T23:59:00Z"), time.Time{}); ok {
		t.Errorf("got %v after the last year", o)
	}
}

func BenchmarkNever(b *testing.B) {
	s := cronIn("Europe/Berlin", "0 * 30 2 *")
	for b.Loop() {
		s.Next(time.Unix(2, 0), time.Unix(0, 0))
	}
}

func BenchmarkNext(b *testing.B) {
	s := cronIn("Europe/Berlin", "30 2 * * *")
	for b.Loop() {
		s.Next(time.Unix(2e9, 0), time.Unix(0, 0))
	}
}
