package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/pkg/app"
)

// This file looks at the commands that stand in the documents, also at those that no test can run:
// that they exist, and that their flags do.

// typed is a command as it stands in a document.
type typed struct {
	line  int
	words []string
	whole bool // it stands in a block of code, so that nothing may be left out
}

// TestCommandsInDocuments looks at all commands in the README and in docs.
func TestCommandsInDocuments(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range append(paths, filepath.Join("..", "..", "README.md")) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commandsIn(string(text)) {
			found++
			if err := c.check(); err != nil {
				t.Errorf("%s:%d: `%s`: %v", filepath.Base(p), c.line, strings.Join(c.words, " "), err)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d commands were found; are they still read?", found)
	}
}

// TestFlagsInDocuments looks at the flags that stand alone between backquotes: one of the commands
// must have them.
func TestFlagsInDocuments(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range settings.For("") {
		known["--"+s.Name] = true
	}
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
		}
		for _, x := range cmd.Commands() {
			add(x)
		}
	}
	add((&cli{}).root())
	paths, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flagAlone.FindAllStringSubmatch(string(text), -1) {
			if found++; !known[m[1]] {
				t.Errorf("%s: there is no flag %s", filepath.Base(p), m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("%d flags were found; are they still read?", found)
	}
}

var (
	flagAlone = regexp.MustCompile("`(--[a-z][a-z-]*)")
	inline    = regexp.MustCompile("`([^`]+)`")
	// complaint is an error of the command line, and not a command.
	complaint = regexp.MustCompile(`^rondo( [a-z-]+)*: `)
)

// commandsIn finds the commands of a document: in its blocks of code, whether between fences or
// indented, and between backquotes.
func commandsIn(document string) (all []typed) {
	number, fenced, console, before := 0, false, false, ""
	for line := range strings.Lines(document) {
		number++
		line = strings.TrimSuffix(line, "\n")
		switch code := strings.TrimSpace(line); {
		case strings.HasPrefix(code, "```"):
			fenced, console, before = !fenced, code == "```console", ""
		case !fenced && !strings.HasPrefix(line, "    "):
			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				all = append(all, typedIn(m[1], number, false)...)
			}
		case strings.HasSuffix(code, `\`): // it goes on in the next line
			before += strings.TrimSuffix(code, `\`)
		default:
			if console {
				code = strings.TrimPrefix(code, "$ ")
			}
			if code = before + code; !complaint.MatchString(code) {
				all = append(all, typedIn(code, number, true)...)
			}
			before = ""
		}
	}
	return all
}

// typedIn finds the commands of ours in a line for a shell.
func typedIn(line string, number int, whole bool) (all []typed) {
	for _, words := range shell(line) {
		for len(words) > 0 && variable.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) > 2 && words[0] == "go" && words[1] == "run" {
			words = words[2:]
		}
		if ours(words) {
			all = append(all, typed{number, words, whole})
		}
	}
	return all
}

var variable = regexp.MustCompile(`^[A-Z_]+=`)

// ours reports whether it is a command of the command line, or one of a program that was made with
// package app.
func ours(words []string) bool {
	if len(words) < 2 {
		return false
	}
	name := path.Base(words[0])
	return name == "rondo" && words[1] != "=" || (name == "orders" || name == "countdown" || name == "hello") &&
		slices.Contains(programCommands, words[1])
}

// programCommands are those of a program that was made with package app.
var programCommands = []string{"dev", "orchestrator", "worker", "migrate", "help", "version"}

// shell splits a line as a shell does: into commands, and those into words. It leaves out
// redirections.
func shell(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	inWord, redirected := false, false
	endWord := func() {
		if inWord && !redirected {
			words = append(words, word.String())
		}
		inWord = false
		word.Reset()
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words, redirected = nil, false
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '\'', '"':
			inWord = true
			end := strings.IndexByte(line[i+1:], c)
			if end < 0 { // an apostrophe
				word.WriteByte(c)
				continue
			}
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
		case ' ', '\t':
			endWord()
		case '|', '&', ';':
			endCommand()
		case '>', '<':
			endWord()
			redirected = true
		case '#':
			if !inWord {
				endCommand()
				return commands
			}
			word.WriteByte(c)
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	endCommand()
	return commands
}

// check returns the mistake in a command, without executing it.
func (c typed) check() error {
	if path.Base(c.words[0]) != "rondo" {
		return settingsOf(c.words[1], c.words[2:])
	}
	root := (&cli{}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(c.words[1:])
	if err != nil {
		return err
	}
	if cmd.Name() == "help" && cmd.Parent() == root {
		if cmd, rest, err = root.Find(rest); err != nil {
			return err
		}
	}
	if cmd.DisableFlagParsing {
		return settingsOf(cmd.Name(), rest)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	switch {
	case cmd.HasSubCommands() && len(args) > 0:
		return fmt.Errorf("there is no command %q", args[0])
	case c.whole && cmd.Args != nil && !cmd.HasSubCommands():
		return cmd.Args(cmd, args)
	}
	return nil
}

// settingsOf returns the mistake in the settings of a command of package app.
func settingsOf(command string, args []string) error {
	if command == "help" || command == "version" {
		if len(args) > 0 && !slices.Contains(programCommands, args[0]) {
			return fmt.Errorf("there is no command %q", args[0])
		}
		return nil
	}
	if i := slices.Index(args, "--config"); i >= 0 && i+1 < len(args) { // a file that is not here
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	config := app.Defaults(app.Command(command))
	r, problems := settings.Read(&config, settings.For(command), args, func(string) (string, bool) {
		return "", false
	})
	for _, rest := range r.Rest {
		if rest != "…" {
			problems = append(problems, fmt.Errorf("%q is no setting", rest))
		}
	}
	return errors.Join(problems...)
}

// TestCommandsInDocumentsAreNoticed makes sure that the check finds what it is there to find, and
// nothing else.
func TestCommandsInDocumentsAreNoticed(t *testing.T) {
	for text, want := range map[string]string{ // part of the problem; "" if there is none, "-" if it is no command
		"    rondo list --status failed,halted | wc -l":                         "",
		"    RONDO_NATS_URL=nats://a rondo list --count # all of them":          "",
		"    rondo migrate --database 'postgres://a@b/c?d=e' --check":           "",
		"    orders worker --nats nats://a --slots 3 --config rondo.yaml":       "",
		"    ./orders orchestrator --replicas 3 &":                              "",
		"    go run ./examples/orders dev --demo":                               "",
		"    rondo deadletters replay 12 && rondo doctor":                       "",
		"    rondo help worker":                                                 "",
		"    rondo list \\\n      --count":                                      "",
		"```sh\nrondo show order-1 >out\n```":                                   "",
		"```console\n$ bin/rondo raise o e '{\"a\": 1}'\nit was sent\n```":      "",
		"type `rondo show`, or `bin/rondo task-queues`":                         "",
		"    rondo show: NATS cannot be reached":                                "-",
		"the stream `RONDO`, `rondo.start.x.y`, and rondo is what it is called": "-",
		"    the worker rondo worker":                                           "-",
		"    rondo shwo order-1":                                                `no command "shwo"`,
		"    rondo list --statsu failed":                                        "--statsu",
		"    rondo list --limit many":                                           "many",
		"    rondo deadletters lst":                                             `no command "lst"`,
		"    rondo show":                                                        "INSTANCE is missing",
		"    rondo worker --slot 3":                                             "--slot",
		"    rondo worker three":                                                `"three" is no setting`,
		"    rondo help shwo":                                                   `no command "shwo"`,
		"    orders worker --replica 3":                                         "--replica",
		"    orders help wrker":                                                 `no command "wrker"`,
		"say `rondo recovr`":                                                    `no command "recovr"`,
		"```console\n$ bin/rondo doctr\n```":                                    `no command "doctr"`,
	} {
		all := commandsIn(text)
		if want == "-" {
			if len(all) > 0 {
				t.Errorf("%q: found %q", text, all[0].words)
			}
			continue
		}
		if len(all) == 0 {
			t.Errorf("%q: no command was found", text)
			continue
		}
		var errs []error
		for _, c := range all {
			errs = append(errs, c.check())
		}
		if got := fmt.Sprint(errors.Join(errs...)); want == "" && got != "<nil>" || !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %q", text, got, want)
		}
	}
}
