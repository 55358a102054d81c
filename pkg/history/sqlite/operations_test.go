package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// operation is any operation but a commit, with its preparation and the check of its result.
type operation struct {
	name  string
	begin func()
	do    func() error
	done  func() error
	// lost says that what it takes is lost with its answer, until others may take it.
	lost bool
}

// operations are all operations. Each begins with an empty database.
func operations(b *bench) []operation {
	ctx := b.Context()
	family := func() {
		parent, child, other := historytest.NewActor("parent"), historytest.NewActor("child"),
			historytest.NewActor("other")
		attributes := historytest.WithAttributes(map[string]string{"a": "b"})
		commit(b, b.store, historytest.Together(parent.StartAndCall(attributes), parent.Set("k", "1")), other.Start())
		commit(b, b.store, parent.ContinueAsNew(), child.Start(historytest.WithParent(parent), attributes))
		commit(b, b.store, parent.ContinueAsNew(), child.Complete("1"), other.Complete("2"))
		commit(b, b.store, historytest.Together(parent.Note(), parent.Complete("3")))
	}
	entries := func() {
		for i := range 3 {
			commit(b, b.store, historytest.NewActor(fmt.Sprint(i)).StartAndCall())
		}
	}
	take := func() history.Lease {
		return history.Lease{Before: b.now.Add(time.Hour), Until: b.now.Add(2 * time.Hour), Limit: 10}
	}
	erased := func() error {
		return errors.Join(b.none("rondo_history WHERE instance <> 'other'"), b.none("rondo_executions"),
			b.none("rondo_values"), b.none("rondo_attributes"),
			b.none("rondo_instances WHERE status = 'deleting' OR instance <> 'other' AND status <> 'deleted'"))
	}
	pruned := func() error {
		return errors.Join(b.none("rondo_executions"),
			b.none("rondo_history WHERE instance = 'parent' AND execution < 3"))
	}
	return []operation{
		{name: "read", begin: family, do: func() error { return readAll(b) }},
		{name: "take and remove outbox entries", lost: true, begin: entries, do: func() error {
			taken, err := b.store.LeaseOutbox(ctx, take())
			var keys []history.OutboxKey
			for _, p := range taken {
				keys = append(keys, p.Key)
			}
			return errors.Join(err, b.store.RemoveOutbox(ctx, keys))
		}, done: func() error { return b.none("rondo_outbox") }},
		{name: "lease overdue", lost: true, begin: entries, do: func() error {
			taken, err := b.store.LeaseOverdue(ctx, take())
			if err == nil && len(taken) != 3 {
				err = b.none(fmt.Sprintf("rondo_instances WHERE wake_at < %d", b.now.UnixMicro()))
			}
			return err
		}, done: func() error { return b.none(fmt.Sprintf("rondo_instances WHERE wake_at < %d", b.now.UnixMicro())) }},
		{name: "change schedules", begin: func() {}, do: func() error {
			return changeSchedules(b)
		}, done: func() error {
			return errors.Join(b.none("rondo_schedules WHERE id <> 'kept'"),
				b.none("(SELECT count(*) AS n FROM rondo_schedules) WHERE n <> 1"),
				b.none("(SELECT count(*) AS n FROM rondo_outbox) WHERE n < 2"))
		}},
		{name: "delete", begin: family, do: func() error {
			_, err := b.store.Delete(ctx, []string{"parent"}, history.Deletion{})
			return err
		}, done: erased},
		{name: "delete ended", begin: family, do: func() error {
			_, err := b.store.DeleteEnded(ctx, history.Filter{IDPrefix: "pa"}, history.Page{})
			return err
		}, done: erased},
		{name: "prune", begin: family, do: func() error {
			_, err := b.store.Prune(ctx, "parent", history.Keep{})
			return err
		}, done: pruned},
		{name: "prune all", begin: family, do: func() error {
			_, err := b.store.PruneAll(ctx, history.Filter{}, history.Keep{}, history.Page{})
			return err
		}, done: pruned},
		{name: "tidy", begin: func() {
			family()
			for _, id := range []string{"other", "parent"} {
				// the first is an old tombstone, the second is still to be erased
				writes := 0
				b.driver.set(func(s step) fault {
					if s.sql == "BEGIN IMMEDIATE" && s.kind == execs {
						writes++
					}
					if id == "parent" && writes == 2 {
						return fault{err: full}
					}
					return fault{}
				})
				if _, err := b.store.Delete(ctx, []string{id}, history.Deletion{}); (err != nil) != (id == "parent") {
					b.Fatal(err)
				}
				b.driver.set(nil)
				b.now = b.now.Add(history.TombstoneTTL + time.Hour)
			}
		}, do: func() error {
			_, err := b.store.Tidy(ctx)
			return err
		}, done: func() error { return errors.Join(erased(), b.none("rondo_instances WHERE instance = 'other'")) }},
	}
}

// changeSchedules creates, changes, reads and deletes schedules, from the versions that they have.
func changeSchedules(b *bench) error {
	ctx := b.Context()
	change := func(c history.ScheduleChange, message string) error {
		now, _, err := b.store.Schedule(ctx, c.ID)
		if err != nil || c.Delete && now.Version == 0 {
			return err
		}
		if c.Expected = now.Version; message != "" {
			c.Messages = []events.Wire{{Subject: message}}
		}
		_, ok, err := b.store.ChangeSchedule(ctx, c)
		if err == nil && !ok {
			b.Errorf("the change of schedule %q from version %d was refused", c.ID, c.Expected)
		}
		return err
	}
	gone, kept := history.Schedule{ID: "gone"}, history.Schedule{ID: "kept", WakeAt: b.now, Data: []byte("x")}
	if err := errors.Join(change(history.ScheduleChange{Schedule: gone}, ""),
		change(history.ScheduleChange{Schedule: kept}, "created"),
		change(history.ScheduleChange{Schedule: kept}, "changed"),
		change(history.ScheduleChange{Schedule: gone, Delete: true}, "")); err != nil {
		return err
	}
	_, err := b.store.DueSchedules(ctx, b.now.Add(time.Hour), 10)
	list, listErr := b.store.ListSchedules(ctx, history.ScheduleFilter{}, history.Page{Limit: 1})
	if err := errors.Join(err, listErr); err != nil {
		return err
	}
	if len(list.Schedules) != 1 || list.Schedules[0].ID != "kept" {
		b.Errorf("the list is %+v", list)
	}
	_, err = b.store.Within(1).ListSchedules(ctx, history.ScheduleFilter{IDPrefix: "k"}, history.Page{})
	return err
}

// readAll reads everything there is of a family, and checks it.
func readAll(b *bench) error {
	ctx, s := b.Context(), b.store
	var errs []error
	check := func(what string, got, want any, err error) {
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
			err = fmt.Errorf("%s: %v, want %v", what, got, want)
		}
		errs = append(errs, err)
	}
	known, err := s.Load(ctx, []string{"parent", "nobody"}, nil)
	if err == nil {
		check("load", []any{len(known), len(known[0].History), known[0].Unreadable}, []any{2, 3, nil}, nil)
	}
	errs = append(errs, err)
	list, err := s.List(ctx, history.Filter{}, history.Page{})
	check("list", len(list.Instances), 3, err)
	n, err := s.Count(ctx, history.Filter{Attributes: map[string]string{"a": "b"}}, 0)
	check("count", n, 2, err)
	info, err := s.Instance(ctx, "parent")
	check("instance", info.Execution, 3, err)
	executions, err := s.Executions(ctx, "parent", 0, 10)
	check("executions", len(executions), 3, err)
	within := s.Within(1)
	list, err = within.List(ctx, history.Filter{}, history.Page{})
	check("list within a byte", len(list.Instances), 1, err)
	executions, err = within.Executions(ctx, "parent", 0, 10)
	check("executions within a byte", len(executions) > 0, true, err)
	some, err := within.Events(ctx, "parent", 1, 0, 10)
	check("events within a byte", len(some) > 0, true, err)
	x, err := history.Export(ctx, s, "parent", 1)
	check("events", len(x.Events), 4, err)
	stats, err := s.Stats(ctx, "parent")
	check("stats", stats.Values, 1, err)
	values, err := s.Values(ctx, "parent")
	check("values", len(values), 1, err)
	_, ok, err := s.Value(ctx, "parent", "k")
	check("value", ok, true, err)
	status, err := s.CustomStatus(ctx, "parent", 0)
	check("custom status", status.Version, 0, err)
	tree, err := s.Tree(ctx, "parent")
	check("tree", len(tree), 2, err)
	metrics, err := s.Metrics(ctx)
	check("metrics", metrics.Executions, 5, err)
	entries, err := s.CountOutbox(ctx, 10)
	check("outbox entries", entries, 1, err)
	check("ping", nil, nil, s.Ping(ctx))
	return errors.Join(errs...)
}

// TestEveryStepOfEveryOperationMayFail lets each step of all other operations go wrong once, in
// each way. They succeed, or say that it may work the next time; then it does, and they have done
// what they say.
func TestEveryStepOfEveryOperationMayFail(t *testing.T) {
	eachPlace(t, func(b *bench) {
		for _, o := range operations(b) {
			begin := func() {
				b.wipe()
				b.now = historytest.Began.Add(2 * time.Minute)
				o.begin()
			}
			run := func() {
				if err := o.do(); err != nil {
					b.Fatalf("%s: %v", o.name, err)
				}
			}
			begin()
			run() // the statements are prepared now
			begin()
			steps := b.steps(warm, run)
			for n, s := range steps {
				for _, f := range b.faultsAt(s) {
					what := fmt.Sprintf("%s: %s at %v", o.name, f.name, s)
					if o.done != nil {
						begin()
					}
					hit := b.at(n, warm, f.fault)
					err := o.do()
					b.driver.set(nil)
					if !hit.Load() {
						b.Fatalf("%s: it never came to it", what)
					}
					b.checkDone(what, o, f, s, err)
				}
			}
			b.Logf("%s: %d steps", o.name, len(steps))
		}
	})
}

// checkDone checks that an operation has done what it says, or does it when it is repeated.
func (b *bench) checkDone(what string, o operation, f namedFault, s step, err error) {
	b.Helper()
	done := o.done
	if done == nil {
		done = func() error { return nil }
	}
	if f.err == busy && err != nil {
		b.Fatalf("%s: %v", what, err)
	}
	if err == nil && !(o.lost && s.ends()) {
		if err := done(); err != nil {
			b.Fatalf("%s: it succeeded, but there are %v", what, err)
		}
		return
	}
	if err != nil {
		if class := history.ClassOf(err); class != history.Retry && class != history.Ambiguous {
			b.Fatalf("%s: it passes, and the error says %v: %v", what, class, err)
		}
	}
	b.now = b.now.Add(3 * time.Hour) // all leases expire
	if err := o.do(); err != nil && !(strings.HasPrefix(o.name, "delete") && errors.Is(err, history.ErrNoInstance)) {
		b.Fatalf("%s: the second time: %v", what, err)
	}
	// Tidy removes the rest of an interrupted deletion.
	if _, err := b.store.Tidy(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := done(); err != nil {
		b.Fatalf("%s: after the second time there are %v", what, err)
	}
}

// TestARetryIsPartOfItsOperation lets another process be in the way of three attempts to commit.
func TestARetryIsPartOfItsOperation(t *testing.T) {
	var seen []string
	options := sqlite.Options{Observer: func(op string, _ time.Duration, err error) {
		seen = append(seen, fmt.Sprint(op, " ", err))
	}}
	driver, busies := newDriver(), 3
	s := open(t, filepath.Join(t.TempDir(), "rondo.db"), options.WithDriver(driver.name))
	driver.set(func(s step) fault {
		if s.kind != execs || s.sql != "BEGIN IMMEDIATE" || busies == 0 {
			return fault{}
		}
		busies--
		return fault{err: busy}
	})
	commit(t, s, historytest.NewActor("a").Start())
	driver.set(nil)
	if busies != 0 || !slices.Equal(seen, []string{"commit <nil>"}) {
		t.Errorf("after a commit that %d attempts did not reach, the operations are %q", busies, seen)
	}
}
