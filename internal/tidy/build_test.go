package tidy

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fakeGo stands for the go command: it downloads, compiles, and ends when there is a file named
// "on".
const fakeGo = `#!/bin/sh
if [ "$1" = list ]; then printf 'a\nb\nc\n'; exit; fi
echo 'go: downloading example.com/a v1.0.0' >&2
echo example.com/a/b >&2
echo example.com/a/c >&2
while [ ! -e on ]; do sleep 0.1; done
if [ "$5" = ./broken ]; then echo 'broken.go:1:1: no such thing' >&2; exit 3; fi
`

// TestBuildTellsHowFarItIs builds as `make dev` does: what a first build does is said at once, and
// again and again while it compiles.
func TestBuildTellsHowFarItIs(t *testing.T) {
	b := newBuild(t, "./program")
	b.says(`^building program: the first build downloads and compiles everything, which takes some minutes$`)
	b.says(`^  \d+ s: 1 modules downloaded, 2 of 3 packages compiled, the last one example.com/a/c$`)
	b.goOn()
	if err := b.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestBuildTellsWhatIsWrong(t *testing.T) {
	b := newBuild(t, "./broken")
	b.goOn()
	var last string
	for b.lines.Scan() {
		last = b.lines.Text()
	}
	if err := b.cmd.Wait(); err == nil || b.cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("it exits with %v, want 3", err)
	}
	if last != "broken.go:1:1: no such thing" {
		t.Errorf("it says %q at last", last)
	}
}

// building is a run of internal/tools/build.sh with fakeGo.
type building struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func newBuild(t *testing.T, what string) *building {
	t.Helper()
	script, err := filepath.Abs(inRoot("internal/tools/build.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fake := filepath.Join(dir, "go")
	if err := os.WriteFile(fake, []byte(fakeGo), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", script, "program", what)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GO="+fake, "EVERY=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &building{t, cmd, bufio.NewScanner(out)}
	t.Cleanup(b.goOn)
	return b
}

// says waits for a line.
func (b *building) says(want string) {
	b.t.Helper()
	var got []string
	for b.lines.Scan() {
		if got = append(got, b.lines.Text()); regexp.MustCompile(want).MatchString(b.lines.Text()) {
			return
		}
	}
	b.t.Fatalf("it says\n%s\nand not %s", strings.Join(got, "\n"), want)
}

// goOn lets the compiler end.
func (b *building) goOn() {
	if err := os.WriteFile(filepath.Join(b.cmd.Dir, "on"), nil, 0o644); err != nil {
		b.t.Error(err)
	}
}
