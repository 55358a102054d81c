package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/pgtest"
)

// said runs a command, and gives its exit code and everything it says.
func said(t *testing.T, database string, args ...string) (int, string) {
	t.Helper()
	var out strings.Builder
	code := run(t.Context(), args, func(name string) string {
		if name == databaseVariable {
			return database
		}
		return ""
	}, &out, &out)
	return code, out.String()
}

// expect checks the exit code and a part of what is said.
func expect(t *testing.T, code int, text string, wantCode int, want string) {
	t.Helper()
	if code != wantCode || !strings.Contains(text, want) {
		t.Fatalf("exit code %d, want %d; it says %q, want %q", code, wantCode, text, want)
	}
}

// TestMigrate shows that a database is checked, made, and left alone then, on both kinds.
func TestMigrate(t *testing.T) {
	addresses := map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return filepath.Join(t.TempDir(), "rondo.db") },
		"postgres": func(t *testing.T) string {
			pgtest.Need(t)
			return pgtest.Database(t)
		},
	}
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			at := address(t)
			code, text := said(t, at, "migrate", "--check")
			expect(t, code, text, failed, "rondo migrate")
			code, text = said(t, "", "migrate", "--database", at)
			expect(t, code, text, succeeded, "the tables were made; they are of version 1")
			code, text = said(t, at, "migrate")
			expect(t, code, text, succeeded, "the tables are of version 1")
			code, text = said(t, at, "migrate", "--check")
			expect(t, code, text, succeeded, "the tables are of version 1")
		})
	}
}

// TestMisuse shows that whoever types something wrong is told what to type.
func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, misused, "rondo migrate"},
		{[]string{"migrat"}, misused, "rondo migrate"},
		{[]string{"migrate"}, misused, "--database or $RONDO_DATABASE_URL"},
		{[]string{"migrate", "postgres://h/d"}, misused, "--database"},
		{[]string{"migrate", "--databas", "x"}, misused, "-database"},
		{[]string{"--help"}, succeeded, "a SQLite file"},
		{[]string{"migrate", "-h"}, succeeded, "-check"},
	} {
		code, text := said(t, "", c.args...)
		expect(t, code, text, c.code, c.want)
	}
}

// TestTrouble shows that a bad address fails with its reason, without its password, and that time is bounded.
func TestTrouble(t *testing.T) {
	code, text := said(t, "postgres://user:secret@127.0.0.1:x/rondo", "migrate")
	expect(t, code, text, failed, "postgres://user:password@host")
	if strings.Contains(text, "secret") {
		t.Fatalf("it says the password: %q", text)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	code = run(ended, []string{"migrate", "--database", "postgres://127.0.0.1:1/rondo"}, func(string) string { return "" }, &out, &out)
	expect(t, code, out.String(), failed, "rondo migrate: ")
}
