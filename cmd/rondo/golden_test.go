package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

// goldens is the directory with the JSON output of commands. Programs rely on it: fields may be
// added, and nothing else may change.
const goldens = "testdata/json"

// changingJSON are further parts that are never the same, in JSON.
var changingJSON = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`"(host|build|answered_by|owner|by|worker|trace|next|nats|system)": "[^"]*"`), `"$1": "…"`},
	{regexp.MustCompile(`"version": "rondo [^"]*"`), `"version": "…"`},
	{regexp.MustCompile(`"[^"\s]*-[0-9]+-[0-9a-f]{8}"`), `"…"`},
	{regexp.MustCompile(`"id": "[^"]*-[0-9a-f]{8,10}"`), `"id": "…"`},
	{regexp.MustCompile(`"(payment|detail)": "(?:[^"\\]|\\.)*"`), `"$1": "…"`},
	{regexp.MustCompile(`"(receivers|engine|history_bytes)": \d+`), `"$1": 1`},
}

// golden runs a command with --output json and compares what it prints with a file: golden NAME
// command args...
func golden(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: golden NAME command [args...]")
	}
	got := printed(ts, args)
	file := filepath.Join(goldens, args[0]+".txt")
	file, err := filepath.Abs(file)
	ts.Check(err)
	if *rewrite {
		ts.Check(os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	ts.Check(err)
	for until := time.Now().Add(testPatience); got != string(want) && asksAll[args[0]]; got = printed(ts, args) {
		if time.Now().After(until) {
			break
		}
	}
	if got != string(want) {
		ts.Fatalf("%s prints\n%s\nwant\n%s\nif it is better so, let -rewrite write it",
			strings.Join(args[1:], " "), got, want)
	}
}

// asksAll has the commands that ask all processes. On a slow machine a process answers after the
// command has stopped to wait for further answers; the command is repeated then.
var asksAll = map[string]bool{"orchestrators": true, "workers": true, "log-level": true, "doctor": true,
	"recover": true}

// printed runs a command, and returns the parts of its output that are always the same.
func printed(ts *testscript.TestScript, args []string) string {
	code := 0
	if err := ts.Exec(args[1], append(args[2:], "--output", "json")...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	var b strings.Builder
	said := slices.Clone(args[1:])
	for i, a := range said {
		said[i] = argument(a)
	}
	fmt.Fprintf(&b, "$ %s --output json\nexits with %d\n", strings.Join(said, " "), code)
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(strings.TrimSpace(line)), "", "  "); err != nil {
			ts.Fatalf("%q is no JSON: %v", line, err)
		}
		b.WriteString(pretty.String() + "\n")
	}
	got := steady(b.String())
	for _, c := range changingJSON {
		got = c.find.ReplaceAllString(got, c.put)
	}
	return got + "\n"
}

// TestEachCommandHasAGolden shows that no command lacks a golden file.
func TestEachCommandHasAGolden(t *testing.T) {
	// These print help or nothing of their own, run for ever, or are tested elsewhere.
	without := []string{"dev", "orchestrator", "worker", "migrate", "completion", "connecting", "exit-codes",
		"help"}
	entries, err := os.ReadDir(goldens)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(goldens, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		have = append(have, first)
	}
	var walk func(path string, cmd *cobra.Command)
	walk = func(path string, cmd *cobra.Command) {
		for _, x := range cmd.Commands() {
			name := path + " " + x.Name()
			if path == "rondo" && slices.Contains(without, x.Name()) {
				continue
			}
			if x.HasSubCommands() {
				walk(name, x)
			} else if !slices.ContainsFunc(have, func(h string) bool { return strings.HasPrefix(h, "$ "+name+" ") }) {
				t.Errorf("%s has no golden: add it to testdata/script/json.txtar", name)
			}
		}
	}
	walk("rondo", (&cli{}).root())
}
