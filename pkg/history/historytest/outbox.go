package historytest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// outboxTests are about outbox entries.
var outboxTests = []test{
	{"outbox/entries_come_back_as_they_were", entryFields},
	{"outbox/messages_keep_their_order", entryOrder},
	{"outbox/entries_are_packed", entriesPacked},
	{"outbox/large_entries_are_split", entriesSplit},
	{"outbox/entries_of_winners_only", entriesOfWinners},
	{"outbox/removed_by_key", entriesRemoved},
	{"outbox/taken_over_once", entriesTakenOnce},
	{"outbox/taken_again_after_the_lease", entriesTakenAgain},
	{"outbox/young_entries_are_left_alone", entriesYoung},
	{"outbox/oldest_first", entriesOldestFirst},
	{"outbox/oldest_first_of_many_processes", entriesOldestOfMany},
	{"outbox/limit", entriesLimited},
	{"outbox/limit_of_bytes", entriesLimitedByBytes},
	{"outbox/wrong_takes", wrongTakes},
	{"outbox/taken_by_many_at_once", entriesTakenByMany},
	{"outbox/what_was_left_is_found_after_reopening", entriesAfterReopening},
	{"outbox/the_mark_is_remembered", entryMarkRemembered},
	{"outbox/an_old_entry_stays_above_the_mark", entryOldStays},
	{"outbox/a_late_commit_is_found", entryLate},
	{"outbox/a_clock_that_is_behind_is_found", entryBehind},
	{"outbox/a_clock_that_is_far_behind_is_found", entryFarBehind},
	{"outbox/count", entriesCounted},
	{"outbox/count_begins_at_the_mark", entriesCountedFromMark},
	{"outbox/oldest", entryOldest},
}

// lease leases outbox entries that were made up to now, for a while.
func (s *outboxed) lease(limit int, lease time.Duration) []history.OutboxEntry {
	s.Helper()
	now := s.clock.Now()
	list, err := s.LeaseOutbox(s.ctx(),
		history.Lease{Before: now.Add(time.Millisecond), Until: now.Add(max(lease, 2*time.Millisecond)), Limit: limit})
	if err != nil {
		s.Fatalf("lease outbox entries: %v", err)
	}
	return list
}

// messages gives the ids of the messages of outbox entries, in the order of the outbox entries.
func (s *outboxed) messages(list []history.OutboxEntry) []string {
	s.Helper()
	var ids []string
	for _, p := range list {
		if p.Err != nil {
			s.Fatalf("outbox entry %v: %v", p.Key, p.Err)
		}
		for _, w := range p.Messages {
			ids = append(ids, strings.Join(w.Header[events.HeaderMsgID], ","))
		}
	}
	return ids
}

// takes checks which outbox entries a sweep leases.
func (s *outboxed) takes(limit int, want ...string) []history.OutboxEntry {
	s.Helper()
	list := s.lease(limit, time.Hour)
	if got := s.messages(list); !slices.Equal(got, want) {
		s.Fatalf("the sweep took %q, want %q", got, want)
	}
	return list
}

// addEntry commits a new instance that sends a message, at the store's time.
func (s *outboxed) addEntry(id string) history.OutboxKey {
	s.Helper()
	r := s.commit(Sends(NewActor("of-"+id).At(s.clock.Now()).Start(), id, "other"))
	if len(r.Entries) != 1 {
		s.Fatalf("one message is stored in %v", r.Entries)
	}
	return r.Entries[0]
}

// entryFields shows that messages come back from the outbox as they went in: subject, headers,
// body, time and purging.
func entryFields(t *testing.T, db *Database) {
	s := open(t, db)
	want := []events.Wire{
		{Subject: "rondo.task.charge.a", Header: events.Header{events.HeaderMsgID: {"1"}, "Rondo-Tag": {"gpu"},
			"Many": {"a", "", "b"}}, Body: []byte(`{"n":1}`)},
		{Subject: "rondo.timer-due.3.a", NotBefore: time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)},
		{Subject: "rondo.task.charge.a", Purge: true},
		{Subject: "rondo.event.x.ü", Body: []byte{0, 255, 1}},
	}
	batch := Batch(t, NewActor("a").Start())
	batch.Turns[0].Messages = want
	if _, err := s.Commit(s.ctx(), batch); err != nil {
		t.Fatal(err)
	}
	list := s.lease(10, time.Hour)
	if len(list) != 1 || list[0].Err != nil || asJSON(list[0].Messages) != asJSON(want) {
		t.Fatalf("got\n%s\nwant\n%s", asJSON(list), asJSON(want))
	}
}

// entryOrder shows that the messages of a turn keep their order: what withdraws a message comes
// behind it, many of them, too.
func entryOrder(t *testing.T, db *Database) {
	s := open(t, db)
	for _, several := range []bool{false, true} {
		a := NewActor(fmt.Sprint("a", several))
		turn := a.StartAndCall()
		if several {
			turn = Together(turn, a.Remove("k"))
		}
		batch := Batch(t, turn)
		work := batch.Turns[0].Messages[0]
		var want []events.Wire
		for range 3 {
			want = append(want, work, events.Wire{Subject: work.Subject, Purge: true})
		}
		batch.Turns[0].Messages = want
		if _, err := s.Commit(s.ctx(), batch); err != nil {
			t.Fatal(err)
		}
		list := s.lease(10, time.Hour)
		if len(list) != 1 || asJSON(list[0].Messages) != asJSON(want) {
			t.Fatalf("got\n%s\nwant\n%s", asJSON(list), asJSON(want))
		}
		if err := s.RemoveOutbox(s.ctx(), []history.OutboxKey{list[0].Key}); err != nil {
			t.Fatal(err)
		}
	}
}

// entriesPacked shows that the messages of a batch stand in one row, whichever turn sent them, and
// that a batch without outbox entries makes none.
func entriesPacked(t *testing.T, db *Database) {
	s := open(t, db)
	var turns []*round.Turn
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprint("m", i))
		turns = append(turns, Sends(NewActor(fmt.Sprint("a", i)).Start(), ids[i], "other"))
	}
	if r := s.commit(turns...); len(r.Entries) != 1 || !r.Entries[0].Made().Equal(Began) {
		t.Fatal(r.Entries)
	}
	s.entries(1)
	got := s.messages(s.lease(10, time.Hour))
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Fatal(got)
	}
	if r := s.commit(NewActor("silent").Start()); len(r.Entries) != 0 {
		t.Fatal(r.Entries)
	}
	s.entries(1)
}

// entriesSplit shows that no row of the outbox is larger than the limit, unless a single message
// is, that rows are not split without need, and that nothing is lost by it, in one statement and in
// several.
func entriesSplit(t *testing.T, db *Database) {
	s := open(t, db)
	for _, several := range []bool{false, true} {
		var turns []*round.Turn
		for i := range 6 {
			a := NewActor(fmt.Sprint("a", several, i))
			turns = append(turns, a.Start())
			if several {
				turns[i] = Together(turns[i], a.Remove("k"))
			}
		}
		batch := Batch(t, turns...)
		total := 0
		size := func(i, j int) int {
			if i == 4 && j == 1 {
				return 900 << 10
			}
			return 60 << 10
		}
		for i := range batch.Turns {
			for j := range 5 {
				w := events.Wire{Subject: fmt.Sprint("s.", i, ".", j), Body: bytes.Repeat([]byte{'x'}, size(i, j))}
				total += len(history.AppendPacked(nil, w))
				batch.Turns[i].Messages = append(batch.Turns[i].Messages, w)
			}
		}
		r, err := s.Commit(s.ctx(), batch)
		if err != nil {
			t.Fatal(err)
		}
		s.entries(len(r.Entries))
		got := make(map[string]int)
		for _, p := range s.lease(100, time.Hour) {
			packed := 0
			for _, w := range p.Messages {
				got[w.Subject] += len(w.Body)
				packed += len(history.AppendPacked(nil, w))
			}
			if packed > history.MaxOutboxEntry && len(p.Messages) > 1 {
				t.Errorf("a row of %d bytes has %d messages", packed, len(p.Messages))
			}
			if !slices.Contains(r.Entries, p.Key) {
				t.Errorf("the result does not name %v", p.Key)
			}
		}
		for i := range 6 {
			for j := range 5 {
				if subject := fmt.Sprint("s.", i, ".", j); got[subject] != size(i, j) {
					t.Errorf("message %s has %d bytes, want %d", subject, got[subject], size(i, j))
				}
			}
		}
		if most := 2*(total/history.MaxOutboxEntry) + 2; len(r.Entries) > most {
			t.Errorf("%d bytes are in %d rows, more than %d", total, len(r.Entries), most)
		}
		if err := s.RemoveOutbox(s.ctx(), r.Entries); err != nil {
			t.Fatal(err)
		}
		s.entries(0)
	}
}

// entriesOfWinners shows that messages of refused turns are not in the outbox, and that the result
// names the rows that are there and no others.
func entriesOfWinners(t *testing.T, db *Database) {
	s := open(t, db)
	loser := func() *round.Turn {
		x := NewActor("loser")
		x.Start()
		return Sends(x.Note(), "lost", "other")
	}
	s.verdicts(s.try(loser(), Sends(NewActor("a").Start(), "won", "other")), history.Conflict, history.Committed)
	s.takes(10, "won")
	r := s.try(loser())
	s.verdicts(r, history.Conflict)
	if len(r.Entries) != 0 {
		t.Errorf("nothing was sent, and the result names %v", r.Entries)
	}
	s.entries(1)

	// Of those that begin and of those that go on, some are taken.
	begun := NewActor("begun")
	s.commit(begun.Start(), NewActor("there").Start())
	s.verdicts(s.try(loser(), Sends(NewActor("there").Start(), "lost, too", "other"),
		Sends(NewActor("b").Start(), "begins", "other"), Sends(begun.Note(), "goes on", "other")),
		history.Conflict, history.Conflict, history.Committed, history.Committed)
	got := s.messages(s.lease(10, time.Hour))
	slices.Sort(got)
	if want := []string{"begins", "goes on"}; !slices.Equal(got, want) {
		t.Errorf("the sweep took %q, want %q", got, want)
	}
	s.same(begun)
}

// entriesRemoved shows that outbox entries are removed by their keys, and that removing them again,
// or nothing, is no error.
func entriesRemoved(t *testing.T, db *Database) {
	s := open(t, db)
	a, b, c := s.addEntry("a"), s.addEntry("b"), s.addEntry("c")
	if a == b || b == c || a == c {
		t.Fatal("outbox entries share a key", a, b, c)
	}
	for range 2 {
		if err := s.RemoveOutbox(s.ctx(), []history.OutboxKey{c, a, {Shard: a.Shard, ID: 1}}); err != nil {
			t.Fatal(err)
		}
		s.entries(1)
	}
	if err := s.RemoveOutbox(s.ctx(), nil); err != nil {
		t.Fatal(err)
	}
	s.takes(10, "b")
}

// entriesTakenOnce shows that no other sweep leases an entry until its lease expires.
func entriesTakenOnce(t *testing.T, db *Database) {
	s := open(t, db)
	s.addEntry("a")
	s.takes(10, "a")
	s.takes(10)
	s.clock.Advance(59 * time.Minute)
	s.takes(10)
	s.entries(1)
}

// entriesTakenAgain shows that an entry that was leased and not removed can be leased again when
// its lease has expired, any number of times.
func entriesTakenAgain(t *testing.T, db *Database) {
	s := open(t, db)
	key := s.addEntry("a")
	for range 4 {
		list := s.takes(10, "a")
		if list[0].Key != key {
			t.Fatal(list[0].Key, key)
		}
		s.clock.Advance(time.Hour)
	}
}

// entriesYoung shows that a sweep does not lease entries made at or after the moment that it asks
// for: the orchestrator that committed them is still publishing them.
func entriesYoung(t *testing.T, db *Database) {
	s := open(t, db)
	s.addEntry("old")
	s.clock.Advance(time.Minute)
	s.addEntry("young")
	list, err := s.LeaseOutbox(s.ctx(),
		history.Lease{Before: s.clock.Now(), Until: s.clock.Now().Add(time.Hour), Limit: 10})
	if got := s.messages(list); err != nil || !slices.Equal(got, []string{"old"}) {
		t.Fatal(got, err)
	}
	s.takes(10, "young")
}

// entriesOldestFirst shows that outbox entries come in the order in which they were made.
func entriesOldestFirst(t *testing.T, db *Database) {
	s := open(t, db)
	var want []string
	for i := range 20 {
		id := fmt.Sprint("m", (i*7)%20)
		s.addEntry(id)
		want = append(want, id)
		s.clock.Advance(time.Second)
	}
	s.takes(5, want[:5]...)
	s.takes(100, want[5:]...)
}

// outboxRow puts a row into the outbox as another process does, whose rows are in another shard.
func (s *outboxed) outboxRow(shard int16, at time.Time, messages []byte) history.OutboxKey {
	s.Helper()
	k := history.OutboxKey{Shard: shard, ID: history.OutboxID(at, 1)}
	s.db.exec(s.TB, "INSERT INTO rondo_outbox (shard, id, messages) VALUES ($1, $2, $3)", k.Shard, k.ID, messages)
	return k
}

// shards are those that the database uses.
func (db *Database) shards() []int16 {
	var all []int16
	for i := range 1000 {
		all = append(all, db.Shard(fmt.Sprint(i)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// entriesOldestOfMany shows that the oldest come first if they were made by several processes, so
// that none of these is kept waiting by the others.
func entriesOldestOfMany(t *testing.T, db *Database) {
	s := open(t, db)
	var made []history.OutboxKey
	for i := range 3 {
		for _, shard := range db.shards() {
			at := Began.Add(time.Duration(i)*time.Second - time.Duration(shard)*time.Millisecond - time.Hour)
			made = append(made, s.outboxRow(shard, at, history.AppendPacked(nil, events.Wire{Subject: "s"})))
		}
	}
	slices.SortFunc(made, func(a, b history.OutboxKey) int { return cmp.Compare(a.ID, b.ID) })
	var got []history.OutboxKey
	for range len(made) {
		for _, p := range s.lease(2, time.Hour) {
			got = append(got, p.Key)
		}
	}
	if !slices.Equal(got, made) {
		t.Fatalf("they were made as %v\nand taken as %v", made, got)
	}
}

// entriesLimited shows that a sweep takes no more than it asks for, and that one after the other
// they take everything.
func entriesLimited(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 10 {
		s.addEntry(fmt.Sprint("m", i))
		s.clock.Advance(time.Millisecond)
	}
	seen := make(map[string]bool)
	for _, want := range []int{4, 4, 2, 0} {
		got := s.messages(s.lease(4, time.Hour))
		if len(got) != want {
			t.Fatal(got, want)
		}
		for _, id := range got {
			seen[id] = true
		}
	}
	if len(seen) != 10 {
		t.Fatal(seen)
	}
}

// entriesLimitedByBytes shows that a sweep leases as many entries as fit, and one that is larger
// alone.
func entriesLimitedByBytes(t *testing.T, db *Database) {
	s := open(t, db)
	const size = 100_000
	for i, n := range []int{1, 1, 1, 4, 1, 1, 1} {
		a := NewActor(fmt.Sprint("of-m", i)).At(s.clock.Now())
		batch := Batch(t, Sends(a.Start(), fmt.Sprint("m", i), "other"))
		batch.Turns[0].Messages[0].Body = bytes.Repeat([]byte{'x'}, n*size)
		if _, err := s.Commit(s.ctx(), batch); err != nil {
			t.Fatal(err)
		}
		s.clock.Advance(time.Millisecond)
	}
	now := s.clock.Now()
	for _, want := range []string{"m0,m1", "m2", "m3", "m4,m5", "m6", ""} {
		list, err := s.LeaseOutbox(s.ctx(), history.Lease{Before: now.Add(time.Millisecond), Until: now.Add(time.Hour),
			Limit: 10, Bytes: 2*size + size/2})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.messages(list), ","); got != want {
			t.Fatalf("leased %q, want %q", got, want)
		}
	}
}

// wrongTakes shows that a sweep that makes no sense is the caller's mistake.
func wrongTakes(t *testing.T, db *Database) {
	s := open(t, db)
	s.addEntry("a")
	for _, take := range []history.Lease{{Before: Began, Until: Began.Add(1)}, {Before: Began, Until: Began, Limit: 1},
		{Before: Began, Limit: 1}} {
		_, err := s.LeaseOutbox(s.ctx(), take)
		s.class(err, history.Permanent)
		_, err = s.LeaseOverdue(s.ctx(), take)
		s.class(err, history.Permanent)
	}
	s.takes(1, "a")
}

// entriesTakenByMany shows that sweeps at the same time share what there is: each outbox entry is
// taken by one of them.
func entriesTakenByMany(t *testing.T, db *Database) {
	s := open(t, db)
	stores := []*store{s}
	if db.Shared {
		stores = append(stores, open(t, db))
	}
	var want []history.OutboxKey
	for i := range 60 {
		want = append(want, s.addEntry(fmt.Sprint("m", i)))
		s.clock.Advance(time.Millisecond)
	}
	found := make(chan []history.OutboxEntry)
	take := history.Lease{Before: s.clock.Now().Add(time.Second), Until: s.clock.Now().Add(time.Hour), Limit: 7}
	for i := range 6 {
		go func() {
			var all []history.OutboxEntry
			for {
				list, err := stores[i%len(stores)].LeaseOutbox(t.Context(), take)
				if err != nil {
					t.Error(err)
				}
				if len(list) == 0 {
					break
				}
				all = append(all, list...)
			}
			found <- all
		}()
	}
	var got []history.OutboxKey
	for range 6 {
		for _, p := range <-found {
			got = append(got, p.Key)
		}
	}
	// What one of them had locked when another looked, that one has taken.
	order := func(a, b history.OutboxKey) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		t.Fatalf("%d outbox entries were taken %d times", len(want), len(got))
	}
}

// ---- Marks.

// sweepOn lets time pass, and sweeps, again and again, so that the mark moves.
func (s *outboxed) sweepOn(n int, step time.Duration) {
	s.Helper()
	for range n {
		s.clock.Advance(step)
		s.takes(100)
	}
}

// reopen opens the store again, at the same time.
func (s *store) reopen() *store {
	s.Helper()
	if err := s.Close(); err != nil {
		s.Fatal(err)
	}
	next := open(s.TB, s.db)
	next.clock.at = s.clock.at
	return next
}

// entriesAfterReopening shows that the outbox entries of a process that has died are found by the
// next one, those it had leased when their lease ends.
func entriesAfterReopening(t *testing.T, db *Database) {
	s := open(t, db)
	s.addEntry("taken")
	s.takes(10, "taken")
	s.clock.Advance(time.Minute)
	s.addEntry("left")
	s = s.reopen()
	s.takes(10, "left")
	s.clock.Advance(time.Hour)
	s.takes(10, "taken", "left")
}

// entryMarkRemembered shows that a reopened store continues where the sweeps before it ended: it
// does not read the part of the outbox that they found empty.
func entryMarkRemembered(t *testing.T, db *Database) {
	if !db.Marks {
		t.Skip("sweeps begin at the start: what is removed here costs nothing")
	}
	s := open(t, db)
	s.sweepOn(5, time.Hour)
	s = s.reopen()
	for _, shard := range db.shards() {
		s.outboxRow(shard, Began.Add(time.Hour), history.AppendPacked(nil, events.Wire{Subject: "s"}))
	}
	s.takes(10)
}

// entryOldStays shows that an outbox entry that is never removed is found for ever, however far the
// sweeps go, and after reopening.
func entryOldStays(t *testing.T, db *Database) {
	s := open(t, db)
	s.addEntry("old")
	for range 10 {
		s.clock.Advance(3 * time.Hour)
		s.takes(10, "old")
		s.clock.Advance(30 * time.Minute)
		s.takes(10)
		s = s.reopen()
	}
}

// entryLate shows that a sweep finds the entry of a commit that was in flight during the sweeps
// before it: that entry is older than the last sweep.
func entryLate(t *testing.T, db *Database) {
	s := open(t, db)
	s.sweepOn(5, time.Hour)
	for i, shard := range db.shards() {
		s.outboxRow(shard, s.clock.Now().Add(-9*time.Minute).Add(time.Duration(i)*time.Second),
			history.AppendPacked(nil, events.Wire{Subject: "late"}))
	}
	if got := s.lease(100, time.Hour); len(got) != len(db.shards()) {
		t.Fatalf("%d of %d late outbox entries were found", len(got), len(db.shards()))
	}
}

// entryBehind shows that the outbox entries of a process whose clock is behind by minutes are
// found, although it has not swept itself for long.
func entryBehind(t *testing.T, db *Database) {
	if !db.Shared {
		t.Skip("there is one process only")
	}
	slow := open(t, db)
	fast := open(t, db)
	fast.sweepOn(10, time.Hour)
	slow.clock.at = fast.clock.at.Add(-9 * time.Minute)
	slow.addEntry("behind")
	fast.takes(10, "behind")
}

// entryFarBehind shows that the outbox entries of a process whose clock is behind by hours are
// found, once it has seen how far the others are: because it was opened after that, or has swept.
func entryFarBehind(t *testing.T, db *Database) {
	if !db.Shared {
		t.Skip("there is one process only")
	}
	running := open(t, db)
	fast := open(t, db)
	fast.sweepOn(10, time.Hour)
	opened := open(t, db)
	running.clock.Advance(time.Hour)
	running.takes(10)
	running.addEntry("running")
	opened.addEntry("opened")
	got := fast.messages(fast.lease(10, time.Hour))
	slices.Sort(got)
	if !slices.Equal(got, []string{"opened", "running"}) {
		t.Fatalf("found are %q", got)
	}
}

// entriesCounted shows that counting ends at the limit.
func entriesCounted(t *testing.T, db *Database) {
	s := open(t, db)
	for i := range 5 {
		s.addEntry(fmt.Sprint("m", i))
		s.clock.Advance(time.Millisecond)
	}
	for limit, want := range map[int]int{1: 1, 4: 4, 5: 5, 100: 5} {
		if n, err := s.CountOutbox(s.ctx(), limit); err != nil || n != want {
			t.Errorf("up to %d there are %d, want %d (%v)", limit, n, want, err)
		}
	}
}

// entriesCountedFromMark shows that counting, and finding the oldest entry, do not read the part of
// the outbox that sweeps found empty. An audit still finds entries there.
func entriesCountedFromMark(t *testing.T, db *Database) {
	if !db.Marks {
		t.Skip("sweeps begin at the start: what is removed here costs nothing")
	}
	s := open(t, db)
	s.sweepOn(5, time.Hour)
	for _, shard := range db.shards() {
		s.outboxRow(shard, Began.Add(time.Hour), history.AppendPacked(nil, events.Wire{Subject: "s"}))
	}
	s.entries(0)
	s.oldest(time.Time{})
	above := s.addEntry("above")
	s.entries(1)
	s.oldest(above.Made())
	old, err := s.OldOutbox(s.ctx(), Began.Add(2*time.Hour), 100)
	if err != nil || len(old) != len(db.shards()) {
		t.Errorf("an audit finds %d of %d outbox entries (%v)", len(old), len(db.shards()), err)
	}
}

// entryOldest shows that the oldest entry counts, leased or not, until it is removed.
func entryOldest(t *testing.T, db *Database) {
	s := open(t, db)
	s.oldest(time.Time{})
	first := s.addEntry("first")
	s.clock.Advance(time.Minute)
	second := s.addEntry("second")
	s.oldest(first.Made())
	s.takes(1, "first")
	s.oldest(first.Made())
	if err := s.RemoveOutbox(s.ctx(), []history.OutboxKey{first}); err != nil {
		t.Fatal(err)
	}
	s.oldest(second.Made())
}

// oldest checks when the oldest outbox entry was made.
func (s *outboxed) oldest(want time.Time) {
	s.Helper()
	if got, err := s.OldestOutbox(s.ctx()); err != nil || !got.Equal(want) {
		s.Errorf("the oldest outbox entry was made at %v (%v), want %v", got, err, want)
	}
}

// corruptEntry shows that a row of the outbox that cannot be read is reported as such, stays
// where it is, and keeps no other from being taken.
func corruptEntry(t *testing.T, db *Database) {
	s := open(t, db)
	s.addEntry("a")
	s.clock.Advance(time.Second)
	shards := db.shards()
	good := history.AppendPacked(nil, events.Wire{Subject: "s"})
	bad := [][]byte{[]byte("nonsense"), good[:len(good)-1], {3, 9, 0, 0}, append(slices.Clone(good), 200)}
	keys := make(map[history.OutboxKey]bool)
	for i, data := range bad {
		keys[s.outboxRow(shards[i%len(shards)], s.clock.Now(), data)] = true
		s.clock.Advance(time.Second)
	}
	s.addEntry("b")
	for range 2 {
		var ids []string
		for _, p := range s.lease(100, time.Hour) {
			if keys[p.Key] {
				s.class(p.Err, history.Corrupt)
				if !strings.Contains(p.Err.Error(), fmt.Sprint(p.Key.ID)) {
					t.Errorf("the error does not name the row: %v", p.Err)
				}
			} else {
				ids = append(ids, s.messages([]history.OutboxEntry{p})...)
			}
		}
		if !slices.Equal(ids, []string{"a", "b"}) {
			t.Fatal(ids)
		}
		s.entries(2 + len(bad))
		s.clock.Advance(time.Hour)
	}
}
