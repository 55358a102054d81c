package schedule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/internal/seedtest"
	"github.com/rondo-run/rondo/pkg/events"
)

var midnight = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// world has the instances of a schedule. Each call of a step goes through JSON.
type world struct {
	t      testing.TB
	s      *schedule.State
	now    time.Time
	is     map[string]schedule.Status
	starts map[string]int // by message
	log    []string       // of the last step
}

func newWorld(t testing.TB, s spec) *world {
	t.Helper()
	if err := s.Check("x"); err != nil {
		t.Fatal(err)
	}
	return &world{t: t, s: schedule.New("x", midnight, s, json.RawMessage(`{"a":"<"}`), false), now: midnight,
		is: make(map[string]schedule.Status), starts: make(map[string]int)}
}

// recode sends the state through JSON.
func (w *world) recode() []byte {
	w.t.Helper()
	data, err := w.s.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.s, err = schedule.Decode(data); err != nil {
		w.t.Fatal(err)
	}
	if again, err := w.s.Encode(); err != nil || !bytes.Equal(data, again) {
		w.t.Fatalf("%v: %s becomes %s", err, data, again)
	}
	return data
}

// step makes one decision, and writes its effects as words.
func (w *world) step() []string {
	w.t.Helper()
	before := w.recode()
	statuses := make(map[string]schedule.Status)
	for _, id := range w.s.Asks(w.now) {
		statuses[id] = schedule.Status{Kind: schedule.None}
		if is, ok := w.is[id]; ok {
			statuses[id] = is
		}
	}
	wake := w.s.WakeAt(w.now)
	w.log = nil
	for _, e := range w.s.Step("x", w.now, statuses) {
		switch e := e.(type) {
		case schedule.Start:
			w.starts[e.Run.Message]++
			w.log = append(w.log, "start "+e.Run.Nominal[11:19])
		case schedule.Cancel:
			w.log = append(w.log, "cancel "+e.Instance[13:21])
		case schedule.Terminate:
			w.log = append(w.log, "terminate "+e.Instance[13:21])
		case schedule.Missed:
			w.log = append(w.log, fmt.Sprint("missed ", e.Count))
		case schedule.Skipped:
			w.log = append(w.log, "skip "+e.Occurrence.Nominal[11:19]+": "+e.Why)
		case schedule.Invalid:
			w.t.Fatal(e.Err)
		default:
			w.t.Fatalf("an effect of type %T", e)
		}
	}
	if after := w.recode(); (wake.IsZero() || wake.After(w.now)) && !bytes.Equal(before, after) {
		w.t.Fatalf("at %s, before %s, %s becomes %s", w.now, wake, before, after)
	}
	return w.log
}

// at goes to a time of the first day and decides there until nothing is due.
func (w *world) at(clock string, want ...string) {
	w.t.Helper()
	w.now = at(w.t, "2027-01-01T"+clock+"Z")
	var got []string
	for n := 0; ; n++ {
		if wake := w.s.WakeAt(w.now); n > 0 && (wake.IsZero() || wake.After(w.now)) {
			break
		}
		if n > 2000 {
			w.t.Fatalf("at %s: no end", clock)
		}
		got = append(got, w.step()...)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("at %s: got %q, want %q", clock, got, want)
	}
}

func (w *world) set(clock string, kind schedule.Kind) {
	w.is["x@2027-01-01T"+clock+"Z"] = schedule.Status{Kind: kind, Word: "completed"}
}

func hourly(o schedule.Overlap) spec { return spec{Cron: "@hourly", Overlap: o} }

// TestPolicies: each policy, against each status of the former run.
func TestPolicies(t *testing.T) {
	t.Parallel()
	const first, second = "01:00:00", "02:00:00"
	kinds := []schedule.Kind{schedule.Running, schedule.Unknown, schedule.Ended, schedule.Gone}
	busy := map[schedule.Overlap][]string{
		schedule.Skip:           {"skip 02:00:00: the former run has not ended"},
		schedule.BufferOne:      nil,
		schedule.BufferAll:      nil,
		schedule.Allow:          {"start 02:00:00"},
		schedule.CancelOther:    {"cancel 01:00:00"},
		schedule.TerminateOther: {"start 02:00:00", "terminate 01:00:00"},
	}
	for overlap, blocked := range busy {
		for _, kind := range kinds {
			w := newWorld(t, hourly(overlap))
			w.at(first, "start "+first)
			w.set(first, schedule.Running)
			w.at("01:00:01")
			w.set(first, kind)
			want := blocked
			if kind == schedule.Ended || kind == schedule.Gone {
				want = []string{"start " + second}
			}
			w.at(second, want...)
			if t.Failed() {
				t.Fatalf("%s, %d", overlap, kind)
			}
		}
		w := newWorld(t, hourly(overlap)) // the run is not seen
		w.at(first, "start "+first)
		w.at("01:00:59")
		w.at("01:01:00", "start "+first)
		w.at("01:01:59")
		w.at("01:02:00", "start "+first)
		want := slices.Concat([]string{"start " + first}, blocked)
		want = slices.DeleteFunc(want, func(e string) bool {
			return strings.Contains(e, "cancel") ||
				strings.Contains(e, "terminate")
		})
		w.at(second, want...)
		if w.starts["schedule/x/1/2027-01-01T01:00:00Z"] != 4 {
			t.Errorf("the starts are %v", w.starts)
		}
		w.set(first, schedule.Running)
		w.set(second, schedule.Running)
		w.at("02:01:00", slices.DeleteFunc(slices.Clone(blocked), func(e string) bool {
			return !strings.Contains(e, "cancel") && !strings.Contains(e, "terminate")
		})...)
	}
}

func TestBuffers(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[schedule.Overlap][][]string{
		schedule.BufferOne: {nil, {"skip 03:00:00: another occurrence is buffered"}, {"start 02:00:00"}, nil},
		schedule.BufferAll: {nil, nil, {"start 02:00:00"}, {"start 03:00:00"}},
		schedule.CancelOther: {{"cancel 01:00:00"}, {"skip 02:00:00: a later occurrence replaces it"},
			{"start 03:00:00"}, nil},
	} {
		w := newWorld(t, hourly(overlap))
		w.at("01:00:00", "start 01:00:00")
		w.set("01:00:00", schedule.Running)
		w.at("01:00:01")
		w.at("02:00:00", want[0]...)
		w.at("03:00:00", want[1]...)
		w.set("01:00:00", schedule.Ended)
		w.at("03:00:10", want[2]...)
		for _, c := range []string{"02:00:00", "03:00:00"} {
			w.set(c, schedule.Ended)
		}
		w.at("03:00:20", want[3]...)
		w.at("03:59:59")
	}
}

// TestPolls: a wait reads the status each second for a minute, and then every 10 s.
func TestPolls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(schedule.BufferAll))
	w.at("01:00:00", "start 01:00:00")
	w.set("01:00:00", schedule.Running)
	w.at("01:00:01")
	w.at("02:00:00")
	n := 0
	for w.now.Before(midnight.Add(2*time.Hour + 2*time.Minute)) {
		w.now = w.s.WakeAt(w.now)
		w.step()
		n++
	}
	if n != 60+6 {
		t.Errorf("%d looks in two minutes", n)
	}
}

func TestPauseAndPut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(schedule.Allow))
	w.now = midnight.Add(time.Hour)
	if w.s.Put(w.now, hourly(schedule.Allow), json.RawMessage(` { "a" : "<" } `), false) || w.s.Edition != 1 {
		t.Error("a put of the same changes the schedule")
	}
	if !w.s.Put(w.now, hourly(schedule.Allow), json.RawMessage(`2`), false) || w.s.Edition != 2 {
		t.Error("a put of another action does not change the schedule")
	}
	w.at("01:00:00", "start 01:00:00") // it was due, and is not dropped
	w.set("01:00:00", schedule.Ended)
	w.at("01:00:01")
	if !w.s.Pause("why") || w.s.Pause("why") || w.s.Note != "why" || !w.s.WakeAt(w.now).IsZero() {
		t.Errorf("after the pause: %+v", w.s)
	}
	w.at("03:30:00")
	if up := w.s.Upcoming(w.now, 3); up != nil {
		t.Errorf("paused, and upcoming is %v", up)
	}
	if _, err := w.s.Trigger(w.now, ""); err != nil {
		t.Error(err)
	}
	w.at("03:30:00", "start 03:30:00")
	if !w.s.Resume(w.now) || w.s.Resume(w.now) {
		t.Error("the schedule is not resumed once")
	}
	w.is[w.s.Runs[1].Instance] = schedule.Status{Kind: schedule.Running}
	w.at("03:59:59")
	w.at("04:00:00", "start 04:00:00")
	w.at("03:00:00") // the clock goes back
	w.set("04:00:00", schedule.Running)
	w.at("04:00:01")
	w.now = at(t, "2027-01-01T05:00:00Z")
	changed := w.s.Put(w.now, spec{Cron: "30 * * * *"}, json.RawMessage(`2`), false)
	if !changed || w.s.Edition != 3 || len(w.s.Runs) != 3 {
		t.Errorf("after the put: %+v", w.s)
	}
	w.at("05:00:01")
	w.at("05:30:00", "skip 05:30:00: the former run has not ended")
	if up := w.s.Upcoming(w.now, 2); len(up) != 2 || up[1].Nominal != "2027-01-01T07:30:00Z" {
		t.Errorf("upcoming is %v", up)
	}
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, spec{Cron: "* * * * *", Overlap: schedule.Allow, CatchUp: events.Duration(2 * time.Minute)})
	w.at("01:00:30", "missed 58", "start 00:59:00", "start 01:00:00")
	if r := w.s.Runs; r[0].Reason != schedule.CaughtUp || r[1].Reason != schedule.Scheduled {
		t.Errorf("the runs are %v", r)
	}
	w = newWorld(t, spec{Cron: "* * * * * *", CatchUp: events.Duration(10 * time.Second)})
	w.now = midnight.AddDate(1, 0, 0)
	if got := w.step(); got[0] != "missed 10000" || got[1] != "start 23:59:50" || len(got) != 12 {
		t.Errorf("got %q", got)
	}
	w = newWorld(t, spec{Cron: "* * * * * *"})
	w.now = midnight.Add(time.Hour)
	if got := w.step(); len(got) != 100 || w.s.WakeAt(w.now).After(w.now) || w.s.Skipped != 99 {
		t.Errorf("got %d effects, and then %s", len(got), w.s.WakeAt(w.now))
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, spec{Cron: "* * * * * *", Overlap: schedule.Allow})
	w.now = midnight.Add(101 * time.Second)
	w.step()
	for _, r := range w.s.Runs {
		w.is[r.Instance] = schedule.Status{Kind: schedule.Running}
	}
	w.at("00:01:41")
	if wake := w.s.WakeAt(w.now); !wake.After(w.now) || wake.After(w.now.Add(10*time.Second)) {
		t.Errorf("a schedule that waits is looked at again at %s", wake)
	}
	for id := range w.is {
		w.is[id] = schedule.Status{Kind: schedule.Ended}
	}
	w.at("00:01:42", "start 00:01:41", "start 00:01:42")
	if len(w.s.Runs) != 20 {
		t.Errorf("%d runs are kept", len(w.s.Runs))
	}
	w = newWorld(t, spec{Cron: "* * * * * *", Overlap: schedule.BufferAll})
	w.now = midnight.Add(1002 * time.Second)
	for range 11 {
		w.step()
	}
	if len(w.s.Buffered) != 1000 || w.s.Skipped != 0 || len(w.log) > 0 {
		t.Errorf("%d are buffered, %d skipped, %q", len(w.s.Buffered), w.s.Skipped, w.log)
	}
	w.is[w.s.Runs[0].Instance] = schedule.Status{Kind: schedule.Ended}
	w.at("00:16:50", "start 00:00:02")
	if last := w.s.Buffered[999].Nominal; len(w.s.Buffered) != 1000 || !strings.HasSuffix(last, "00:16:42Z") {
		t.Errorf("%d are buffered, the last one of %s", len(w.s.Buffered), last)
	}
}

// TestATriggerBesideAFullBuffer: the buffered occurrences wait for the end of a pause, and a
// trigger does not, once nothing runs.
func TestATriggerBesideAFullBuffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, spec{Cron: "* * * * * *", Overlap: schedule.BufferAll})
	w.now = midnight.Add(time.Second)
	w.step()
	first := w.s.Runs[0].Instance
	w.is[first] = schedule.Status{Kind: schedule.Running}
	w.now = midnight.Add(1001 * time.Second)
	for range 11 {
		w.step()
	}
	w.s.Pause("")
	if _, err := w.s.Trigger(w.now, ""); err != nil || len(w.s.Buffered) != 1000 {
		t.Fatalf("%d are buffered, %v", len(w.s.Buffered), err)
	}
	w.at("00:16:42")
	if wake := w.s.WakeAt(w.now); !wake.After(w.now) {
		t.Errorf("it is looked at again at %s", wake)
	}
	w.is[first] = schedule.Status{Kind: schedule.Ended}
	w.at("00:16:52", "start 00:16:41")
}

// TestCatchUpOfMany: after an absence, more occurrences are due than runs may be active at once.
// Each is started, or is missed when it is too old; none is skipped.
func TestCatchUpOfMany(t *testing.T) {
	t.Parallel()
	for _, overlap := range []schedule.Overlap{schedule.Allow, schedule.TerminateOther} {
		w := newWorld(t, spec{Cron: "* * * * * *", Overlap: overlap, CatchUp: events.Duration(10 * time.Minute)})
		w.now = midnight.Add(10 * time.Minute)
		for n := 0; len(w.starts) < 600; n++ {
			if n > 2000 {
				t.Fatalf("%s: %d of 600 occurrences are started, %d skipped", overlap, len(w.starts), w.s.Skipped)
			}
			w.step()
			for _, r := range w.s.Runs {
				w.is[r.Instance] = schedule.Status{Kind: schedule.Ended}
			}
			w.now = w.s.WakeAt(w.now)
		}
		if w.s.Skipped+w.s.Missed > 0 || w.now.After(midnight.Add(11*time.Minute)) {
			t.Errorf("%s: %d skipped, %d missed, at %s", overlap, w.s.Skipped, w.s.Missed, w.now)
		}
	}
	w := newWorld(t, spec{Cron: "* * * * * *", Overlap: schedule.Allow, CatchUp: events.Duration(time.Minute)})
	for steps := 0; w.now.Before(midnight.Add(10 * time.Minute)); steps++ { // no run ends
		w.step()
		for _, r := range w.s.Runs {
			w.is[r.Instance] = schedule.Status{Kind: schedule.Running}
		}
		if w.now = w.s.WakeAt(w.now); steps > 1000 {
			t.Fatalf("it is looked at %d times until %s", steps, w.now)
		}
	}
	if len(w.starts) != 100 || w.s.Skipped > 0 || w.s.Missed < 420 || w.s.Missed > 450 {
		t.Errorf("%d started, %d skipped, %d missed", len(w.starts), w.s.Skipped, w.s.Missed)
	}
}

func TestLimitAndEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, spec{Cron: "@hourly", Overlap: schedule.BufferAll, Limit: 2})
	if _, err := w.s.Trigger(w.now, ""); err != nil {
		t.Error(err)
	}
	w.at("00:00:00", "start 00:00:00")
	w.is[w.s.Runs[0].Instance] = schedule.Status{Kind: schedule.Running}
	w.at("03:00:00")
	if len(w.s.Buffered) != 2 || w.s.Finished() {
		t.Errorf("%v are buffered", w.s.Buffered)
	}
	w.is[w.s.Runs[0].Instance] = schedule.Status{Kind: schedule.Ended}
	w.set("01:00:00", schedule.Ended)
	w.set("02:00:00", schedule.Ended)
	w.at("03:00:01", "start 01:00:00")
	w.at("03:00:02", "start 02:00:00")
	w.at("03:00:03")
	if !w.s.Finished() || !w.s.WakeAt(w.now).IsZero() || w.s.Upcoming(w.now, 3) != nil {
		t.Errorf("it is not finished: %+v", w.s)
	}
	w = newWorld(t, spec{Cron: "@hourly", Overlap: schedule.Allow, End: midnight.Add(2 * time.Hour)})
	w.set("01:00:00", schedule.Ended)
	if w.s.Finished() {
		t.Error("it is finished before its end")
	}
	w.at("01:00:00", "start 01:00:00")
	w.at("01:00:01")
	if !w.s.Finished() {
		t.Error("it is not finished after its end")
	}
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(schedule.Skip))
	w.s.Pause("")
	w.now = midnight.Add(12 * time.Hour)
	for _, c := range []struct {
		from, to time.Time
		want     string
	}{
		{w.now, w.now, "is not before to"}, {midnight, w.now.Add(time.Hour), "in the future"},
		{midnight.AddDate(-2, 0, 0), w.now, "over the limit of 10000"},
		{midnight.Add(1), midnight.Add(2), "no occurrence is in the range"},
	} {
		if err := w.s.Backfill(w.now, c.from, c.to, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if err := w.s.Backfill(w.now, midnight, midnight.Add(2*time.Hour), ""); err != nil {
		t.Fatal(err)
	}
	w.at("12:00:00", "start 00:00:00")
	w.set("00:00:00", schedule.Running)
	w.at("12:00:01")
	w.set("00:00:00", schedule.Ended)
	w.at("12:00:02", "start 01:00:00")
	w.set("01:00:00", schedule.Ended)
	w.at("12:00:03")
	if len(w.s.Backfills) != 0 || w.s.Limited != 0 || w.s.Started != 2 {
		t.Errorf("after the backfill: %+v", w.s)
	}
	if err := w.s.Backfill(w.now, midnight, midnight.Add(12*time.Hour), schedule.Allow); err != nil {
		t.Fatal(err)
	}
	if w.step(); len(w.log) != 10 || w.s.WakeAt(w.now).After(w.now) {
		t.Errorf("the first step is %q", w.log)
	}
	for message, n := range w.starts { // ended instances start again, with a message of its own
		if n != 1 {
			t.Errorf("%s is sent %d times", message, n)
		}
	}
}

// TestEachOccurrenceOnce lets schedules run in a world in which messages are lost, instances take
// their time, and the clock goes back. Nothing starts twice; with buffer_all and allow, nothing is
// left out.
func TestEachOccurrenceOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seedtest.Draw(t), 2))
	policies := []schedule.Overlap{schedule.Skip, schedule.BufferOne, schedule.BufferAll, schedule.Allow,
		schedule.CancelOther, schedule.TerminateOther}
	for i := range racetest.Size(24, 12) {
		w := newWorld(t, spec{Cron: "*/5 * * * *", Zone: "Europe/Berlin", Overlap: policies[i%6],
			Jitter: events.Duration(time.Duration(r.IntN(3)) * time.Minute)})
		w.run(r)
		if t.Failed() {
			t.Fatalf("it is world %d", i)
		}
	}
}

func (w *world) run(r *rand.Rand) {
	instances, ends := make(map[string]string), make(map[string]time.Time)
	offered := int64(0)
	for range 400 {
		w.now = w.now.Add(time.Duration(r.IntN(60_000)-5_000) * time.Millisecond)
		if wake := w.s.WakeAt(w.now); r.IntN(2) == 0 && wake.After(w.now) && wake.Sub(w.now) < time.Hour {
			w.now = wake
		}
		for id, end := range ends {
			if !end.After(w.now) {
				w.is[id] = schedule.Status{Kind: schedule.Ended, Word: "completed"}
			}
		}
		w.step()
		for _, run := range w.s.Runs {
			if other, ok := instances[run.Instance]; ok && other != run.Message {
				w.t.Errorf("%s is started by %s and %s", run.Instance, other, run.Message)
			}
			instances[run.Instance] = run.Message
			if _, ok := w.is[run.Instance]; !ok && w.starts[run.Message] > 0 && r.IntN(3) > 0 {
				w.is[run.Instance] = schedule.Status{Kind: schedule.Running}
				ends[run.Instance] = w.now.Add(time.Duration(r.IntN(600)) * time.Second)
			}
		}
	}
	o := schedule.Occurrence{At: midnight}
	for ok := true; ; {
		if o, ok = w.s.Spec.NextAfter(o, midnight); !ok || o.At.After(w.s.Cursor.At) {
			break
		}
		offered++
		started := instances["x@"+o.Nominal] != ""
		complete := w.s.Spec.Overlap == schedule.Allow || w.s.Spec.Overlap == schedule.BufferAll
		buffered := slices.ContainsFunc(w.s.Buffered, func(b schedule.Pending) bool { return b.Nominal == o.Nominal })
		if complete && started == buffered {
			w.t.Errorf("%s: started is %v, buffered is %v", o.Nominal, started, buffered)
		}
	}
	if n := w.s.Started + w.s.Skipped + int64(len(w.s.Buffered)); n != offered || w.s.Missed > 0 ||
		w.s.Started != int64(len(instances)) || w.s.Started == 0 {
		w.t.Errorf("%d started, %d skipped, %d buffered, %d instances, of %d", w.s.Started, w.s.Skipped,
			len(w.s.Buffered), len(instances), offered)
	}
}
