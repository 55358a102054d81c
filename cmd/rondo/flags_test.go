package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// Durations of flags have days, as those of settings.
func TestDurationsHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{"1d": 24 * time.Hour, "90s": 90 * time.Second, "0": 0} {
		var flags pflag.FlagSet
		var d time.Duration
		durationVar(&flags, &d, "delay", time.Minute, "a delay")
		if err := flags.Parse([]string{"--delay", text}); err != nil || d != want {
			t.Errorf("%s: got %v, %v", text, d, err)
		}
	}
	var out, problems strings.Builder
	code := run(t.Context(), []string{"start", "x", "--delay", "soon"}, strings.NewReader(""), &out, &problems)
	const want = `--delay "soon": want a duration, like 90s, 5m or 30d`
	if code != misused || !strings.Contains(problems.String(), want) {
		t.Errorf("it exits with %d and says %s", code, problems.String())
	}
}
