//go:build linux || darwin

package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// limitFiles lets writing behind a place of a file fail, as on a disk that fails, until it is
// undone.
func limitFiles(t *testing.T, size uint64) (undo func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheDiskFails lets the system refuse what SQLite writes to the log, from different places on.
// This is what really happens at a COMMIT: the error is ambiguous, and neither the store nor a
// process that opens the file after a crash in that moment finds half of the batch.
func TestTheDiskFails(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ) // the system's way to tell of it, besides the error
	defer signal.Reset(syscall.SIGXFSZ)
	b := newBench(t, filepath.Join(t.TempDir(), "rondo.db"))
	x := newTrial(b, unstorableAmongOthers)
	failed := 0
	for size := uint64(0); ; size += 3100 { // within the header of a page, and within the page
		b.wipe()
		batch := unstorableAmongOthers(b)
		if err := b.driver.onWriter("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			b.Fatal(err)
		}
		undo := limitFiles(t, size)
		r, err := b.store.Commit(t.Context(), batch)
		undo()
		what := fmt.Sprintf("a disk that fails behind %d bytes", size)
		if err == nil {
			x.check(what, batch, r, err)
			break
		}
		failed++
		if history.ClassOf(err) != history.Ambiguous {
			t.Fatalf("%s: %v: %v", what, history.ClassOf(err), err)
		}
		if got := afterCrash(t, b.path); got != x.before && got != x.want {
			t.Fatalf("%s: after a crash half of it is there:\n%s\nbefore\n%s\nwant\n%s", what, got, x.before, x.want)
		}
		if there := x.check(what, batch, r, err); there {
			t.Fatalf("%s: it is there", what)
		}
	}
	t.Logf("%d places", failed)
	if failed < 10 {
		t.Errorf("the disk failed in %d places only", failed)
	}
	commit(t, b.store, historytest.NewActor("last").Start())
	integrity(t, b.path)
}

// afterCrash is the contents that the database would have if the process had crashed now.
func afterCrash(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	for _, end := range []string{"", "-wal"} { // without the index of the log, which is made anew after a crash
		data, err := os.ReadFile(path + end)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "copy.db"+end), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "copy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return (&bench{T: t, direct: db}).contents()
}
