package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// TestReadme does what the README tells people to do, and compares what comes of it with what stands there.
func TestReadme(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rondo, err := exec.LookPath("rondo")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(rondo, filepath.Join(dir, "bin", "rondo")); err != nil {
		t.Fatal(err)
	}
	countdown := build(t, "readme/countdown")
	var dev *exec.Cmd
	kill := func() {
		if dev != nil {
			_ = dev.Process.Kill() // as pkill does; it is gone only if something else failed
			_ = dev.Wait()         // it was killed
		}
	}
	defer kill()
	all := sessions(string(document))
	if len(all) < 7 {
		t.Fatalf("there are %d commands in the README", len(all))
	}
	run := func(command string) (string, error) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	begin := func(program, flag, asks string) {
		t.Helper()
		kill()
		dev = exec.Command(program, "dev", flag, "--nats-listen", "127.0.0.1:0", "--listen", "off")
		dev.Dir = dir
		if err := dev.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the system answers", func() bool {
			_, err := run(asks)
			return err == nil
		})
	}
	for _, s := range all {
		switch s.command {
		case "make dev": // as in the Makefile, on a port of its own
			begin(rondo, "--demo", "bin/rondo list")
			continue
		case "go run ./countdown dev --dir .countdown":
			begin(countdown, "--dir=.countdown", "bin/rondo list --dir .countdown")
			continue
		case "pkill -9 countdown":
			eventually(t, "it is half-way", func() bool {
				out, _ := run("bin/rondo show c-1 --dir .countdown")
				return strings.Contains(out, "custom status  4")
			})
			kill()
			continue
		case "pkill -9 -f 'rondo dev'":
			kill()
			continue
		}
		var got string
		var err error
		same := func() bool {
			got, err = run(s.command)
			return err == nil && steady(got) == steady(s.output)
		}
		if strings.HasPrefix(s.command, "bin/rondo show") { // it may be just about to get there
			eventually(t, s.command+" says what stands in the README", same)
		} else if !same() {
			t.Fatalf("%s (%v) says\n%s\nwant\n%s", s.command, err, steady(got), steady(s.output))
		}
	}
}

// build builds an example.
func build(t *testing.T, example string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(example))
	cmd := exec.Command("go", "build", "-o", program, "./examples/"+example)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// steady leaves out what is never the same.
func steady(text string) string {
	for _, c := range changing {
		text = c.find.ReplaceAllString(text, c.put)
	}
	return strings.TrimSpace(text)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after half a minute it is not so that %s", what)
		}
	}
}
