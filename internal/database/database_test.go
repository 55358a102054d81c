package database_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// TestDatabasesAreOpenedToLookAtThem opens them beside their writers, and never creates one.
func TestDatabasesAreOpenedToLookAtThem(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	look := func(t *testing.T, address string) {
		t.Helper()
		s, err := database.OpenReadOnly(t.Context(), address, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if n, err := s.Count(t.Context(), history.Filter{}, 0); n != 0 || err != nil {
			t.Errorf("%d instances, %v", n, err)
		}
		if _, err := s.Delete(t.Context(), []string{"x"}, history.Deletion{}); err == nil {
			t.Error("something could be deleted")
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rondo.db")
		_, err := database.OpenReadOnly(t.Context(), path, quiet)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a file that is not there: %v", err)
		}
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		look(t, path)
		look(t, "sqlite:"+path)
	})
	t.Run("postgres", func(t *testing.T) {
		pgtest.Need(t)
		address := pgtest.Database(t)
		s, err := cockroach.Open(t.Context(), address, cockroach.Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		look(t, address)
	})
	if _, err := database.OpenReadOnly(t.Context(), "postgres://user:secret@127.0.0.1:1/rondo?connect_timeout=1",
		quiet); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens there: %v", err)
	}
}

// TestMistypedAddresses: the mistyped address of a server is not the path of a SQLite file.
func TestMistypedAddresses(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "history")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, good := range []string{"postgres://u@127.0.0.1/x", "postgresql://h/x", "host=h dbname=x", there,
		filepath.Join(dir, "rondo.db"), filepath.Join(dir, "x.SQLite"), "rondo.db", "sqlite:rondo", "sqlite:" + there,
		"sqlite::memory:"} {
		if err := database.Check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, says := range map[string]string{
		"127.0.0.1:5432/x": "neither the address", "rondo:secret@db.example.com:5432/rondo": "(hidden)@db.example.com",
		"postgres:/u@127.0.0.1/x": "neither", "postgres//u@h/x": "neither", "u@h:5432/x.db": "neither",
		"localhost": "neither", "db.example.com": "neither", "$DATABASE_URL": "neither", "$DIR/rondo.db": "neither",
		"sqlite://x.db":        "sqlite:x.db, or sqlite:/x.db",
		"mysql://u:secret@h/x": `kind "mysql"`, "cockroachdb://root@h:26257/x": "write postgres://",
		"sqlite3:" + filepath.Join(dir, "rondo.db"): "sqlite:PATH", "file:rondo.db": "sqlite:PATH",
		"Postgres://u@h/x": "write postgres://",
		"sqlite:":          "missing", ":memory:": "sqlite::memory:", "postgres": "neither",
	} {
		if err := database.Check(bad); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
