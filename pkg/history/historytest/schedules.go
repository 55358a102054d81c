package historytest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// scheduleTests are about [history.Schedules].
var scheduleTests = []test{
	{"schedules/come_back_as_they_were", schedulesComeBack},
	{"schedules/changed_from_the_expected_version_only", schedulesExpected},
	{"schedules/created_again_repeat_no_version", schedulesCreatedAgain},
	{"schedules/one_of_many_changes_wins", schedulesOneWins},
	{"schedules/messages_come_with_their_change", schedulesMessages},
	{"schedules/many_messages", schedulesManyMessages},
	{"schedules/due_in_order", schedulesDue},
	{"schedules/due_after_a_move", schedulesMoved},
	{"schedules/due_long_ago", schedulesDueLongAgo},
	{"schedules/due_with_large_data", schedulesDueLarge},
	{"schedules/list", schedulesListed},
	{"schedules/list_by_prefix", schedulesByPrefix},
	{"schedules/list_within_bytes", schedulesWithin},
	{"schedules/wrong_changes", schedulesWrong},
	{"schedules/after_reopening", schedulesReopened},
	{"schedules/cancelled_before_anything", schedulesCancelled},
	{"schedules/cancelled_while_changing", schedulesCancelledDuring},
	{"schedules/any_changes", schedulesProperty},
}

// scheduled changes schedules and reads them.
type scheduled struct{ *store }

func openScheduled(t *testing.T, db *Database) scheduled { return scheduled{open(t, db)} }

// starts is a message of a run that a schedule starts.
func starts(id string) events.Wire {
	return events.Wire{Subject: "rondo.inbox.3." + id, Body: []byte(`{"start":"` + id + `"}`),
		Header: events.Header{events.HeaderMsgID: {id}, "Odd": {"", "zwei wörter", "%_"}}}
}

// attempt tries a change.
func (s scheduled) attempt(c history.ScheduleChange) ([]history.OutboxKey, bool) {
	s.Helper()
	keys, ok, err := s.ChangeSchedule(s.ctx(), c)
	if err != nil {
		s.Fatalf("change schedule %q: %v", c.ID, err)
	}
	if !ok && len(keys) > 0 {
		s.Fatalf("a change of schedule %q was refused, and has outbox entries: %v", c.ID, keys)
	}
	return keys, ok
}

// change makes a change that must be taken, and returns the stored schedule.
func (s scheduled) change(c history.ScheduleChange) history.Schedule {
	s.Helper()
	if _, ok := s.attempt(c); !ok {
		s.Fatalf("the change of schedule %q from version %d was refused", c.ID, c.Expected)
	}
	if c.Delete {
		s.none(c.ID)
		return history.Schedule{}
	}
	got := s.one(c.ID)
	switch {
	case c.Expected > 0 && got.Version != c.Expected+1:
		s.Fatalf("schedule %q has version %d, want %d", c.ID, got.Version, c.Expected+1)
	case got.Version < 1:
		s.Fatalf("schedule %q has version %d", c.ID, got.Version)
	}
	return got
}

// refuse tries a change that must be refused, and changes nothing.
func (s scheduled) refuse(what string, c history.ScheduleChange) {
	s.Helper()
	before, there, err := s.Schedule(s.ctx(), c.ID)
	if err != nil {
		s.Fatal(err)
	}
	c.Messages = append(c.Messages, starts("refused"))
	if _, ok := s.attempt(c); ok {
		s.Fatalf("%s: the change was taken", what)
	}
	after, still, err := s.Schedule(s.ctx(), c.ID)
	if err != nil {
		s.Fatal(err)
	}
	if there != still {
		s.Fatalf("%s: the schedule is there: %t, before: %t", what, still, there)
	}
	s.equal(what, after, before)
	s.entries(0)
}

// put creates a schedule.
func (s scheduled) put(id string, wakeAt time.Time) history.Schedule {
	s.Helper()
	return s.change(scheduleOf(id, wakeAt, 0))
}

func scheduleOf(id string, wakeAt time.Time, expected int64) history.ScheduleChange {
	return history.ScheduleChange{Expected: expected, Schedule: history.Schedule{ID: id, WakeAt: wakeAt,
		ChangedAt: Began, Data: []byte("data of " + id)}}
}

func deletionOf(id string, expected int64) history.ScheduleChange {
	return history.ScheduleChange{Schedule: history.Schedule{ID: id}, Expected: expected, Delete: true}
}

func (s scheduled) one(id string) history.Schedule {
	s.Helper()
	got, ok, err := s.Schedule(s.ctx(), id)
	if err != nil || !ok || got.ID != id {
		s.Fatalf("schedule %q: %+v, %t, %v", id, got, ok, err)
	}
	return got
}

func (s scheduled) none(id string) {
	s.Helper()
	if got, ok, err := s.Schedule(s.ctx(), id); err != nil || ok || got.ID != "" {
		s.Fatalf("schedule %q: %+v, %t, %v; want none", id, got, ok, err)
	}
}

// due checks which schedules are due.
func (s scheduled) due(before time.Time, limit int, want ...string) {
	s.Helper()
	list, err := s.DueSchedules(s.ctx(), before, limit)
	if err != nil {
		s.Fatal(err)
	}
	if got := scheduleIDs(list); !slices.Equal(got, want) {
		s.Fatalf("before %v, %q are due, want %q", before, got, want)
	}
	for _, x := range list {
		s.equal("due "+x.ID, x, s.one(x.ID))
	}
}

func scheduleIDs(list []history.Schedule) (ids []string) {
	for _, x := range list {
		ids = append(ids, x.ID)
	}
	return ids
}

// schedulesComeBack: a schedule is read as it was stored, with any data.
func schedulesComeBack(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	s.none("absent")
	s.none("a\x00b") // no database could hold it
	large := make([]byte, history.MaxScheduleData)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	at := Began.Add(time.Hour + 123456*time.Microsecond)
	for i, want := range []history.Schedule{
		{ID: "plain", WakeAt: at, ChangedAt: at.Add(-time.Hour), Data: []byte(`{"cron":"0 * * * *"}`)},
		{ID: "never", ChangedAt: at, Data: []byte{0, 1, 255, '\n', '\''}},
		{ID: "größe %_\\'\"; 日本", WakeAt: Began.Add(-100 * 365 * 24 * time.Hour), ChangedAt: at, Data: []byte("x")},
		{ID: "large", WakeAt: Began.Add(200 * 365 * 24 * time.Hour), ChangedAt: at, Data: large},
		{ID: "empty", WakeAt: at, ChangedAt: at},
		{ID: strings.Repeat("ü", events.MaxInstanceID/2), ChangedAt: at, Data: []byte("y")},
		{ID: "no time of its change", Data: []byte("z")},
	} {
		got := s.change(history.ScheduleChange{Schedule: want})
		want.Version = got.Version
		if len(got.Data) == 0 {
			got.Data = nil
		}
		s.equal(fmt.Sprint("schedule ", i), got, want)
		next := want
		next.WakeAt, next.ChangedAt, next.Data = at.Add(time.Minute), at.Add(time.Second), []byte("changed")
		got = s.change(history.ScheduleChange{Schedule: next, Expected: want.Version})
		next.Version = want.Version + 1
		s.equal(fmt.Sprint("changed schedule ", i), got, next)
		next.WakeAt = time.Time{}
		got = s.change(history.ScheduleChange{Schedule: next, Expected: next.Version})
		next.Version++
		s.equal(fmt.Sprint("schedule that rests ", i), got, next)
	}
}

// schedulesExpected: a change is refused if the stored version is not the expected one.
func schedulesExpected(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	s.refuse("a change of none", scheduleOf("a", Began, 7))
	s.refuse("a deletion of none", deletionOf("a", 7))
	v := s.put("a", Began).Version
	other := s.put("b", Began).Version
	s.refuse("another creation", scheduleOf("a", Began, 0))
	for _, wrong := range []int64{1, v - 1, v + 1, other, 1<<63 - 1} {
		if wrong == v || wrong <= 0 {
			continue
		}
		s.refuse("a wrong version", scheduleOf("a", Began.Add(time.Hour), wrong))
		s.refuse("a deletion of a wrong version",
			deletionOf("a", wrong))
	}
	s.change(scheduleOf("a", Began, v))
	s.refuse("the version before", scheduleOf("a", Began, v))
	s.refuse("a deletion of the version before",
		deletionOf("a", v))
	s.change(deletionOf("a", v+1))
	s.refuse("deleted meanwhile", scheduleOf("a", Began, v+1))
	s.refuse("deleted twice", deletionOf("a", v+1))
	s.equal("the other", s.one("b").Version, other)
}

// schedulesCreatedAgain: after a deletion and a new creation, the holder of an old version is
// refused. The clock stands still.
func schedulesCreatedAgain(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	old := make(map[int64]bool)
	for range 20 {
		v := s.put("a", Began).Version
		for range 3 {
			if old[v] {
				t.Fatalf("version %d is there again", v)
			}
			for before := range old {
				s.refuse("a version before the deletion", scheduleOf("a", Began, before))
				break
			}
			old[v] = true
			v = s.change(scheduleOf("a", Began, v)).Version
		}
		s.change(deletionOf("a", v))
	}
}

// schedulesOneWins: of many changes at once from one version, one is taken, and its messages alone
// are stored.
func schedulesOneWins(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	stores := []history.Store{s.Store}
	if db.Shared {
		stores = append(stores, db.Open(t, Options{Now: s.clock.Now}))
	}
	const changers = 8
	var version int64
	for round := range racetest.Short(30, 12) {
		deletes := round%5 == 4
		type result struct {
			n    int
			keys []history.OutboxKey
			ok   bool
		}
		results := make([]result, changers)
		var all sync.WaitGroup
		for n := range changers {
			c := scheduleOf("a", Began.Add(time.Duration(n)*time.Second), version)
			c.Data = fmt.Append(nil, n)
			c.Messages = []events.Wire{starts(fmt.Sprint("by-", n))}
			c.Delete = deletes && n%2 == 0
			all.Go(func() {
				keys, ok, err := stores[n%len(stores)].ChangeSchedule(s.ctx(), c)
				if err != nil {
					t.Error(err)
				}
				results[n] = result{n, keys, ok}
			})
		}
		all.Wait()
		won := slices.DeleteFunc(results, func(r result) bool { return !r.ok })
		if len(won) != 1 {
			t.Fatalf("%d of %d changes of version %d were taken", len(won), changers, version)
		}
		x := won[0]
		if got := s.messages(s.lease(100, time.Hour)); !slices.Equal(got, []string{fmt.Sprint("by-", x.n)}) {
			t.Fatalf("change %d was taken, and the messages %q are stored", x.n, got)
		}
		if err := s.RemoveOutbox(s.ctx(), x.keys); err != nil {
			t.Fatal(err)
		}
		s.entries(0)
		if version = 0; deletes && x.n%2 == 0 {
			s.none("a")
			continue
		}
		got := s.one("a")
		if string(got.Data) != fmt.Sprint(x.n) {
			t.Fatalf("change %d was taken, and the data is %s", x.n, got.Data)
		}
		version = got.Version
	}
}

// schedulesMessages: a sweep leases the messages of a change as they were, in order.
func schedulesMessages(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	want := []events.Wire{
		starts("first"),
		{Subject: "a.b", NotBefore: Began.Add(time.Hour + 7*time.Nanosecond)},
		{Subject: "a.%_ü", Purge: true},
		{Subject: "binary", Body: []byte{0, 255, 1}, Header: events.Header{"N": {"1", "2"}}},
	}
	for what, c := range map[string]func() history.ScheduleChange{
		"creation": func() history.ScheduleChange { return scheduleOf("a", Began, 0) },
		"change":   func() history.ScheduleChange { return scheduleOf("b", Began, s.put("b", Began).Version) },
		"deletion": func() history.ScheduleChange {
			return history.ScheduleChange{Schedule: history.Schedule{ID: "c"}, Delete: true,
				Expected: s.put("c", Began).Version}
		},
	} {
		x := c()
		x.Messages = slices.Clone(want)
		keys, ok := s.attempt(x)
		if !ok || len(keys) != 1 {
			t.Fatalf("%s: %t, %v", what, ok, keys)
		}
		list := s.lease(10, time.Hour)
		if len(list) != 1 || list[0].Err != nil || list[0].Key != keys[0] {
			t.Fatalf("%s: leased %+v, want the entry %v", what, list, keys)
		}
		s.equal(what, list[0].Messages, want)
		if err := s.RemoveOutbox(s.ctx(), keys); err != nil {
			t.Fatal(err)
		}
		s.entries(0)
	}
}

// schedulesManyMessages: the messages of one change may fill several outbox entries.
func schedulesManyMessages(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	c := scheduleOf("a", Began, 0)
	for n := range 100 {
		m := starts(fmt.Sprintf("%03d", n))
		m.Body = []byte(strings.Repeat("x", 20<<10))
		c.Messages = append(c.Messages, m)
	}
	keys, ok := s.attempt(c)
	if !ok || len(keys) < 4 {
		t.Fatalf("%t, %v", ok, keys)
	}
	got := s.messages(s.lease(100, time.Hour))
	slices.Sort(got)
	if len(got) != 100 || len(slices.Compact(got)) != 100 {
		t.Fatalf("%d messages are stored: %q", len(got), got)
	}
	if err := s.RemoveOutbox(s.ctx(), keys); err != nil {
		t.Fatal(err)
	}
	s.entries(0)
}

// schedulesDue: schedules are due in the order of their times, and of their ids at one time, before
// a moment and not at it. One without a time is never due.
func schedulesDue(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	s.due(Began.Add(time.Hour), 10)
	for n, id := range []string{"e", "b", "d", "a", "c"} {
		s.put(id, Began.Add(time.Duration(n/2)*time.Second))
	}
	s.put("never", time.Time{})
	s.due(Began, 10)
	s.due(Began.Add(time.Microsecond), 10, "b", "e")
	s.due(Began.Add(time.Second), 10, "b", "e")
	s.due(Began.Add(time.Hour), 0, "b", "e", "a", "d", "c")
	s.due(Began.Add(time.Hour), 3, "b", "e", "a")
	s.due(Began.Add(time.Hour), 1, "b")
	s.due(Began.Add(1000*24*time.Hour), 100_000, "b", "e", "a", "d", "c")
}

// schedulesMoved: a change moves the time, in both directions, and a deletion removes it.
func schedulesMoved(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	now := Began.Add(time.Hour)
	a, b := s.put("a", Began), s.put("b", Began.Add(time.Second))
	s.due(now, 10, "a", "b")
	a = s.change(scheduleOf("a", Began.Add(2*time.Second), a.Version))
	s.due(now, 10, "b", "a")
	a = s.change(scheduleOf("a", now.Add(time.Hour), a.Version))
	s.due(now, 10, "b")
	b = s.change(scheduleOf("b", time.Time{}, b.Version))
	s.due(now, 10)
	b = s.change(scheduleOf("b", now.Add(-time.Microsecond), b.Version))
	s.due(now, 10, "b")
	s.change(deletionOf("b", b.Version))
	s.due(now, 10)
	s.due(now.Add(2*time.Hour), 10, "a")
	s.change(scheduleOf("a", now.Add(-48*time.Hour), a.Version)) // long before the last search
	s.due(now.Add(2*time.Hour), 10, "a")
}

// schedulesDueLongAgo: a store finds a schedule that another process has stored with a time that
// had passed long before, after a few searches.
func schedulesDueLongAgo(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	now := Began.Add(1000 * time.Hour)
	for range history.ScheduleLooks + 1 {
		s.due(now, 10)
	}
	if db.Shared {
		other := scheduled{newStore(t, db.Open(t, Options{Now: s.clock.Now}), db, s.clock)}
		other.put("recent", now.Add(-history.ScheduleSlack))
		s.due(now, 10, "recent")
		other.put("old", Began)
		for n := 0; ; n++ {
			list, err := s.DueSchedules(s.ctx(), now, 10)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Equal(scheduleIDs(list), []string{"old", "recent"}) {
				break
			}
			if n == history.ScheduleLooks {
				t.Fatalf("after %d searches: %q", n, scheduleIDs(list))
			}
		}
		other.due(now, 10, "old", "recent")
	}
	s.put("oldest", Began.Add(-time.Hour))
	list, err := s.DueSchedules(s.ctx(), now, 1)
	if err != nil || !slices.Equal(scheduleIDs(list), []string{"oldest"}) {
		t.Fatalf("%q, %v", scheduleIDs(list), err)
	}
}

// schedulesDueLarge: a search does not read more data than fits, and goes on with the others.
func schedulesDueLarge(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	const all = 12
	for n := range all {
		c := scheduleOf(fmt.Sprintf("%02d", n), Began.Add(time.Duration(n)*time.Second), 0)
		c.Data = make([]byte, history.MaxScheduleData)
		s.change(c)
	}
	searches := 0
	for left := all; left > 0; searches++ {
		list, err := s.DueSchedules(s.ctx(), Began.Add(time.Hour), 100)
		if err != nil || len(list) == 0 || len(list) > 9 {
			t.Fatalf("%d schedules, %v", len(list), err)
		}
		for _, x := range list {
			if want := fmt.Sprintf("%02d", all-left); x.ID != want || len(x.Data) != history.MaxScheduleData {
				t.Fatalf("%q with %d bytes, want %q", x.ID, len(x.Data), want)
			}
			s.change(deletionOf(x.ID, x.Version))
			left--
		}
	}
	if searches < 2 {
		t.Fatalf("%d MiB at once", all)
	}
}

// schedulesWrong: changes that no database should get are refused for good.
func schedulesWrong(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	v := s.put("a", Began).Version
	large := scheduleOf("a", Began, v)
	large.Data = make([]byte, history.MaxScheduleData+1)
	for what, c := range map[string]history.ScheduleChange{
		"no id": {}, "a NUL": scheduleOf("a\x00", Began, 0), "no UTF-8": scheduleOf("\xff", Began, 0),
		"a long id":                  scheduleOf(strings.Repeat("x", events.MaxInstanceID+1), Began, 0),
		"a negative version":         scheduleOf("a", Began, -1),
		"a deletion of no version":   {Schedule: history.Schedule{ID: "a"}, Delete: true},
		"more data than may be kept": large,
	} {
		c.Messages = []events.Wire{starts("wrong")}
		keys, ok, err := s.ChangeSchedule(s.ctx(), c)
		if ok || keys != nil {
			t.Errorf("%s: taken", what)
		}
		s.class(err, history.Permanent)
	}
	_, _, err := s.ChangeSchedule(s.ctx(), large)
	s.fails("large data", err, history.ErrScheduleTooLarge)
	s.equal("the version", s.one("a").Version, v)
	s.entries(0)
}

// schedulesReopened: schedules and their messages are there after reopening.
func schedulesReopened(t *testing.T, db *Database) {
	if db.Volatile {
		t.Skip("it is gone then")
	}
	s := openScheduled(t, db)
	a, b := s.put("a", Began), s.put("b", time.Time{})
	b = s.change(scheduleOf("b", Began.Add(time.Hour), b.Version))
	c := scheduleOf("c", Began, 0)
	c.Messages = []events.Wire{starts("kept")}
	want := s.change(c)
	s = scheduled{s.reopen()}
	s.equal("a", s.one("a"), a)
	s.equal("b", s.one("b"), b)
	s.equal("c", s.one("c"), want)
	s.due(Began.Add(2*time.Hour), 10, "a", "c", "b")
	if got := s.messages(s.lease(10, time.Hour)); !slices.Equal(got, []string{"kept"}) {
		t.Fatalf("the messages are %q", got)
	}
	s.change(scheduleOf("b", Began, b.Version))
}

// schedulesCancelled: a context that has ended stops everything before it begins.
func schedulesCancelled(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	before := s.put("a", Began)
	ctx, cancel := context.WithCancel(s.ctx())
	cancel()
	c := scheduleOf("a", Began.Add(time.Hour), before.Version)
	c.Messages = []events.Wire{starts("never")}
	for name, call := range map[string]func() error{
		"change": func() error { _, _, err := s.ChangeSchedule(ctx, c); return err },
		"create": func() error { _, _, err := s.ChangeSchedule(ctx, scheduleOf("b", Began, 0)); return err },
		"read":   func() error { _, _, err := s.Schedule(ctx, "a"); return err },
		"due":    func() error { _, err := s.DueSchedules(ctx, Began.Add(time.Hour), 10); return err },
		"list":   func() error { _, err := s.ListSchedules(ctx, history.ScheduleFilter{}, history.Page{}); return err },
		"list within": func() error {
			_, err := s.Within(1000).ListSchedules(ctx, history.ScheduleFilter{}, history.Page{})
			return err
		},
	} {
		if err := call(); err == nil || history.ClassOf(err) != history.Retry {
			t.Errorf("%s: %v (%v)", name, err, history.ClassOf(err))
		}
	}
	s.equal("a", s.one("a"), before)
	s.none("b")
	s.entries(0)
	s.due(Began.Add(time.Hour), 10, "a") // the error has no effect on later searches
}

// schedulesCancelledDuring: the error of a change that runs out of time at any moment is true.
func schedulesCancelledDuring(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	v := s.put("a", Began).Version
	seen := make(map[history.Class]int)
	var want []string
	for n := range racetest.Short(60, 20) {
		c := scheduleOf("a", Began, v)
		c.Data = fmt.Append(nil, n)
		c.Messages = []events.Wire{starts(fmt.Sprintf("%03d", n))}
		ctx, cancel := context.WithTimeout(s.ctx(), rand.N(4*time.Millisecond))
		_, ok, err := s.ChangeSchedule(ctx, c)
		cancel()
		class := history.ClassOf(err)
		if err == nil {
			class = 0
		}
		seen[class]++
		happened := ok
		switch class {
		case 0:
			if !ok {
				t.Fatal("refused, although no other process has changed it")
			}
		case history.Retry, history.Contended:
		case history.Ambiguous:
			// It may still be in flight. Another change of the old version waits for it.
			other := scheduleOf("a", Began, v)
			_, first := s.attempt(other)
			happened = !first
			if first {
				v++
			}
		default:
			t.Fatalf("a change that ran out of time: %v (%v)", err, class)
		}
		if happened {
			v++
			want = append(want, fmt.Sprintf("%03d", n))
		}
		if got := s.one("a"); got.Version != v || happened && string(got.Data) != fmt.Sprint(n) {
			t.Fatalf("the change of version %d is said to have happened (%v): %t, and it is version %d with %s", v,
				err, happened, got.Version, got.Data)
		}
	}
	got := s.messages(s.lease(1000, time.Hour))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("the messages are %q, want %q", got, want)
	}
	t.Log(seen)
}

// schedulesProperty compares a store with a model, under any changes.
func schedulesProperty(t *testing.T, db *Database) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	s := openScheduled(t, db)
	model := make(map[string]history.Schedule)
	held := []int64{0, 1} // versions that callers may know
	var want []string
	ids := []string{"a", "a%", "a_b", "b", "ü"}
	for n := range racetest.Short(400, 150) {
		id := ids[chance.IntN(len(ids))]
		now, there := model[id]
		c := scheduleOf(id, Began.Add(time.Duration(chance.IntN(20))*time.Second), now.Version)
		if c.Data = fmt.Append(nil, n); chance.IntN(4) == 0 {
			c.WakeAt = time.Time{}
		}
		if chance.IntN(4) == 0 {
			c.Expected = held[chance.IntN(len(held))]
		}
		c.Delete = c.Expected > 0 && chance.IntN(5) == 0
		if chance.IntN(2) == 0 {
			c.Messages = []events.Wire{starts(fmt.Sprintf("%04d", n))}
		}
		_, ok := s.attempt(c)
		if may := c.Expected == now.Version; ok != may {
			t.Fatalf("change %d of %q from version %d was taken: %t; it has version %d", n, id, c.Expected, ok,
				now.Version)
		}
		if ok && len(c.Messages) > 0 {
			want = append(want, fmt.Sprintf("%04d", n))
		}
		switch {
		case ok && c.Delete:
			delete(model, id)
		case ok:
			got := s.one(id)
			if there {
				c.Version = now.Version + 1
			} else {
				c.Version = got.Version
			}
			s.equal("changed", got, c.Schedule)
			model[id] = got
			held = append(held, got.Version)
		}
		before, limit := Began.Add(time.Duration(chance.IntN(22))*time.Second), 1+chance.IntN(6)
		s.due(before, limit, dueOf(model, before, limit)...)
	}
	listed, _ := s.pagesOf(s.Store, history.ScheduleFilter{}, 2)
	for _, id := range ids {
		if _, there := model[id]; there != slices.Contains(listed, id) {
			t.Errorf("%q is there: %t; listed are %q", id, there, listed)
		}
	}
	got := s.messages(s.lease(1000, time.Hour))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("the messages are %q, want %q", got, want)
	}
}

// dueOf are the schedules of a model that are due.
func dueOf(model map[string]history.Schedule, before time.Time, limit int) (ids []string) {
	var due []history.Schedule
	for _, x := range model {
		if !x.WakeAt.IsZero() && x.WakeAt.Before(before) {
			due = append(due, x)
		}
	}
	slices.SortFunc(due, func(a, b history.Schedule) int {
		return cmp.Or(a.WakeAt.Compare(b.WakeAt), strings.Compare(a.ID, b.ID))
	})
	return scheduleIDs(due[:min(len(due), limit)])
}
