package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestAFailedWriteFailsTheCommand: a script must not take a truncated output for a complete one.
func TestAFailedWriteFailsTheCommand(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "rondo.db")
	for _, args := range []string{"version", "help", "help worker", "migrate --database " + database,
		"migrate --print-config --database " + database} {
		var problems strings.Builder
		code := run(t.Context(), strings.Fields(args), os.LookupEnv, nil, fullDisk{}, &problems,
			func(code int) { t.Errorf("it does not end, and exits with %d", code) }, nil)
		if code != failed || strings.Count(problems.String(), "no space left on device") != 1 {
			t.Errorf("%s: exit code %d, want %d; it printed %q", args, code, failed, problems.String())
		}
	}
}
