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
		if strings.Contains(b.String(), "(default [])") {
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
