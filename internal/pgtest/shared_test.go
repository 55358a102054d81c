package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rondo-run/rondo/internal/pgtest"
)

// byProcess is a template that says which process has made it.
var byProcess = pgtest.Template{Name: "by_process", Make: func(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("CREATE TABLE made AS SELECT %d AS by", os.Getpid()))
	return errors.Join(err, conn.Close(ctx))
}}

// TestProcessesShareAServer runs two processes on one server. They make a template once, have
// databases of their own, and start private servers beside it.
func TestProcessesShareAServer(t *testing.T) {
	if os.Getenv(roleVariable) != "" {
		conn := connect(t, byProcess.Database(t))
		fmt.Println("shared", query(t, conn, "SHOW data_directory"))
		fmt.Println("maker", query(t, conn, "SELECT by::text FROM made"))
		fmt.Println("name", query(t, conn, "SELECT current_database()::text"))
		fmt.Println("private", query(t, connect(t, pgtest.Start(t).DSN()), "SHOW data_directory"))
		return
	}
	t.Parallel()
	pgtest.Need(t)
	run, dir, err := pgtest.Share()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() }) // it is closed twice unless the test fails before
	const processes = 2
	said := make(chan string, processes)
	for range processes {
		go func() {
			cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), roleVariable+"=sharer", pgtest.SharedVariable+"="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
			said <- string(out)
		}()
	}
	got := make(map[string]map[string]bool)
	for range processes {
		for line := range strings.Lines(<-said) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if got[key] == nil {
				got[key] = make(map[string]bool)
			}
			got[key][value] = true
		}
	}
	for key, want := range map[string]int{"shared": 1, "maker": 1, "name": processes, "private": processes} {
		if len(got[key]) != want {
			t.Errorf("%s is %v, want %d values", key, got[key], want)
		}
	}
	if !got["shared"][run.Data()] {
		t.Errorf("the processes use %v, want %s", got["shared"], run.Data())
	}
	for data := range got["private"] {
		waitUntilGone(t, data)
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", filepath.Base(dir), err)
	}
}

// TestNoServerIsShared sets the variable to a directory without a server.
func TestNoServerIsShared(t *testing.T) {
	if os.Getenv(roleVariable) != "" {
		pgtest.Database(t)
		return
	}
	t.Parallel()
	pgtest.Need(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), roleVariable+"=sharer", pgtest.SharedVariable+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), pgtest.SharedVariable) {
		t.Errorf("%v:\n%s", err, out)
	}
}
