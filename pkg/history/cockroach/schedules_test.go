package cockroach_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// mustChange makes a change of a schedule that must be taken, and returns the new version.
func (b *bench) mustChange(s *cockroach.Store, c history.ScheduleChange) (version int64, keys []history.OutboxKey) {
	b.Helper()
	keys, ok, err := s.ChangeSchedule(b.Context(), c)
	if err != nil || !ok {
		b.Fatalf("the change of schedule %q: %t, %v", c.ID, ok, err)
	}
	return b.versionOf(c.ID), keys
}

// versionOf is the version of a schedule, 0 if there is none.
func (b *bench) versionOf(id string) int64 {
	b.Helper()
	x, _, err := b.clear.Schedule(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return x.Version
}

// scheduleOf is a change of a schedule that starts a run.
func scheduleOf(id string, expected int64) history.ScheduleChange {
	return history.ScheduleChange{Expected: expected, Messages: []events.Wire{{Subject: "run." + id}},
		Schedule: history.Schedule{ID: id, WakeAt: historytest.Began, ChangedAt: historytest.Began, Data: []byte("1")}}
}

// scheduleChanges are the kinds of changes, each of a schedule that is prepared before.
var scheduleChanges = map[string]func(b *bench, id string) history.ScheduleChange{
	"create": func(_ *bench, id string) history.ScheduleChange { return scheduleOf(id, 0) },
	"update": func(b *bench, id string) history.ScheduleChange { return scheduleOf(id, b.created(id)) },
	"delete": func(b *bench, id string) history.ScheduleChange {
		return history.ScheduleChange{Schedule: history.Schedule{ID: id}, Delete: true, Expected: b.created(id)}
	},
	"delete with a message": func(b *bench, id string) history.ScheduleChange {
		c := scheduleOf(id, b.created(id))
		c.Delete = true
		return c
	},
}

// created creates a schedule without a message.
func (b *bench) created(id string) int64 {
	b.Helper()
	version, _ := b.mustChange(b.clear, history.ScheduleChange{Schedule: history.Schedule{ID: id}})
	return version
}

// TestEveryStatementOfAScheduleMayFail lets each statement of each change go wrong in each way. The
// change is taken all the same, and once.
func TestEveryStatementOfAScheduleMayFail(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	for _, kind := range slices.Sorted(maps.Keys(scheduleChanges)) {
		first := scheduleChanges[kind](b, b.id())
		b.mustChange(b.store, first) // the statements are known now
		counted := scheduleChanges[kind](b, b.id())
		n := b.statements(func() { b.mustChange(b.store, counted) })
		for i, name := range slices.Sorted(maps.Keys(faults)) {
			for _, k := range places(i, n) {
				what := fmt.Sprintf("%s: %s at statement %d of %d", kind, name, k, n)
				c := scheduleChanges[kind](b, b.id())
				hit := b.inject(k, faults[name])
				version, keys := b.mustChange(b.store, c)
				b.proxy.Inject(nil)
				if !hit.Load() {
					t.Fatalf("%s: it never came to it", what)
				}
				if c.Delete != (version == 0) || c.Expected > 0 && !c.Delete && version != c.Expected+1 {
					t.Errorf("%s: version %d, expected was %d", what, version, c.Expected)
				}
				_, found := b.stored(c.ID)
				if found["run."+c.ID] != len(c.Messages) || len(keys) != len(c.Messages) {
					t.Errorf("%s: stored %v, entries %v", what, found, keys)
				}
				if err := b.clear.RemoveOutbox(b.Context(), keys); err != nil {
					t.Fatal(err)
				}
				if _, found := b.stored(c.ID); len(found) != 0 {
					t.Errorf("%s: entries %v, and there are still %v", what, keys, found)
				}
				if _, ok, err := b.store.ChangeSchedule(b.Context(), c); err != nil || ok {
					t.Errorf("%s: again: %t, %v", what, ok, err)
				}
			}
		}
	}
}

// TestAScheduleWhoseCommitIsNeverLookedUp loses the answer to a commit, and lets the look-up of its
// outcome fail, too. The error says that the commit may have happened.
func TestAScheduleWhoseCommitIsNeverLookedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	for name, fault := range map[string]pgfault.Fault{"before": pgfault.CutBefore, "after": pgfault.CutAfter} {
		ctx, cancel := context.WithCancel(b.Context())
		over := false
		b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			switch {
			case over:
				cancel()
				return pgfault.CutBefore
			case pgfault.Is(b.commits())(s):
				over = true
				return fault
			}
			return pgfault.Pass
		})
		keys, ok, err := b.store.ChangeSchedule(ctx, scheduleOf(name, 0))
		cancel()
		b.proxy.Inject(nil)
		if !over || ok || keys != nil || history.ClassOf(err) != history.Ambiguous {
			t.Errorf("cut %s the commit: %t, %v, %v: %v", name, ok, keys, history.ClassOf(err), err)
		}
		if happened := b.versionOf(name) > 0; happened != (name == "after") {
			t.Errorf("cut %s the commit: it happened: %t", name, happened)
		}
	}
}

// TestAScheduleIsChangedWhileACommitIsInDoubt lets another process do something between the commit,
// whose answer is lost, and the look-up of its outcome.
func TestAScheduleIsChangedWhileACommitIsInDoubt(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	update := func(id string) { b.mustChange(b.clear, scheduleOf(id, b.versionOf(id))) }
	remove := func(id string) {
		b.mustChange(b.clear, history.ScheduleChange{Schedule: history.Schedule{ID: id}, Delete: true,
			Expected: b.versionOf(id)})
	}
	sweep := func(string) {
		if err := b.clear.RemoveOutbox(b.Context(), b.allEntries()); err != nil {
			b.Fatal(err)
		}
	}
	create := func(id string) { b.created(id) }
	all := func(list ...func(string)) func(string) {
		return func(id string) {
			for _, f := range list {
				f(id)
			}
		}
	}
	for _, c := range []struct {
		name, kind string
		lost       pgfault.Fault
		meanwhile  func(id string)
		want       string // taken, refused or ambiguous
	}{
		{"created", "create", pgfault.CutAfter, sweep, "taken"},
		{"created, updated", "create", pgfault.CutAfter, all(sweep, update), "taken"},
		{"not created", "create", pgfault.CutBefore, sweep, "taken"},
		{"created by another", "create", pgfault.CutBefore, create, "ambiguous"},
		{"created, created anew", "create", pgfault.CutAfter, all(remove, create), "taken"},
		{"created, swept, created anew", "create", pgfault.CutAfter, all(sweep, remove, create), "ambiguous"},
		{"updated", "update", pgfault.CutAfter, sweep, "taken"},
		{"updated by another", "update", pgfault.CutBefore, update, "refused"},
		{"updated, by another, too", "update", pgfault.CutAfter, update, "taken"},
		{"updated, swept, by another, too", "update", pgfault.CutAfter, all(sweep, update), "ambiguous"},
		{"updated twice by another", "update", pgfault.CutBefore, all(update, update), "ambiguous"},
		{"updated, deleted", "update", pgfault.CutAfter, remove, "taken"},
		{"updated, swept, deleted", "update", pgfault.CutAfter, all(sweep, remove), "ambiguous"},
		{"deleted by another", "update", pgfault.CutBefore, remove, "ambiguous"},
		{"deleted", "delete", pgfault.CutAfter, sweep, "taken"},
		{"deleted, created anew", "delete", pgfault.CutAfter, create, "taken"},
		{"not deleted, updated", "delete", pgfault.CutBefore, update, "refused"},
		{"deleted with a message", "delete with a message", pgfault.CutAfter, create, "taken"},
		{"deleted with a message, swept", "delete with a message", pgfault.CutAfter, all(sweep, create), "ambiguous"},
		{"deleted by another, with a message", "delete with a message", pgfault.CutBefore, remove, "ambiguous"},
	} {
		id := b.id()
		change := scheduleChanges[c.kind](b, id)
		lost, over := false, false
		b.proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			switch {
			case !lost && pgfault.Is(b.commits())(s):
				lost = true
				return c.lost
			case lost && !over && pgfault.Is("BEGIN")(s):
				over = true
				c.meanwhile(id)
			}
			return pgfault.Pass
		})
		keys, ok, err := b.store.ChangeSchedule(t.Context(), change)
		b.proxy.Inject(nil)
		got := "refused"
		switch {
		case history.ClassOf(err) == history.Ambiguous:
			got = "ambiguous"
		case err != nil:
			t.Fatal(c.name, err)
		case ok:
			got = "taken"
		}
		if !over || got != c.want || (len(keys) > 0) != (ok && len(change.Messages) > 0) {
			t.Errorf("%s: %s, want %s; %v, %v", c.name, got, c.want, keys, err)
		}
	}
}

// TestARefusedChangeIsRefusedAgain loses the answer to the end of a transaction that has refused a
// change.
func TestARefusedChangeIsRefusedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, cockroach.Options{})
	for kind, change := range map[string]history.ScheduleChange{
		"create": scheduleOf("a", 0), "update": scheduleOf("a", 7),
		"delete": {Schedule: history.Schedule{ID: "a"}, Delete: true, Expected: 7},
	} {
		if b.versionOf("a") == 0 {
			b.created("a")
		}
		b.proxy.Inject(pgfault.Once(pgfault.Is(b.commits()), pgfault.CutAfter))
		keys, ok, err := b.store.ChangeSchedule(t.Context(), change)
		b.proxy.Inject(nil)
		if ok || err != nil || keys != nil {
			t.Errorf("%s: %t, %v, %v", kind, ok, keys, err)
		}
	}
}

// TestSchedulesOfTwoProcessesUnderFaults lets two processes count up in one schedule, each through
// a proxy that lets statements go wrong. Each number has exactly one message.
func TestSchedulesOfTwoProcessesUnderFaults(t *testing.T) {
	t.Parallel()
	address := faultyDatabase(t)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	clear := openStore(t, address, cockroach.Options{})
	if _, ok, err := clear.ChangeSchedule(t.Context(), history.ScheduleChange{
		Schedule: history.Schedule{ID: "a", Data: []byte("0")}}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(5, 6))
	kinds := []pgfault.Fault{faults["serialization"], faults["deadlock"], faults["ambiguous"], pgfault.CutBefore,
		pgfault.CutAfter}
	var stores []*cockroach.Store
	hit := 0
	for range 2 {
		proxy := pgfault.Start(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
		stores = append(stores, openStore(t, proxy.DSN(address), cockroach.Options{}))
		proxy.Inject(func(s pgfault.Statement) pgfault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if n := chance.IntN(100); n < len(kinds) || n < 25 && ends(s) {
				hit++
				return kinds[n%len(kinds)]
			}
			return pgfault.Pass
		})
		t.Cleanup(func() { proxy.Inject(nil) })
	}
	const counters = 3
	each := racetest.Size(40, 15)
	var taken, doubtful atomic.Int64
	var all sync.WaitGroup
	for n := range 2 * counters {
		s := stores[n%2]
		all.Go(func() {
			for done := 0; done < each; {
				now, _, err := s.Schedule(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				count, _ := strconv.Atoi(string(now.Data))
				c := history.ScheduleChange{Expected: now.Version, Schedule: history.Schedule{ID: "a",
					WakeAt: historytest.Began, Data: strconv.AppendInt(nil, int64(count)+1, 10)},
					Messages: []events.Wire{{Subject: strconv.Itoa(count + 1)}}}
				_, ok, err := s.ChangeSchedule(t.Context(), c)
				switch {
				case history.ClassOf(err) == history.Ambiguous:
					doubtful.Add(1)
				case err != nil:
					t.Error(err)
					return
				case !ok:
					continue
				default:
					taken.Add(1)
				}
				done++
			}
		})
	}
	all.Wait()
	now, _, err := clear.Schedule(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	total, _ := strconv.ParseInt(string(now.Data), 10, 64)
	t.Logf("%d faults; %d changes were taken, %d perhaps", hit, taken.Load(), doubtful.Load())
	if total < taken.Load() || total > taken.Load()+doubtful.Load() {
		t.Errorf("the schedule counts %d", total)
	}
	entries, err := clear.OldOutbox(t.Context(), time.Now().Add(time.Hour), 1000)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, e := range entries {
		for _, m := range e.Messages {
			found[m.Subject]++
		}
	}
	for n := int64(1); n <= total; n++ {
		if found[strconv.FormatInt(n, 10)] != 1 {
			t.Errorf("the message of %d is there %d times", n, found[strconv.FormatInt(n, 10)])
		}
	}
	if int64(len(found)) != total || hit < 20 {
		t.Errorf("%d messages of %d changes, %d faults", len(found), total, hit)
	}
}
