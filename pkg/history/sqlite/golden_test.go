package sqlite_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

var update = flag.Bool("update", false, "write testdata/sqlite.sql anew")

const goldenHead = `-- All statements as they are sent to SQLite, those that differ by lengths of lists only once each.
-- Written by: go test ./pkg/history/sqlite -run TestStatementsForSQLite -update
`

// TestStatementsForSQLite keeps the statements as the store sends them to SQLite, so that a
// reviewer sees the final text of each.
func TestStatementsForSQLite(t *testing.T) {
	path := filepath.Join("testdata", "sqlite.sql")
	text := goldenHead + strings.Join(sentStatements(t), "\n----\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		known := strings.Split(string(want), "\n----\n")
		i := slices.IndexFunc(strings.Split(text, "\n----\n"), func(s string) bool {
			return !slices.Contains(known, s)
		})
		t.Errorf("The statements for SQLite are no longer those of %s. Run this test with -update. Statement %d is "+
			"the first that differs", path, i+1)
	}
}

// sentStatements are the statements that a store makes of its tables, and those that a driver gets
// from it, in the order of their texts.
func sentStatements(t *testing.T) (all []string) {
	seen := make(map[string]bool)
	note := func(statements ...string) {
		for _, s := range statements {
			if kind := lengths.ReplaceAllString(s, ""); !seen[kind] {
				seen[kind] = true
				all = append(all, s)
			}
		}
	}
	note(sqlite.Statements()...)
	b := newBench(t, filepath.Join(t.TempDir(), "rondo.db"))
	record := func() {
		b.driver.set(func(s step) fault {
			if s.kind == execs || s.kind == queries {
				note(s.sql)
			}
			return fault{}
		})
	}
	for _, o := range operations(b) {
		b.wipe()
		b.now = historytest.Began.Add(2 * time.Minute)
		record()
		o.begin()
		record()
		if err := o.do(); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		b.driver.set(nil)
	}
	record()
	b.commitAll()
	b.listAll()
	b.driver.set(nil)
	slices.Sort(all)
	return all
}

// lengths are the parts of lists behind their first.
var lengths = regexp.MustCompile(`(, (\$\d+|\?|\((\d+, )?(\?|\$\d+|CAST\(\$\d+ AS TEXT\))(, (\?|\$\d+))*\)))+|LIMIT \d+`)

// commitAll lets the store send the statements of commits that no operation has sent: it commits
// turns that change values.
func (b *bench) commitAll() {
	b.Helper()
	b.wipe()
	a := historytest.NewActor("x")
	commit(b, b.store, historytest.Together(a.Start(), a.Set("k", "1")))
	commit(b, b.store, a.Remove("k"))
	commit(b, b.store, a.Complete("1"))
	again := a.Start(historytest.WithMessage("again"))
	again.ClearValues = true
	commit(b, b.store, again)
}

// listAll lets the store send the statements of lists, each filter by itself and with others.
func (b *bench) listAll() {
	b.Helper()
	ctx, from, to := b.Context(), historytest.Began, historytest.Began.Add(time.Hour)
	for _, f := range []history.Filter{
		{}, {Name: "orders"}, {IDs: []string{"x", "y"}}, {IDPrefix: "x"}, {Parent: "x"},
		{Attributes: map[string]string{"customer": "c-7", "region": "eu"}},
		{Statuses: []round.Status{round.Completed, round.Failed}, Name: "orders", Version: "1.0.0", RootsOnly: true,
			CreatedAfter: from, CreatedBefore: to, EndedAfter: from, EndedBefore: to},
	} {
		if _, err := b.store.List(ctx, f, history.Page{Limit: 1}); err != nil {
			b.Fatal(err)
		}
		if _, err := b.store.Count(ctx, f, 100); err != nil {
			b.Fatal(err)
		}
	}
	before := historytest.Began.Add(time.Hour)
	_, valuesErr := b.store.ValuesOf(ctx, []string{"x", "y"})
	_, tombstonesErr := b.store.Tombstones(ctx, []string{"x", "y"})
	_, outboxErr := b.store.OldOutbox(ctx, before, 10)
	_, oldestErr := b.store.OldestOutbox(ctx)
	_, updateErr := b.store.LastUpdate(ctx, before)
	_, systemErr := b.store.Identity(ctx)
	_, _, setErr := b.store.SetIdentity(ctx, history.System{}, "x", 1)
	_, schedulesErr := b.store.ListSchedules(ctx, history.ScheduleFilter{IDPrefix: "x"}, history.Page{})
	_, withinErr := b.store.Within(1).ListSchedules(ctx, history.ScheduleFilter{}, history.Page{})
	for _, err := range []error{valuesErr, tombstonesErr, outboxErr, oldestErr, updateErr, systemErr, setErr,
		schedulesErr, withinErr} {
		if err != nil {
			b.Fatal(err)
		}
	}
}
