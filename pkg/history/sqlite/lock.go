package sqlite

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// LockedError says that a database is open for writing already.
type LockedError struct {
	Path string
	// PID is the process that has it open, 0 if it has not said so.
	PID int
}

func (e *LockedError) Error() string {
	switch e.PID {
	case os.Getpid():
		return fmt.Sprintf("%s is open in this process already; use the store that has it open, or open it read-only",
			e.Path)
	case 0:
		return fmt.Sprintf("another process has %s open; stop that process first, or open the database read-only",
			e.Path)
	}
	return fmt.Sprintf("another process (pid %d) has %s open; stop that process first, or open the database read-only",
		e.PID, e.Path)
}

// lock takes the lock of a database, or names its holder. The operating system releases it when the
// process ends in any way. The file stays: removing it would let two processes hold locks of two
// files with one name.
func lock(path string) (*flock.Flock, error) {
	l := flock.New(path + ".lock")
	ok, err := l.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", l.Path(), err)
	case !ok:
		return nil, &LockedError{Path: path, PID: holder(l.Path())}
	}
	sayHolder(l.Path(), strconv.Itoa(os.Getpid())+"\n")
	return l, nil
}

// unlock gives the lock back.
func unlock(l *flock.Flock) error {
	if l == nil {
		return nil
	}
	sayHolder(l.Path(), "")
	return l.Unlock()
}

// sayHolder writes the pid of the holder. It is for messages only, so it may fail: Windows lets no
// process read or write a locked file.
func sayHolder(path, pid string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(pid); err == nil {
		_ = f.Truncate(int64(len(pid)))
	}
}

func holder(path string) int {
	data, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}
