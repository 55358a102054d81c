package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lastLine returns the last line of the errors of a program that has failed.
func lastLine(t *testing.T, p *running) string {
	t.Helper()
	code, _, errs := p.wait()
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	return lines[len(lines)-1]
}

// TestDevNamesTheFilesToRemove: the database in the directory of dev is not the one that its NATS
// knows, as after a restore. The error has the command after which dev runs.
func TestDevNamesTheFilesToRemove(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's a system")
	args := with("dev", "--dir", dir, "--nats-listen", "127.0.0.1:0")
	start(t, nil, args...).ready().end()
	for _, name := range []string{"rondo.db", "rondo.db-wal", "rondo.db-shm"} {
		_ = os.Remove(filepath.Join(dir, name)) // not all are there
	}
	says := lastLine(t, start(t, nil, args...))
	want := "rm -r '" + strings.ReplaceAll(filepath.Join(dir, "nats"), "'", `'\''`) + "'"
	if !strings.Contains(says, want) || strings.Contains(says, "--adopt") || strings.Count(says, "dev: ") != 1 {
		t.Errorf("it says %s; want %s", says, want)
	}
	if err := os.RemoveAll(filepath.Join(dir, "nats")); err != nil {
		t.Fatal(err)
	}
	start(t, nil, args...).ready().end()
}

// TestAMismatchNamesTheServiceOnce: the name of the command is that of the service.
func TestAMismatchNamesTheServiceOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	orchestrator := func(database string) *running {
		return start(t, nil, with("orchestrator", "--nats", s.URL(), "--database", database)...)
	}
	orchestrator(filepath.Join(t.TempDir(), "one.db")).ready().end()
	other := filepath.Join(t.TempDir(), "other.db")
	says := lastLine(t, orchestrator(other))
	if want := " orchestrator: database " + other + ", NATS "; !strings.Contains(says, want) ||
		strings.Count(says, "orchestrator: ") != 1 {
		t.Errorf("it says %s; want %s", says, want)
	}
}
