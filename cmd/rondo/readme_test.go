package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/devdir"
)

// session is a command of a document, with what it says there.
type session struct{ command, output string }

// sessions reads the commands in the console blocks of a document.
func sessions(document string) (all []session) {
	inside := false
	for line := range strings.Lines(document) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.TrimSpace(line) == "```console"
		case inside && isCommand:
			all = append(all, session{command: strings.TrimSpace(command)})
		case inside:
			all[len(all)-1].output += line
		}
	}
	return all
}

// TestReadme follows the steps of the README, and compares the output with the one printed there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, string(text))
	defer func() {
		f.kill()
		if said := f.says.String(); strings.Contains(slow.ReplaceAllString(said, ""), `level=WARN msg="NATS server`) ||
			!strings.Contains(said, "The process before was killed; NATS has recovered") {
			t.Errorf("after a kill, a system warns, or does not say that it has recovered:\n%s", said)
		}
		for _, want := range []string{"The order demo-", "rondo start countdown 1 --id my-1 --dir "} {
			if !strings.Contains(f.says.String(), want) {
				t.Errorf("no system says %q:\n%s", want, f.says.String())
			}
		}
	}()
	if all := sessions(string(text)); len(all) < 7 {
		t.Fatalf("there are %d commands in the README", len(all))
	}
	f.all()
}

// slow are the warnings of a NATS server that the machine was slow.
var slow = regexp.MustCompile(`(?m)^.*level=WARN msg="NATS server.*(Readloop processing time|took too long|was stalled).*$`)

// TestDocuments does the same with each document in docs that has console blocks.
func TestDocuments(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	followed := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all := sessions(string(text))
		if len(all) == 0 {
			continue
		}
		followed++
		t.Run(filepath.Base(path), func(t *testing.T) {
			if all[0].command != "make dev" {
				t.Fatalf("the first command is %q; want `make dev`: a block that cannot be run is no console block",
					all[0].command)
			}
			follow(t, string(text)).all()
		})
	}
	if followed == 0 {
		t.Error("no document has a console block")
	}
}

// follower executes the steps of a document, in a directory of its own.
type follower struct {
	t        *testing.T
	document string
	at       string // the directory in which commands are typed
	rondo    string
	dev      *exec.Cmd
	ended    chan struct{} // closed when dev has ended; nil if no system has been started
	says     bytes.Buffer  // the output of all systems, complete when they have ended
}

func follow(t *testing.T, document string) *follower {
	t.Helper()
	rondo, err := exec.LookPath("rondo")
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, document: document, at: filepath.Join(t.TempDir(), "rondo"), rondo: rondo}
	if err := os.MkdirAll(filepath.Join(f.at, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(rondo, filepath.Join(f.at, "bin", "rondo")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.kill)
	return f
}

// all does everything, from top to bottom.
func (f *follower) all() {
	f.t.Helper()
	for _, s := range sessions(f.document) {
		if f.systems(s.command) {
			continue
		}
		var got string
		var err error
		same := func() bool {
			got, err = f.run(s.command)
			return err == nil && settled(got) == settled(s.output)
		}
		why := ""
		if looks.MatchString(s.command) { // it may be just about to get there
			why = f.await(same, func() bool { return f.atRest(s.command) })
		} else if !same() {
			why = "this command runs once"
		}
		if why != "" {
			f.fail("%s (%v; %s) says\n%s\nwant\n%s", s.command, err, why, settled(got), settled(s.output))
		}
	}
}

// looks are commands that only read, so that they may be repeated until their output equals that in
// the document.
var looks = regexp.MustCompile(
	`^bin/rondo (show|list|history|tree|orchestrators|workers|partitions|task-queues|deadletters|doctor)( |$)`)

// halfWay is printed of a countdown from 5 that has begun and has not ended. A look may take longer
// than a number stays.
var halfWay = regexp.MustCompile(`custom status  [1-4]`)

// systems does what starts systems and kills them, and what makes a module.
func (f *follower) systems(command string) bool {
	f.t.Helper()
	directory, enters := strings.CutPrefix(command, "cd ")
	switch {
	case command == "make dev": // as in the Makefile, on a port of its own
		f.begin(f.rondo, "--demo")
	case command == "go run . dev":
		f.done("go build -o program .")
		f.begin(filepath.Join(f.at, "program"))
	case command == "pkill -9 countdown":
		const look = "../rondo/bin/rondo show c-1"
		var out string
		if why := f.await(func() bool {
			out, _ = f.run(look)
			return halfWay.MatchString(out)
		}, func() bool { return f.atRest(look) }); why != "" {
			f.fail("the countdown is not seen half-way (%s); the last look says\n%s", why, out)
		}
		f.kill()
	case command == "pkill -9 -f 'rondo dev'":
		f.kill()
	case enters:
		f.at = filepath.Join(f.at, directory)
		f.save()
	case strings.HasPrefix(command, "go mod "):
		clone, err := filepath.Abs(filepath.Join("..", ".."))
		if err != nil {
			f.t.Fatal(err)
		}
		f.done(strings.ReplaceAll(command, "=../rondo", "="+clone))
	default:
		return false
	}
	return true
}

// done runs a command of which the output does not matter.
func (f *follower) done(command string) {
	f.t.Helper()
	if out, err := f.run(command); err != nil {
		f.fail("%s: %v\n%s", command, err, out)
	}
}

// save saves the program of the document into the directory that the reader has just entered.
func (f *follower) save() {
	f.t.Helper()
	_, program, found := strings.Cut(f.document, "```go\npackage main\n")
	if !found {
		f.t.Fatal("there is no program in the document")
	}
	program, _, _ = strings.Cut(program, "```")
	if err := os.WriteFile(filepath.Join(f.at, "main.go"), []byte("package main\n"+program), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// begin starts a system, and waits until it answers: it, and not another one on this machine, which
// answers until this one has logged its address.
func (f *follower) begin(program string, flags ...string) {
	f.t.Helper()
	f.kill()
	f.dev = exec.Command(program, append([]string{"dev", "--nats-listen", "127.0.0.1:0", "--listen", "off",
		"--jobs-listen", "127.0.0.1:0"}, flags...)...)
	f.dev.Dir, f.dev.Stdout, f.dev.Stderr = f.at, &f.says, &f.says
	if err := f.dev.Start(); err != nil {
		f.t.Fatal(err)
	}
	ended, dev := make(chan struct{}), f.dev
	f.ended = ended
	go func() {
		defer close(ended)
		_ = dev.Wait() // its output says why it has ended
	}()
	var out string
	if why := f.await(func() bool {
		if _, err := os.Stat(filepath.Join(f.at, ".rondo", devdir.File)); err != nil {
			out = err.Error()
			return false
		}
		var err error
		out, err = f.run(f.rondo + " list")
		return err == nil
	}, func() bool { return false }); why != "" {
		f.fail("the system does not answer (%s); the last look says\n%s", why, out)
	}
}

func (f *follower) kill() {
	if f.dev != nil {
		_ = f.dev.Process.Kill() // as pkill does; it may have ended by itself
		<-f.ended
		f.dev, f.ended = nil, nil
	}
}

// run executes a command. A command that does not end is killed with the system, or at the
// deadline, and the output is what it has printed until then.
func (f *follower) run(command string) (string, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), f.patience(10*time.Second))
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func(ended <-chan struct{}) {
		select {
		case <-ended:
			cancel()
		case <-over:
		}
	}(f.ended)
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.WaitDelay = f.at, time.Second // a child of the shell may still have the pipe
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// await polls until something is so. It returns "", or why it gives up: the system has ended, or
// the instance has, or it is late. atRest is asked BEFORE a look, so that the last look sees the
// final state.
func (f *follower) await(is, atRest func() bool) (why string) {
	patience := f.patience(30 * time.Second)
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		if f.hasEnded() {
			return "the system has ended"
		}
		final := !first && atRest() // the first look usually is enough
		if is() {
			return ""
		}
		if final {
			return "the instance has ended, and changes no more"
		}
		select {
		case <-tick.C:
		case <-f.ended:
		case <-deadline:
			return fmt.Sprintf("not after %v", patience)
		}
	}
}

func (f *follower) hasEnded() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// atRest reports whether a command looks at an instance that has ended.
func (f *follower) atRest(command string) bool {
	m := looksAtInstance.FindStringSubmatch(command)
	if m == nil {
		return false
	}
	out, err := f.run(f.rondo + " show " + m[1])
	return err == nil && hasEnded.MatchString(out)
}

var (
	looksAtInstance = regexp.MustCompile(`bin/rondo (?:show|history) ([\w-]+)`)
	hasEnded        = regexp.MustCompile(`(?m)^status +(completed|failed|cancelled|terminated)$`)
)

// fail ends the test with a message, and with the output of all systems.
func (f *follower) fail(format string, args ...any) {
	f.t.Helper()
	f.kill() // then says is complete
	f.t.Fatalf("%s\nThe systems have printed\n%s", fmt.Sprintf(format, args...), f.says.String())
}

// testPatience is how long a test waits for a certain event. A test that waits longer hangs.
const testPatience = 5 * time.Minute

// patience is testPatience, or less if the time limit of the whole run is near: it would end the
// test without the output. The test needs the reserve to print it.
func (f *follower) patience(reserve time.Duration) time.Duration {
	if limit, ok := f.t.Deadline(); ok {
		return min(testPatience, time.Until(limit)-reserve)
	}
	return testPatience
}

// steady replaces the parts that differ in each run.
func steady(text string) string {
	for _, c := range changing {
		text = c.find.ReplaceAllString(text, c.put)
	}
	return strings.TrimSpace(text)
}

// machines are further parts that differ from one machine to the next: names, addresses, how long
// something took, and how wide columns are for all that.
var machines = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`nats://127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`nats-server \d+\.\d+\.\d+`), "nats-server VERSION"},
	{regexp.MustCompile(`took \d[\d.]*[a-zµ]+`), "took A MOMENT"},
	{regexp.MustCompile(`\b(has|have) system [a-z0-9]{8}\b`), "$1 system ID"},
	{regexp.MustCompile(`(?m)^dev +\S+ +alive`), "dev HOST alive"},
	{regexp.MustCompile(`(?m)^\S+-\d+-[0-9a-f]{8} +\S+`), "WORKER HOST"},
	{regexp.MustCompile(` {2,}`), "  "},
}

// settled replaces the parts that differ in each run or from machine to machine.
func settled(text string) string {
	text = steady(text)
	for _, c := range machines {
		text = c.find.ReplaceAllString(text, c.put)
	}
	return text
}
