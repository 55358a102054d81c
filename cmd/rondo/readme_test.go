package main

import (
	"bytes"
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
	says     bytes.Buffer // what systems print: only complete once they have ended
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
		if looks.MatchString(s.command) { // it may be just about to get there
			soon(same)
		} else {
			same()
		}
		if err != nil || settled(got) != settled(s.output) {
			f.t.Fatalf("%s (%v) says\n%s\nwant\n%s", s.command, err, settled(got), settled(s.output))
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
		eventually(f.t, "it is half-way", func() bool {
			out, _ := f.run("../rondo/bin/rondo show c-1")
			return halfWay.MatchString(out)
		})
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
		f.t.Fatalf("%s: %v\n%s", command, err, out)
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
	eventually(f.t, "the system answers", func() bool {
		if _, err := os.Stat(filepath.Join(f.at, ".rondo", devdir.File)); err != nil {
			return false
		}
		_, err := f.run(f.rondo + " list")
		return err == nil
	})
}

func (f *follower) kill() {
	if f.dev != nil {
		_ = f.dev.Process.Kill() // as pkill does; it is gone only if something else failed
		_ = f.dev.Wait()         // it was killed
		f.dev = nil
	}
}

func (f *follower) run(command string) (string, error) {
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = f.at
	out, err := cmd.CombinedOutput()
	return string(out), err
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

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	if !soon(is) {
		t.Fatalf("after %v it is not so that %s", testPatience, what)
	}
}

// testPatience is how long a test waits for a certain event. A test that waits longer hangs.
const testPatience = 10 * time.Minute

// soon waits until something is so, and tells whether it is.
func soon(is func() bool) bool {
	deadline := time.After(testPatience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}
