package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rondo-run/rondo/internal/columns"
)

// TestHelpFitsIntoATerminal looks at the help of all commands. Only examples may be longer: they
// are to be copied.
func TestHelpFitsIntoATerminal(t *testing.T) {
	placeholder := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+) (\S+)`)
	seen := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, x := range cmd.Commands() {
			look(x)
		}
		if cmd.DisableFlagParsing { // its help is that of package app
			return
		}
		var b bytes.Buffer
		cmd.SetOut(&b)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		seen++
		inExamples := false
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			inExamples = line == "Examples:" || inExamples && line != ""
			if n := utf8.RuneCountInString(line); n > columns.Width && !inExamples {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, m := range placeholder.FindAllStringSubmatch(b.String(), -1) {
			switch m[2] {
			case "use", "skip", "ended", "json", "when", "why":
				t.Errorf("%s --help: --%s %s is a value, and not what stands for one", cmd.CommandPath(), m[1], m[2])
			}
		}
		if strings.Contains(b.String(), "(default [])") || strings.Contains(b.String(), "(default )") {
			t.Errorf("%s --help shows an empty default", cmd.CommandPath())
		}
	}
	root := (&cli{}).root()
	root.InitDefaultHelpCmd()
	look(root)
	if seen < 25 {
		t.Errorf("only %d commands were seen", seen)
	}
}

// TestHelpOfAnUnknownCommand: a misspelt command is refused, and not explained as another one.
func TestHelpOfAnUnknownCommand(t *testing.T) {
	for args, want := range map[string]string{
		"help strat":         `there is no command "strat"; did you mean start?`,
		"help schedules lst": `there is no command "schedules lst"; did you mean list?`,
	} {
		var out, problems strings.Builder
		code := run(t.Context(), strings.Fields(args), strings.NewReader(""), &out, &problems)
		if code != misused || !strings.Contains(problems.String(), want) || out.Len() > 0 {
			t.Errorf("rondo %s: exit code %d, %q and %q; want %q", args, code, out.String(), problems.String(), want)
		}
	}
	var out, problems strings.Builder
	if code := run(t.Context(), []string{"help", "start"}, strings.NewReader(""), &out, &problems); code != succeeded ||
		!strings.Contains(out.String(), "rondo start") {
		t.Errorf("rondo help start: exit code %d, %q and %q", code, out.String(), problems.String())
	}
}
