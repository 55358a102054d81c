package historytest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// wakeTests are about instances that must be looked at.
var wakeTests = []test{
	{"wakes/overdue_instances_are_taken", overdueTaken},
	{"wakes/nobody_is_taken_before_it_is_due", overdueNotBefore},
	{"wakes/a_taken_instance_is_left_alone", overduePostponed},
	{"wakes/a_turn_decides_anew", overdueDecidedAnew},
	{"wakes/ended_instances_leave", overdueEnded},
	{"wakes/instances_that_wait_for_messages_are_left_alone", overdueNever},
	{"wakes/deleted_instances_leave", overdueDeleted},
	{"wakes/suspended_and_halted_instances_may_be_due", overdueSuspended},
	{"wakes/oldest_first_within_a_shard", overdueOrder},
	{"wakes/limit", overdueLimited},
	{"wakes/taken_by_many_at_once", overdueTakenByMany},
	{"wakes/postponing_changes_nothing_else", overdueKeepsVersion},
	{"wakes/what_was_due_is_found_after_reopening", overdueAfterReopening},
	{"wakes/a_time_that_has_passed_long_ago_is_found", overdueLongAgo},
	{"wakes/a_clock_that_is_behind_is_found", overdueBehind},
	{"wakes/an_instance_that_is_being_written_is_found_later", overdueLocked},
}

// overdue leases, for an hour, the instances that are due at a time after everything began.
func (s *sleepers) overdue(after time.Duration) []history.Overdue {
	s.Helper()
	s.clock.at = Began.Add(after)
	list, err := s.LeaseOverdue(s.ctx(), history.Lease{Before: s.clock.at, Until: s.clock.at.Add(time.Hour),
		Limit: 100})
	if err != nil {
		s.Fatalf("lease overdue instances: %v", err)
	}
	return list
}

// due checks which instances are due at a time, whatever their order.
func (s *sleepers) due(after time.Duration, want ...string) {
	s.Helper()
	var got []string
	for _, o := range s.overdue(after) {
		got = append(got, o.Instance)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Fatalf("after %v, %q are due, want %q", after, got, want)
	}
}

// sleeper commits a new instance that must be looked at some time after everything began.
func (s *sleepers) sleeper(id string, wake time.Duration) *Actor {
	s.Helper()
	a := NewActor(id).At(s.clock.Now())
	s.commit(Together(a.Start(), a.Wake(Began.Add(wake))))
	return a
}

// overdueTaken shows what a sweep learns: which instance is overdue, since when, and its version.
func overdueTaken(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.sleeper("a", time.Minute)
	s.commit(a.SetStatus(`"x"`))
	list := s.overdue(2 * time.Minute)
	if len(list) != 1 || list[0].Instance != "a" || list[0].RowVersion != a.Row.RowVersion() {
		t.Fatalf("%+v, want %+v", list, a.Row.RowVersion())
	}
	// It may have been rounded up, not down.
	if at := list[0].WakeAt; at.Before(Began.Add(time.Minute)) || at.After(Began.Add(2*time.Minute)) {
		t.Fatal(at)
	}
}

// overdueNotBefore shows that no instance is woken before its time, at whatever part of a second
// that is, and none much later.
func overdueNotBefore(t *testing.T, db *Database) {
	s := open(t, db)
	for i, wake := range []time.Duration{10 * time.Second, 10*time.Second + 1, 19*time.Second + 999*time.Millisecond,
		20*time.Second - time.Microsecond} {
		id := fmt.Sprint("a", i)
		s.sleeper(id, wake)
		s.due(0)
		s.due(wake)
		s.due(wake+30*time.Second, id)
	}
}

// overduePostponed shows that an instance that was taken is left alone until the time the sweep has
// given, and is found again then.
func overduePostponed(t *testing.T, db *Database) {
	s := open(t, db)
	s.sleeper("a", time.Minute)
	s.due(2*time.Minute, "a")
	s.due(2 * time.Minute)
	s.due(time.Hour)
	s.due(2*time.Hour, "a")
	s.due(4*time.Hour, "a")
}

// overdueDecidedAnew shows that each turn decides when to look next, for one that was taken, too.
func overdueDecidedAnew(t *testing.T, db *Database) {
	s := open(t, db)
	a, b := s.sleeper("a", time.Minute), s.sleeper("b", time.Minute)
	s.commit(a.Wake(Began.Add(3 * time.Hour)))
	s.due(2*time.Minute, "b")
	s.commit(b.Wake(Began.Add(10 * time.Minute)))
	s.due(20*time.Minute, "b")
	s.due(4*time.Hour, "a", "b")
}

// overdueEnded shows that instances that have ended are never due, and that those that are started
// anew can be.
func overdueEnded(t *testing.T, db *Database) {
	s := open(t, db)
	ends := []func(*Actor) *round.Turn{
		func(a *Actor) *round.Turn { return a.Complete("1") },
		func(a *Actor) *round.Turn { return a.Fail("broken") },
		func(a *Actor) *round.Turn { return a.Terminate("enough") },
	}
	var again []*round.Turn
	for i, end := range ends {
		a := s.sleeper(fmt.Sprint("a", i), time.Minute)
		s.commit(end(a))
		again = append(again, a.StartAndCall(WithMessage("again")))
	}
	s.due(time.Hour)
	s.commit(again...)
	s.due(2*time.Hour, "a0", "a1", "a2")
}

// overdueNever shows that an instance without a time is never due, also if it had one before.
func overdueNever(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.sleeper("a", time.Minute)
	s.commit(a.Wake(time.Time{}), NewActor("b").Start())
	s.due(1000 * time.Hour)
	s.same(a)
}

// overdueDeleted shows that deleted instances are not due.
func overdueDeleted(t *testing.T, db *Database) {
	s := open(t, db)
	s.sleeper("a", time.Minute)
	s.sleeper("b", time.Minute)
	s.delete("a")
	s.due(time.Hour, "b")
}

// overdueSuspended shows that the wake time counts, and not the status: an orchestrator may have to
// load suspended and halted instances, too.
func overdueSuspended(t *testing.T, db *Database) {
	s := open(t, db)
	a, b := s.sleeper("a", time.Minute), s.sleeper("b", time.Minute)
	s.commit(a.Stand(round.Suspended), b.Stand(round.Halted))
	a.Row.WakeAt, b.Row.WakeAt = Began.Add(time.Hour), Began.Add(time.Hour)
	s.commit(a.Note(), b.Note())
	s.due(2*time.Hour, "a", "b")
}

// overdueOrder shows that within a shard those come first that have been due for longest.
func overdueOrder(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 60 {
		s.sleeper(fmt.Sprint("a", i), time.Duration(100-(i*37)%60)*time.Minute)
	}
	last := make(map[int16]history.Overdue)
	list := s.overdue(24 * time.Hour)
	for _, o := range list {
		if before := last[db.Shard(o.Instance)]; o.WakeAt.Before(before.WakeAt) {
			t.Fatalf("%q was due at %v, and comes after %q, due at %v", o.Instance, o.WakeAt, before.Instance,
				before.WakeAt)
		}
		last[db.Shard(o.Instance)] = o
	}
	if len(list) != 60 {
		t.Fatal(len(list))
	}
}

// overdueLimited shows that a sweep takes no more than it asks for, and that one after the other
// they take all.
func overdueLimited(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 20 {
		s.sleeper(fmt.Sprint("a", i), time.Minute)
	}
	seen := make(map[string]bool)
	s.clock.Advance(time.Hour)
	for _, want := range []int{8, 8, 4, 0} {
		list, err := s.LeaseOverdue(s.ctx(),
			history.Lease{Before: s.clock.Now(), Until: s.clock.Now().Add(time.Hour), Limit: 8})
		if err != nil || len(list) != want {
			t.Fatal(len(list), want, err)
		}
		for _, o := range list {
			seen[o.Instance] = true
		}
	}
	if len(seen) != 20 {
		t.Fatal(seen)
	}
}

// overdueTakenByMany shows that sweeps at the same time share the due instances: each instance is
// leased by one of them.
func overdueTakenByMany(t *testing.T, db *Database) {
	s := open(t, db)
	stores := []*store{s}
	if db.Shared {
		stores = append(stores, open(t, db))
	}
	var turns []*round.Turn
	for i := range 200 {
		a := NewActor(fmt.Sprint("a", i))
		turns = append(turns, Together(a.Start(), a.Wake(Began.Add(time.Minute))))
	}
	s.commit(turns...)
	now := Began.Add(time.Hour)
	for _, x := range stores {
		x.clock.at = now
	}
	found := make(chan []string)
	for i := range 6 {
		go func() {
			var all []string
			for {
				list, err := stores[i%len(stores)].LeaseOverdue(t.Context(),
					history.Lease{Before: now, Until: now.Add(time.Hour), Limit: 9})
				if err != nil {
					t.Error(err)
				}
				for _, o := range list {
					all = append(all, o.Instance)
				}
				if len(list) == 0 {
					break
				}
			}
			found <- all
		}()
	}
	var got []string
	for range 6 {
		got = append(got, <-found...)
	}
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); n != len(got) {
		t.Fatalf("%d instances were taken %d times", n, len(got))
	}
	// A sweep may get nothing while another locks the remaining rows. A later sweep finds those.
	for _, o := range s.overdue(time.Hour) {
		got = append(got, o.Instance)
	}
	if len(got) != 200 {
		t.Fatalf("%d of 200 were taken", len(got))
	}
}

// overdueKeepsVersion shows that taking an instance over changes nothing but its time: a turn that
// was decided before is taken.
func overdueKeepsVersion(t *testing.T, db *Database) {
	s := open(t, db)
	a := s.sleeper("a", time.Minute)
	before := s.load("a")
	s.due(2*time.Minute, "a")
	s.same(a)
	after := s.load("a")
	before.Row.WakeAt, after.Row.WakeAt = time.Time{}, time.Time{}
	if asJSON(before) != asJSON(after) {
		t.Fatalf("before:\n%s\nafter:\n%s", asJSON(before), asJSON(after))
	}
	s.commit(a.Complete("1"))
	s.same(a)
}

// overdueAfterReopening shows that the next process finds the instances that were due or leased
// when a process died, after many sweeps, too.
func overdueAfterReopening(t *testing.T, db *Database) {
	s := open(t, db)
	s.sleeper("a", time.Minute)
	for hour := range 10 {
		s.sleeper(fmt.Sprint("b", hour), time.Duration(hour)*time.Hour+time.Minute)
		s = s.reopen()
		s.due(time.Duration(hour)*61*time.Minute+10*time.Minute, "a", fmt.Sprint("b", hour))
		s.delete(fmt.Sprint("b", hour))
	}
}

// overdueLongAgo shows that a turn may set a time that has passed long ago, below all that sweeps
// have seen: it is due at once.
func overdueLongAgo(t *testing.T, db *Database) {
	s := open(t, db)
	for hour := range 5 {
		s.due(time.Duration(hour) * time.Hour)
	}
	s.sleeper("a", -1000*time.Hour)
	s.due(4*time.Hour+time.Minute, "a")
	s = s.reopen()
	s.sleeper("b", time.Hour)
	s.due(4*time.Hour+2*time.Minute, "b")
}

// overdueBehind shows that what a process writes whose clock is behind is found by the others: by
// minutes always, by hours once it has swept.
func overdueBehind(t *testing.T, db *Database) {
	if !db.Shared {
		t.Skip("there is one process only")
	}
	minutes, hours, fast := open(t, db), open(t, db), open(t, db)
	for hour := range 10 {
		fast.due(time.Duration(hour) * time.Hour)
	}
	minutes.clock.at = fast.clock.at.Add(-9 * time.Minute)
	minutes.sleeper("minutes", 9*time.Hour-9*time.Minute)
	hours.due(time.Hour)
	hours.sleeper("hours", time.Hour)
	fast.due(9*time.Hour+time.Minute, "hours", "minutes")
}

// overdueLocked shows that an instance that cannot be leased because a transaction has locked its
// row is found by a later sweep, if that transaction rolls back.
func overdueLocked(t *testing.T, db *Database) {
	if db.Hold == nil {
		t.Skip("nobody else can hold a row of this database")
	}
	s := open(t, db)
	s.sleeper("a", time.Minute)
	release := db.Hold(t, "UPDATE rondo_instances SET unread = 1 WHERE shard = $1 AND instance = $2",
		db.Shard("a"), "a")
	s.due(time.Hour)
	s.due(2 * time.Hour)
	release()
	s.due(2*time.Hour+time.Minute, "a")
}
