package historytest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// auditTests are about the reads by which an audit finds lost messages.
var auditTests = []test{
	{"audit/values_of_several", auditValues},
	{"audit/tombstones", auditTombstones},
	{"audit/old_entries_are_seen_and_not_taken", auditOutbox},
	{"audit/last_update", auditLastUpdate},
	{"system/is_set_by_one_process", systemIsSetOnce},
}

// auditValues: the values of many instances come at once, and those of a deleted one do not.
func auditValues(t *testing.T, db *Database) {
	s := open(t, db)
	want := make(map[string]string)
	ids := []string{"nobody", "none", "buried", "\xff"}
	s.commit(s.begin("none", "buried")[1].Set("k", `1`))
	s.delete("buried")
	for i := range 250 {
		id := fmt.Sprint("a", i)
		a := s.begin(id)[0]
		s.commit(Together(a.Set("k", fmt.Sprint(i)), a.Set("l", `"`+id+`"`)))
		ids, want[id] = append(ids, id), fmt.Sprint(i)
	}
	got, err := s.ValuesOf(s.ctx(), ids)
	if err != nil || len(got) != len(want) {
		t.Fatalf("the values of %d instances, %v; want %d", len(got), err, len(want))
	}
	for id, v := range want {
		if x := got[id]; len(x) != 2 || string(x["k"].Data) != v || string(x["l"].Data) != `"`+id+`"` {
			t.Fatalf("the values of %q are %+v", id, x)
		}
	}
	if got, err := s.ValuesOf(s.ctx(), nil); err != nil || len(got) != 0 {
		t.Fatalf("the values of nobody: %v, %v", got, err)
	}
}

// auditLastUpdate: the last turn before a moment counts, of whichever instance that is there.
func auditLastUpdate(t *testing.T, db *Database) {
	s := open(t, db)
	at := func(seconds int) time.Time { return Began.Add(time.Duration(seconds) * time.Second) }
	is := func(before, want time.Time) {
		t.Helper()
		if got := must[time.Time](s, "last update")(s.LastUpdate(s.ctx(), before)); !got.Equal(want) {
			t.Errorf("before %v: %v, want %v", before, got, want)
		}
	}
	is(at(100), time.Time{})
	a := s.begin("a", "b", "deleted")
	s.commit(a[0].At(at(10)).Note(), a[1].At(at(20)).Complete(`1`), a[2].At(at(30)).Complete(`1`))
	s.delete("deleted")
	is(at(100), at(20))
	is(at(20).Add(time.Microsecond), at(20))
	is(at(20), at(10))
	is(Began.Add(-time.Hour), time.Time{})
}

// systemIsSetOnce: of several processes that replace the same system, one does, and all read what
// it has set.
func systemIsSetOnce(t *testing.T, db *Database) {
	s := open(t, db)
	read := func() history.System { return must[history.System](s, "system")(s.Identity(s.ctx())) }
	first := read()
	if first.ID != "" || first.Beats != 0 {
		t.Fatalf("a new database belongs to %+v", first)
	}
	var wait sync.WaitGroup
	var won atomic.Int64
	for i := range int64(4) {
		wait.Go(func() {
			now, ok, err := s.SetIdentity(s.ctx(), first, fmt.Sprint("system-", i), i)
			switch {
			case err != nil:
				t.Error(err)
			case ok && (now.ID != fmt.Sprint("system-", i) || now.Beats != i):
				t.Errorf("system-%d was set, and it is %+v", i, now)
			case ok:
				won.Add(1)
			case now.ID == "":
				t.Errorf("nothing was set, and it is %+v", now)
			}
		})
	}
	wait.Wait()
	set := read()
	if won.Load() != 1 || set.ID == "" || set.BeatAt.IsZero() {
		t.Fatalf("%d processes have set the system, and it is %+v", won.Load(), set)
	}
	clock := must[time.Time](s, "clock")(s.Clock(s.ctx()))
	if set.BeatAt.After(clock) || clock.Sub(set.BeatAt) > time.Hour {
		t.Errorf("it was set at %v, and the clock of the database says %v", set.BeatAt, clock)
	}
	stale := set
	stale.Beats--
	if now, ok, err := s.SetIdentity(s.ctx(), stale, "other", 9); ok || err != nil || now != set {
		t.Errorf("replaced another count: %+v, %v, %v", now, ok, err)
	}
	if now, ok, err := s.SetIdentity(s.ctx(), set, set.ID, set.Beats+1); !ok || err != nil ||
		now.Beats != set.Beats+1 || now != read() {
		t.Errorf("one more beat: %+v, %v, %v", now, ok, err)
	}
}

// auditTombstones: a deleted instance has a tombstone until it begins again, or until the tombstone
// is old.
func auditTombstones(t *testing.T, db *Database) {
	s := open(t, db)
	are := func(want ...string) {
		t.Helper()
		got, err := s.Tombstones(s.ctx(), []string{"a", "b", "c", "nobody"})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("there are tombstones of %v (%v), want %v", got, err, want)
		}
	}
	are()
	s.begin("a", "b", "c")
	s.delete("a", "b")
	are("a", "b")
	s.commit(NewActor("b").Start(WithMessage("another")))
	are("a")
	s.clock.Advance(history.TombstoneTTL + time.Minute)
	if _, err := s.Tidy(s.ctx()); err != nil {
		t.Fatal(err)
	}
	are()
}

// auditOutbox: a caller can read the outbox entries, oldest first, any number of times, and a sweep
// finds them afterwards.
func auditOutbox(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 3 {
		a := NewActor(fmt.Sprint("a", i))
		s.commit(Sends(a.Start(), fmt.Sprint("message-", i), "somebody"))
		s.clock.Advance(time.Minute)
	}
	old := func(age time.Duration, limit, want int) {
		t.Helper()
		got, err := s.OldOutbox(s.ctx(), s.clock.Now().Add(-age), limit)
		if err != nil || len(got) != want {
			t.Fatalf("%d outbox entries are older than %v (%v), want %d", len(got), age, err, want)
		}
		for i, p := range got {
			if id := fmt.Sprint("message-", i); p.Err != nil || len(p.Messages) != 1 ||
				p.Messages[0].Header[events.HeaderMsgID][0] != id {
				t.Fatalf("outbox entry %d is %+v", i, p)
			}
		}
	}
	for range 2 {
		old(0, 10, 3)
		old(0, 2, 2)
		old(2*time.Minute-time.Second, 10, 2)
		old(time.Hour, 10, 0)
	}
	taken, err := s.LeaseOutbox(s.ctx(),
		history.Lease{Before: s.clock.Now(), Until: s.clock.Now().Add(time.Hour), Limit: 10})
	if err != nil || len(taken) != 3 {
		t.Fatalf("%d outbox entries were leased (%v), want 3", len(taken), err)
	}
	old(0, 10, 3) // they are leased, but not removed

	for i := range 3 {
		turn := NewActor(fmt.Sprint("large", i)).Start()
		for k := range 8 {
			Sends(turn, fmt.Sprintf("large-%d-%d-%s", i, k, strings.Repeat("x", 450<<10)), "somebody")
			turn.Messages[k].ID = fmt.Sprint("large-", i, "-", k)
		}
		s.commit(turn)
		s.clock.Advance(time.Minute)
	}
	// Only some of the large ones are read at once.
	got, err := s.OldOutbox(s.ctx(), s.clock.Now(), 100)
	messages := 0
	for _, p := range got {
		messages += len(p.Messages)
	}
	if err != nil || messages < 3+8 || messages > 3+19 {
		t.Fatalf("%d of 27 messages are read at once (%v), want about 8 MiB", messages, err)
	}
}
