package main

import (
	"io"
	"strings"
	"testing"
)

// The command names the address if it guesses where NATS is: another system may listen there.
func TestGuessedAddressIsPrinted(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, env := range []string{"RONDO_NATS_URL", "RONDO_NATS_CONTEXT", "RONDO_CONFIG"} {
		t.Setenv(env, "")
	}
	const guess = "there is no .rondo here, and neither --nats nor $RONDO_NATS_URL: talking to nats://127.0.0.1:4222\n"
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
