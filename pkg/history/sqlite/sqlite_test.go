package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	historytest.Run(t, database)
}

func TestConformanceInMemory(t *testing.T) {
	racetest.TooMuch(t)
	t.Parallel()
	historytest.Run(t, memory)
}

// memory is a database in memory for the suite. Each store has one of its own, so tests that open a
// second store are skipped.
func memory(testing.TB) *historytest.Database {
	var (
		s    *sqlite.Store
		test testing.TB // that has opened it
	)
	return &historytest.Database{
		Volatile: true,
		Shard:    func(string) int16 { return 0 },
		Open: func(tb testing.TB, o historytest.Options) history.Store {
			if test == tb {
				tb.Skip("what is in memory is gone when its store is closed, and nobody else can open it")
			}
			s, test = open(tb, sqlite.Memory, sqlite.Options{Now: o.Now, Observer: o.Observer}), tb
			return s
		},
		Exec: func(tb testing.TB, statement string, args ...any) {
			if test != tb {
				return // the suite empties what the test before has left, and that is gone
			}
			if err := s.Exec(tb.Context(), statement, args...); err != nil {
				tb.Fatalf("%s: %v", statement, err)
			}
		},
	}
}

// database is a database in a file for the suite. Nothing in it is about power failures.
func database(tb testing.TB) *historytest.Database {
	return databaseWith(tb, sqlite.Options{Sync: sqlite.Checkpoints})
}

func databaseWith(tb testing.TB, options sqlite.Options) *historytest.Database {
	path := filepath.Join(tb.TempDir(), "rondo.db")
	return &historytest.Database{
		Shard: func(string) int16 { return 0 },
		Open: func(tb testing.TB, o historytest.Options) history.Store {
			with := options
			with.Now, with.Observer = o.Now, o.Observer
			return open(tb, path, with)
		},
		SecondsAfter: func(from time.Time, column string) string {
			return fmt.Sprintf("%d + %s * 1000000", from.UnixMicro(), column)
		},
		Exec: func(tb testing.TB, statement string, args ...any) {
			statement = strings.ReplaceAll(statement, "DELETE FROM rondo_marks", "SELECT 1") // there are none here
			behind(tb, path, statement, args...)
		},
	}
}

func open(tb testing.TB, path string, options sqlite.Options) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), path, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// behind runs a statement behind the store's back.
func behind(tb testing.TB, path, statement string, args ...any) {
	tb.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func commit(tb testing.TB, s history.Store, turns ...*round.Turn) history.Result {
	tb.Helper()
	r, err := s.Commit(tb.Context(), historytest.Batch(tb, turns...))
	if err != nil {
		tb.Fatal(err)
	}
	for i, o := range r.Outcomes {
		if o.Status != history.Committed {
			tb.Fatalf("the turn of %q: %v, %v", turns[i].Instance, o.Status, o.Err)
		}
	}
	return r
}

func count(tb testing.TB, s history.Store) int64 {
	tb.Helper()
	n, err := s.Count(tb.Context(), history.Filter{}, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestFileAndDirectoryAreMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a dir?", "with#signs%41", "rondo.db")
	s := open(t, path, sqlite.Options{})
	commit(t, s, historytest.NewActor("a").Start())
	for name, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600, path + "-wal": 0o600,
		path + ".lock": 0o600} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %v, want %v", filepath.Base(name), got, want)
		}
	}
}

func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	s := open(t, path, sqlite.Options{})
	commit(t, s, historytest.NewActor("a").StartAndCall())
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Load(t.Context(), []string{"a"}, nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("load from a closed store: %v", err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is still there: %v", err)
	}
	if n := count(t, open(t, path, sqlite.Options{Schema: sqlite.Verify})); n != 1 {
		t.Errorf("there are %d instances", n)
	}
}

func TestOpenTwiceInOneProcess(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rondo.db")
	open(t, path, sqlite.Options{})
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err := sqlite.Open(t.Context(), p, sqlite.Options{})
		var locked *sqlite.LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getpid() || !strings.Contains(err.Error(), "in this process") ||
			history.ClassOf(err) != history.Permanent {
			t.Errorf("opened again: %v", err)
		}
	}
}

func TestOpenWhatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, path string
		options    sqlite.Options
		class      history.Class
		says       string
	}{
		{"no path", "", sqlite.Options{}, history.Permanent, "no path of a file"},
		{"URI", "file:x", sqlite.Options{}, history.Permanent, "no path of a file"},
		{"directory", dir, sqlite.Options{}, history.Permanent, "directory"},
		{"no database", text, sqlite.Options{}, history.Corrupt, "no SQLite database"},
		{"nothing to verify", filepath.Join(dir, "missing"), sqlite.Options{Schema: sqlite.Verify}, history.Permanent,
			"no tables of Rondo's"},
		{"nothing to read", filepath.Join(dir, "missing"), sqlite.Options{ReadOnly: true}, history.Permanent,
			"there is no file"},
		{"memory of somebody else", sqlite.Memory, sqlite.Options{ReadOnly: true}, history.Permanent, "read-only"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := sqlite.Open(t.Context(), c.path, c.options)
			if err == nil || history.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v error: %v", history.ClassOf(err), err)
			}
		})
	}
	// None of them has left a lock behind.
	open(t, filepath.Join(dir, "missing"), sqlite.Options{})
}

func TestNewerTablesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	open(t, path, sqlite.Options{}).Close()
	behind(t, path, "UPDATE rondo_schema SET version = 1000")
	for _, o := range []sqlite.Options{{}, {Schema: sqlite.Verify}, {ReadOnly: true}} {
		_, err := sqlite.Open(t.Context(), path, o)
		var schema *history.SchemaError
		if !errors.As(err, &schema) || schema.Found != 1000 || schema.Wanted != sqlite.SchemaVersion ||
			history.ClassOf(err) != history.Permanent || !strings.Contains(err.Error(), "another build") {
			t.Errorf("opened with %+v: %v", o, err)
		}
	}
}

func TestTablesOfAnotherBuildAreExplained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	open(t, path, sqlite.Options{}).Close()
	behind(t, path, "UPDATE rondo_schema SET version = 0")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil ||
		!strings.Contains(err.Error(), "already exists") || !strings.Contains(err.Error(), "another build of Rondo") {
		t.Errorf("got %v", err)
	}
}

func TestReadOnlyBesideTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	w := open(t, path, sqlite.Options{})
	r := open(t, path, sqlite.Options{ReadOnly: true})
	commit(t, w, historytest.NewActor("a").StartAndCall())
	if n := count(t, r); n != 1 {
		t.Errorf("the reader sees %d instances", n)
	}
	take := history.Lease{Before: historytest.Began.Add(time.Hour),
		Until: historytest.Began.Add(2 * time.Hour), Limit: 1}
	writes := map[string]func() error{
		"Commit": func() error {
			_, err := r.Commit(t.Context(), historytest.Batch(t, historytest.NewActor("b").Start()))
			return err
		},
		"LeaseOutbox":  func() error { _, err := r.LeaseOutbox(t.Context(), take); return err },
		"RemoveOutbox": func() error { return r.RemoveOutbox(t.Context(), []history.OutboxKey{{ID: 1}}) },
		"LeaseOverdue": func() error { _, err := r.LeaseOverdue(t.Context(), take); return err },
		"Delete": func() error {
			_, err := r.Delete(t.Context(), []string{"a"}, history.Deletion{Force: true})
			return err
		},
	}
	for name, write := range writes {
		if err := write(); !errors.Is(err, sqlite.ErrReadOnly) || history.ClassOf(err) != history.Permanent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMemory(t *testing.T) {
	one, other := open(t, sqlite.Memory, sqlite.Options{}), open(t, sqlite.Memory, sqlite.Options{})
	hammer(t, one)
	if n := count(t, other); n != 0 {
		t.Errorf("the other database has %d instances", n)
	}
	// A statement that was interrupted must not take the database with it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := one.Count(ctx, history.Filter{}, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := count(t, one); n != 8*20 {
		t.Errorf("there are %d instances", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "rondo.db"), sqlite.Options{Sync: sqlite.Checkpoints})
	hammer(t, s)
}

// hammer commits and reads from several goroutines. Some give up in the midst of it.
func hammer(t *testing.T, s *sqlite.Store) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				a := historytest.NewActor(fmt.Sprintf("i-%d-%d", g, i))
				commit(t, s, a.StartAndCall())
				commit(t, s, a.Set("k", "1"))
				known, err := s.Load(t.Context(), []string{a.ID, "nobody"}, nil)
				if err != nil || int64(len(known[0].History)) != a.Row.LastEvent || known[1].Row.Execution != 0 {
					t.Errorf("%+v, %v", known, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
				if _, err := s.List(ctx, history.Filter{}, history.Page{}); err != nil &&
					history.ClassOf(err) != history.Retry {
					t.Error(err)
				}
				b := a.Clone()
				if r, err := s.Commit(ctx, historytest.Batch(t, b.Note())); err == nil &&
					r.Outcomes[0].Status != history.Committed || err != nil && history.ClassOf(err) != history.Retry {
					t.Error(r, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if n := count(t, s); n != 8*20 {
		t.Errorf("there are %d instances", n)
	}
}

func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	s := open(t, path, sqlite.Options{})
	commit(t, s, historytest.NewActor("a").Start())
	db, err := sql.Open("sqlite", path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, s); n != 1 {
		t.Errorf("there are %d instances", n)
	}
	// Another writer is waited for, as long as the context goes on.
	var patience time.Duration
	for met := false; !met; patience += 10 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := s.Commit(ctx, historytest.Batch(t, historytest.NewActor("b").Start()))
		cancel()
		switch history.ClassOf(err) {
		case history.Contended:
			met = true
		case history.Retry: // its time was over before it met the other one
		default:
			t.Fatalf("committed beside another writer: %v", err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	commit(t, s, historytest.NewActor("b").Start())
}

func TestOutboxIDsAreUniqueWhenTheClockStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	seen := make(map[history.OutboxKey]bool)
	now := historytest.Began
	for open := range 3 {
		now = now.Add(-time.Hour)
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			for _, k := range commit(t, s,
				historytest.NewActor(fmt.Sprintf("%d-%d", open, i)).StartAndCall()).Entries {
				if seen[k] {
					t.Errorf("outbox entry %v is there twice", k)
				}
				seen[k] = true
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d outbox entries", len(seen))
	}
}

// integrity lets SQLite check the file.
func integrity(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("the file is %q, %v", verdict, err)
	}
}
