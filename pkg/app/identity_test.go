package app_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
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

// migrates runs migrate, which must fail and say why.
func migrates(t *testing.T, says string, args ...string) {
	t.Helper()
	args = append([]string{"migrate", "--connect-timeout", "5s"}, args...)
	if code, out, problems := inside(t, environment(), args...); code != 1 || !strings.Contains(problems, says) {
		t.Errorf("%v: exit code %d, want 1 and %q in: %s%s", args, code, says, out, problems)
	}
}

// TestAMistakenMigrationLeavesNothing: migrate compares before it makes a table or a stream.
func TestAMistakenMigrationLeavesNothing(t *testing.T) {
	t.Parallel()
	s, empty := server(t), server(t)
	start(t, nil, with("orchestrator", "--nats", s.URL(), "--database", filepath.Join(t.TempDir(), "one.db"))...).
		ready().end()
	other := filepath.Join(t.TempDir(), "other.db")
	migrates(t, "the database is new, and NATS is in use with another one", "--nats", s.URL(), "--database", other,
		"--streams")
	migrates(t, `no streams with the prefix "absent"`, "--nats", s.URL(), "--database", other, "--prefix", "absent",
		"--adopt")
	migrates(t, "add --streams", "--nats", empty.URL(), "--database", other, "--adopt")
	if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the database is there: %v", err)
	}
}

// TestARestoredDatabaseIsNotAdoptedWithMessagesInFlight: NATS has messages that the instances of a
// restored database have not sent. migrate names their streams.
func TestARestoredDatabaseIsNotAdoptedWithMessagesInFlight(t *testing.T) {
	t.Parallel()
	s, database := server(t), filepath.Join(t.TempDir(), "one.db")
	start(t, nil, with("orchestrator", "--nats", s.URL(), "--database", database)...).ready().end()
	b := natstest.Connect(t, s, natsbroker.Config{Setup: natsbroker.Use})
	value, err := b.Get(t.Context(), broker.KeySystem)
	if err != nil {
		t.Fatal(err)
	}
	var e identity.Entry
	if err := json.Unmarshal(value, &e); err != nil {
		t.Fatal(err)
	}
	e.Beats, e.BeatAt = e.Beats+1000, e.BeatAt.Add(time.Hour)
	if value, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), broker.KeySystem, value, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), events.Wire{Subject: "rondo.event.e.i"},
		events.Wire{Subject: "rondo.task._.act.1-2.i"}); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"the streams RONDO, RONDO_TASKS hold messages", "`nats stream rm RONDO -f`",
		`"After the database was restored"`} {
		migrates(t, says, "--nats", s.URL(), "--database", database, "--streams", "--adopt")
	}
	migrates(t, "docs/operating.md", "--nats", s.URL(), "--database", database, "--streams")
	if still, err := b.Get(t.Context(), broker.KeySystem); string(still) != string(value) {
		t.Errorf("NATS has %s, %v; want %s", still, err, value)
	}
}

// TestAMistakenNATSGetsNoStreams: a database is in use with another NATS than that of migrate.
func TestAMistakenNATSGetsNoStreams(t *testing.T) {
	pgtest.Need(t)
	t.Parallel()
	address, another, empty := pgtest.Database(t), pgtest.Database(t), server(t)
	store, err := cockroach.Open(t.Context(), address, cockroach.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	beats, _, err := store.SetIdentity(t.Context(), history.System{}, "one", 1)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	defer func() { <-ended }()
	end := make(chan struct{})
	defer close(end)
	go func() { // as an orchestrator does
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if now, _, err := store.SetIdentity(t.Context(), beats, beats.ID, beats.Beats+1); err == nil {
				beats = now
			}
		}
	}()
	migrates(t, "orchestrators use this database with another NATS", "--nats", empty.URL(), "--database", address,
		"--streams")
	b := natstest.Connect(t, empty, natsbroker.Config{Setup: natsbroker.Use})
	if _, err := b.Get(t.Context(), "system"); !errors.Is(err, natsbroker.ErrUnseen) {
		t.Errorf("NATS has streams: %v", err)
	}
	used := server(t)
	b = natstest.Connect(t, used, natsbroker.Config{})
	if err := b.Put(t.Context(), "system", []byte(`{"system":"two","beats":1}`), 0); err != nil {
		t.Fatal(err)
	}
	migrates(t, "the database is new", "--nats", used.URL(), "--database", another, "--streams")
	_, err = cockroach.Open(t.Context(), another, cockroach.Options{Schema: cockroach.Verify,
		Log: slog.New(slog.DiscardHandler)})
	if schema, is := errors.AsType[*history.SchemaError](err); !is || schema.Found != 0 {
		t.Errorf("the database has tables: %v", err)
	}
}
