package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/settings"
)

// The command names the address if it guesses where NATS is: another system may listen there.
func TestGuessedAddressIsPrinted(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, env := range []string{"RONDO_NATS_URL", "RONDO_NATS_CONTEXT", "RONDO_CONFIG"} {
		t.Setenv(env, "")
	}
	const guess = "there is no .rondo here, and neither --nats nor $RONDO_NATS_URL: " +
		"talking to nats://127.0.0.1:4222; --dir names the directory of a dev that was started elsewhere\n"
	for _, c := range []struct {
		args   []string
		prints bool
	}{
		{[]string{"start", "fulfil", "{}"}, true},
		{[]string{"doctor"}, true},
		{[]string{"list", "--nats", "nats://127.0.0.1:1"}, false},
		{[]string{"list", "--print-config"}, false},
		{[]string{"version"}, false},
	} {
		var problems strings.Builder
		run(t.Context(), append(c.args, "--timeout", "1ns"), strings.NewReader(""), io.Discard, &problems)
		if got := strings.Contains(problems.String(), guess); got != c.prints {
			t.Errorf("rondo %s: %q", strings.Join(c.args, " "), problems.String())
		}
	}
}

// A command that waits for a system tries again and again, and explains the address once.
func TestGuessedAddressIsPrintedOnce(t *testing.T) {
	c := &cli{settings: connection{dir: ".rondo"}}
	if c.settings.guess(settings.Reading{}) == "" || c.settings.guess(settings.Reading{}) != "" {
		t.Error("the address is not explained once")
	}
}

// The files of dev are in a subdirectory of the directory in which it was started.
func TestTheDirectoryAroundThatOfADevIsNamed(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, ".rondo")
	d := deploy(t, inside, stuck(1))
	d.where = []string{"--dir", dir}
	if code, text := d.say("list"); code != unavailable || !strings.Contains(text, "did you mean --dir "+inside+"?") {
		t.Errorf("list exits with %d and says %q", code, text)
	}
	d.stop()
	if _, err := devdir.Read(inside); err == nil {
		t.Fatal("dev runs after its end")
	}
	if _, text := d.say("list"); strings.Contains(text, "did you mean") {
		t.Errorf("without a dev, list says %q", text)
	}
}
