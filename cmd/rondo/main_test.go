package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/pgtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rondo": main})
}

// TestScripts runs the scripts in testdata/script. Each has a directory of its own, and so a system
// of its own, if it starts one with `system`.
func TestScripts(t *testing.T) {
	postgres := ""
	if _, err := pgtest.Found(); err == nil {
		postgres = pgtest.Database(t)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("POSTGRES", postgres)
			e.Setenv("HOSTILE", "\x1b]0;PWNED\a\x1b[31mred\r\u202efake\nstatus         completed")
			e.Setenv("LONG", strings.Repeat("x", 300))
			e.Setenv("LINES", "a\nb")
			e.Setenv("LATIN1", "m\xfcll")
			e.Setenv("C1", `{"sku":"chair","cents":4500,"card":"1111","ship_to":"`+"\u009b"+`31mBremen"}`)
			e.Setenv("APPROVAL", `{"by":"`+"\u009b31m\u202e"+`","ok":false}`)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "postgres" {
				return false, fmt.Errorf("there is no condition %q", cond)
			}
			return postgres != "", nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"system": startSystem, "exits": exits, "same": same, "isjson": isJSON, "publish": publish, "await": await,
			"golden": golden, "printable": printableFile, "tells": tells,
		},
	})
}

// startSystem starts `rondo dev` in the background and waits until it answers.
func startSystem(ts *testscript.TestScript, _ bool, _ []string) {
	cmd := exec.Command("rondo", "dev", "--nats-listen", "127.0.0.1:0", "--listen", "off")
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environment(ts)
	if path, err := exec.LookPath("rondo"); err == nil { // the one that testscript has made
		cmd.Path = path
	}
	log, err := os.Create(ts.MkAbs("dev.log"))
	ts.Check(err)
	ts.Defer(func() { _ = log.Close() }) // only the process writes to it
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it is gone only if something else failed
		_ = cmd.Wait()         // it was killed
	})
	deadline := time.After(testPatience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ts.Exec("rondo", "list", "--dir", ".rondo") != nil { // and not of another one that runs on this machine
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("the system does not answer: %s", ts.ReadFile("stderr"))
		}
	}
}

func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "WORK"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

// exits runs a command that has to end with a code: exits CODE command args...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: exits CODE command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("it exits with %d, want %d\n%s%s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// changing are the parts of the output that differ in each run, with their replacements.
var changing = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`"age": \d+`), `"age": AGE`},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "LIFE"},
	{regexp.MustCompile(`\b(\d+m)?\d+s ago`), "NOW"},
	{regexp.MustCompile(`(since|, for|has waited for) (\d+m)?\d+s`), "$1 NOW"},
	{regexp.MustCompile(`\b23h5\dm`), "A DAY"},
	{regexp.MustCompile(`(?m)^ +\d+\.\d{3}s `), "AT "},
	{regexp.MustCompile(` \[[^ ]+-[0-9a-f]{8}\]`), " [WORKER]"},
	{regexp.MustCompile(`"worker":"[^"]+"`), `"worker":"WORKER"`},
	{regexp.MustCompile(`"trace":"[^"]+"`), `"trace":"TRACE"`},
	{regexp.MustCompile(`"next":"[^"]+"`), `"next":"CURSOR"`},
	{regexp.MustCompile(`"history_bytes":\d+`), `"history_bytes":BYTES`},
	{regexp.MustCompile(`, \d+ bytes`), `, BYTES bytes`},
	{regexp.MustCompile(`[ ]+\n`), "\n"},
}

// same compares the output with a file, except the parts that differ in each run: same stdout FILE
func same(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: same stdout|stderr FILE")
	}
	got, want := ts.ReadFile(args[0]), ts.ReadFile(args[1])
	if got = steady(got); got != strings.TrimSpace(want) {
		ts.Fatalf("%s is\n%s\nwant\n%s", args[0], got, want)
	}
}

// publish publishes by hand, as any NATS client can: publish SUBJECT BODY
func publish(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: publish SUBJECT BODY")
	}
	at, err := devdir.Read(ts.MkAbs(".rondo"))
	ts.Check(err)
	nc, err := nats.Connect(at.NATS, nats.Timeout(time.Minute))
	ts.Check(err)
	defer nc.Close()
	ts.Check(nc.Publish(args[0], []byte(args[1])))
	ts.Check(nc.Flush())
}

// await runs a command until its output has something: await REGEXP command args...
func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: await REGEXP command [args...]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	deadline := time.After(testPatience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ts.Exec(args[1], args[2:]...) != nil || !want.MatchString(ts.ReadFile("stdout")) {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("it does not say %q: %s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

// tells starts a command that waits for something, and interrupts it when it has said a text on
// stderr: tells REGEXP command args...
func tells(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: tells REGEXP command [args...]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	cmd := exec.Command(args[1], args[2:]...)
	if path, err := exec.LookPath(args[1]); err == nil { // the one that testscript has made
		cmd.Path = path
	}
	cmd.Dir, cmd.Env = ts.MkAbs("."), environment(ts)
	said, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	end := time.AfterFunc(testPatience, func() { _ = cmd.Process.Kill() }) // the error is that it has ended
	defer end.Stop()
	var all strings.Builder
	for lines := bufio.NewScanner(said); !want.MatchString(all.String()) && lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
	}
	_ = cmd.Process.Signal(os.Interrupt) // the error is that it has ended
	_, _ = io.Copy(io.Discard, said)
	_ = cmd.Wait() // it was interrupted
	if !want.MatchString(all.String()) {
		ts.Fatalf("it does not say %q: %s", args[0], all.String())
	}
}

// printableFile checks that a file has no character on which a terminal acts: printable
// stdout|stderr|FILE
func printableFile(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || neg {
		ts.Fatalf("usage: printable stdout|stderr|FILE")
	}
	text := ts.ReadFile(args[0])
	for n, line := range strings.Split(text, "\n") {
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
			return unicode.IsControl(r) && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
		}) {
			ts.Fatalf("line %d of %s: %q", n+1, args[0], line)
		}
	}
}

// isJSON checks that each line of the output is JSON.
func isJSON(ts *testscript.TestScript, _ bool, _ []string) {
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if !json.Valid([]byte(line)) {
			ts.Fatalf("%q is no JSON", line)
		}
	}
}
