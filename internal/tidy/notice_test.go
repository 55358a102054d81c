package tidy

import (
	"strings"
	"testing"
)

// TestChecksNotice makes sure that the checks find what they are there to find, and nothing else.
func TestChecksNotice(t *testing.T) {
	const round = "pkg/round/x.go"
	cases := []struct {
		name, path, src string
		check           func(*source) []string
		want            string // part of the problem; "" if there is none
	}{
		{"unknown package", "pkg/new/new.go", `package new`, checkImports, "add it to the table"},
		{"unknown package with tests only", "pkg/new/new_test.go", `package new`, checkImports, "add it to the table"},
		{"wrong arrow", "pkg/events/x.go", `package events; import "github.com/rondo-run/rondo/pkg/round"`,
			checkImports, "may not import pkg/round"},
		{"right arrow", round, `package round; import "github.com/rondo-run/rondo/pkg/events"`, checkImports, ""},
		{"wrong arrow in a test", "pkg/round/x_test.go",
			`package round; import "github.com/rondo-run/rondo/services/orchestrator"`, checkImports, "testImports"},
		{"own package in a test", "examples/a/x_test.go", `package a; import "github.com/rondo-run/rondo/examples/a"`,
			checkImports, ""},
		{"example of public packages", "examples/a/x.go", `package a; import "github.com/rondo-run/rondo/pkg/activity"`,
			checkImports, ""},
		{"example of an internal package", "examples/a/x.go",
			`package a; import "github.com/rondo-run/rondo/internal/coro"`, checkImports,
			"may not import internal/coro"},
		{"library", "pkg/events/x.go", `package events; import "example.com/uuid"`, checkImports,
			"may not import example.com/uuid"},
		{"standard library", "pkg/events/x.go", `package events; import "encoding/json"`, checkImports, ""},
		{"network", "pkg/events/x.go", `package events; import "net/http"`, checkImports, "is pure"},
		{"other package with the same beginning", "pkg/events/x.go", `package events; import "maps"; import "path"`,
			checkImports, ""},
		{"context", round, `package round; import "context"`, checkImports, "is pure"},
		{"part of a package", round, `package round; import "log/slog"; var r slog.Record`, checkImports, ""},
		{"other part of a package", round, `package round; import l "log/slog"; func f() { l.Info("") }`,
			checkImports, "not Info"},
		{"dot import", round, `package round; import . "log/slog"`, checkImports, "by its name"},
		{"chance without a source", "internal/coro/x.go",
			`package program; import "math/rand/v2"; var n = rand.Int()`, checkImports, "not Int"},
		{"anything in a test", "pkg/events/x_test.go", `package events; import "os"`, checkImports, ""},
		{"no goroutine", round, `package round; func f() { f() }`, checkPure, ""},
		{"goroutine", round, `package round; func f() { go f() }`, checkPure, "a goroutine"},
		{"clock", round, `package round; import "time"; var now = time.Now`, checkPure, "time.Now"},
		{"clock under another name", round, `package round; import t "time"; func f() { <-t.After(1) }`, checkPure,
			"time.After"},
		{"time without a clock", round, `package round; import "time"; var t = time.Unix(0, 0)`, checkPure, ""},
		{"clock where it may be", "pkg/activity/x.go", `package activity; import "time"; var now = time.Now`,
			checkPure, ""},
		{"sleeping test", "pkg/round/x_test.go", `package round; import "time"; func f() { time.Sleep(1) }`, checkSleep,
			"a test sleeps"},
		{"long file", round, "package round" + strings.Repeat("\n", maxFileLines+1), checkSizes,
			"the file has 701 lines"},
		{"file that is just short enough", round, "package round" + strings.Repeat("\n", maxFileLines), checkSizes, ""},
		{"long function", round, "package round; func f() {" + strings.Repeat("\n", maxFunctionLines) + "}", checkSizes,
			"function f has 101 lines"},
		{"name that says nothing", "pkg/util" + "s/x.go", `package x`, checkPackageName, "does not say"},
		{"no comment", round, `package round`, commentOf, "has no package comment"},
		{"comment", round, "// Package round decides.\npackage round", commentOf, ""},
		{"other comment", round, "// This decides.\npackage round", commentOf, "begin the package comment"},
		{"comment of a command", "cmd/rondo/main.go", "// Command rondo is the command line.\npackage main",
			commentOf, ""},
		{"plan", round, "package round // TO" + "DO: more", wordsOf, "do it now"},
		{"name that looks like a plan", round, "package round // context.TO" + "DO()", wordsOf, ""},
		{"number of a conversation", round, "package round // see issue " + "#12", wordsOf, "say in the text itself"},
		{"header", round, "package round // the User-Age" + "nt header", wordsOf, ""},
		{"machine path", round, "package round // see /ro" + "ot/x", wordsOf, "one machine only"},
		{"address", round, "package round // see https://example.com/ho" + "me/x", wordsOf, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, err := parse(c.path, c.src)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(c.check(f), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
