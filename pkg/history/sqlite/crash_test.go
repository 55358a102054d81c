package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

// These tests kill a process that writes, at any moment and at each statement of a commit.

const (
	// asWriter makes the test binary the process that has the database of that path open.
	asWriter = "RONDO_SQLITE_WRITER"
	// asStopped makes it stop before the statement of that number, counted from 0, of its third
	// batch.
	asStopped = "RONDO_SQLITE_STOPPED"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(asWriter); path != "" {
		if err := beWriter(path, os.Getenv(asStopped)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// The lines that a process prints besides the numbers of its batches.
const (
	stopped  = "stopped"  // it waits in the midst of a commit
	finished = "finished" // it has committed all and says so nowhere else
)

// beWriter commits batches one after the other, from where the database stands, and says so after
// each.
func beWriter(path, stopAt string) error {
	d := newDriver()
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{}.WithDriver(d.name))
	if err != nil {
		return err
	}
	known, err := s.Load(context.Background(), []string{"counter"}, nil)
	if err != nil {
		return err
	}
	counter := historytest.Resume(known[0], historytest.Began)
	first := int(counter.Row.LastEvent)
	for n := first; ; n++ {
		stops := stopAt != "" && n == first+2
		if stops {
			left, err := strconv.Atoi(stopAt)
			if err != nil {
				return err
			}
			d.set(func(s step) fault {
				if s.kind == execs {
					if left--; left == -1 {
						say(stopped)
					}
				}
				return fault{}
			})
		}
		r, err := s.Commit(context.Background(), historytest.Batch(new(testing.T), numbered(counter, n)...))
		if err != nil {
			return err
		}
		for _, o := range r.Outcomes {
			if o.Status != history.Committed {
				return fmt.Errorf("%+v", r)
			}
		}
		if stops {
			say(finished)
		}
		fmt.Println(n)
	}
}

// say says something and waits to be killed, or for the test to end.
func say(what string) {
	fmt.Println(what)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// numbered are the turns of a batch: a step of the counter, and two new instances.
func numbered(counter *historytest.Actor, n int) []*round.Turn {
	step := counter.Start
	if n > 0 {
		step = func(...historytest.Option) *round.Turn { return counter.Set("n", strconv.Itoa(n)) }
	}
	one, two := historytest.NewActor(names(n)[0]), historytest.NewActor(names(n)[1])
	return []*round.Turn{
		step(), one.StartAndCall(historytest.WithAttributes(map[string]string{"n": strconv.Itoa(n)})),
		historytest.Together(two.Start(), two.Set("n", strconv.Itoa(n))),
	}
}

func names(n int) []string { return []string{fmt.Sprintf("one-%06d", n), fmt.Sprintf("two-%06d", n)} }

// process is another process that writes.
type process struct {
	*exec.Cmd
	said *bufio.Scanner
}

func startWriter(t *testing.T, path, stopAt string) process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asWriter+"="+path, asStopped+"="+stopAt)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // open until the process has ended
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return process{cmd, bufio.NewScanner(out)}
}

// read reads what the process says, up to so many lines or one that is no number.
func (p process) read(t *testing.T, lines int) (last int, end string) {
	t.Helper()
	last = -1
	for ; lines > 0 && p.said.Scan(); lines-- {
		n, err := strconv.Atoi(p.said.Text())
		if err != nil {
			return last, p.said.Text()
		}
		last = n
	}
	return last, ""
}

// kill kills it, and gives the last number that it said.
func (p process) kill(t *testing.T, last int) int {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	n, end := p.read(t, 1_000_000)
	if end != "" {
		t.Fatalf("the process said %s", end)
	}
	if err := p.Wait(); err == nil {
		t.Fatal("the process ended by itself")
	}
	return max(last, n)
}

// checkNumbered checks that batches are there completely or not at all, and those up to the last
// that was acknowledged are. It gives the last that is there.
func checkNumbered(t *testing.T, s *sqlite.Store, acknowledged int) (last int) {
	t.Helper()
	known, err := s.Load(t.Context(), []string{"counter"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	last = int(known[0].Row.LastEvent) - 1
	if last != acknowledged && last != acknowledged+1 { // it may have been killed before it could say so
		t.Fatalf("%d batches were acknowledged, %d are there", acknowledged+1, last+1)
	}
	if known[0].Unreadable != nil || len(known[0].History) != last+1 {
		t.Fatalf("the counter has %d events of %d: %v", len(known[0].History), last+1, known[0].Unreadable)
	}
	if last > 0 {
		if v, ok, err := s.Value(t.Context(), "counter", "n"); err != nil || !ok ||
			string(v.Data) != strconv.Itoa(last) {
			t.Fatalf("the counter's value is %s after batch %d: %v", v.Data, last, err)
		}
	}
	var ids []string
	for n := range last + 2 {
		ids = append(ids, names(n)...)
	}
	if known, err = s.Load(t.Context(), ids, nil); err != nil {
		t.Fatal(err)
	}
	for i, k := range known {
		want := 2
		if i/2 > last {
			want = 0
		}
		if len(k.History) != want || k.Unreadable != nil {
			t.Fatalf("%s has %d events, want %d: %v", k.Instance, len(k.History), want, k.Unreadable)
		}
	}
	if n := count(t, s); n != int64(2*(last+1)+1) {
		t.Fatalf("%d instances after batch %d", n, last)
	}
	if n, err := s.CountOutbox(t.Context(), 1_000_000); err != nil || n != last+1 {
		t.Fatalf("%d outbox entries after batch %d: %v", n, last, err)
	}
	return last
}

// checkLocked checks that a file that another process has open is refused at once, with the number
// of that process, and can be read.
func checkLocked(t *testing.T, path string, p process) {
	t.Helper()
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	var locked *sqlite.LockedError
	if !errors.As(err, &locked) || locked.PID != p.Process.Pid || !strings.Contains(err.Error(), "stop that process") ||
		history.ClassOf(err) != history.Permanent {
		t.Fatalf("opened beside another process: %v", err)
	}
}

func openReader(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	return open(t, path, sqlite.Options{ReadOnly: true})
}

// reopen opens the file of a process that was killed: its lock is free at once. It gives the last
// batch that is there.
func reopen(t *testing.T, path string, acknowledged int) (last int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	last = checkNumbered(t, s, acknowledged)
	integrity(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return last
}

// TestKilled kills the process at any moment, some time after it has committed something. Another
// one goes on with the same file.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	unsaid, total := 0, -1
	for _, lines := range []int{40, 1, 12, 3, 8} {
		p := startWriter(t, path, "")
		acknowledged, end := p.read(t, lines)
		if end != "" {
			t.Fatal(end)
		}
		if acknowledged != total+lines {
			t.Fatalf("the process went on with batch %d, after %d", acknowledged-lines+1, total)
		}
		if lines == 40 {
			checkLocked(t, path, p)
			r := openReader(t, path)
			if n := count(t, r); n < 2*40+1 {
				t.Errorf("the reader sees %d instances", n)
			}
			r.Close()
		}
		acknowledged = p.kill(t, acknowledged)
		if total = reopen(t, path, acknowledged); total > acknowledged {
			unsaid++
		}
	}
	t.Logf("%d batches; %d times one was there that was not acknowledged", total+1, unsaid)
}

// TestKilledAtEachStatement kills the process before each statement of a commit, and after the
// last. Until then, another process can read the previous contents.
func TestKilledAtEachStatement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rondo.db")
	statements, total := 0, -1
	for ; ; statements++ {
		p := startWriter(t, path, strconv.Itoa(statements))
		acknowledged, end := p.read(t, 1000)
		if acknowledged != total+2 || end != stopped && end != finished {
			t.Fatalf("the process has committed %d after %d, and said %q", acknowledged, total, end)
		}
		checkLocked(t, path, p)
		r := openReader(t, path)
		there := checkNumbered(t, r, acknowledged)
		r.Close()
		acknowledged = p.kill(t, acknowledged)
		total = reopen(t, path, acknowledged)
		if got := total > acknowledged; got != (end == finished) || there != total {
			t.Fatalf("killed before statement %d (%s): batch %d is there, %d was acknowledged, a reader saw %d",
				statements, end, total, acknowledged, there)
		}
		if end == finished {
			break
		}
	}
	t.Logf("%d statements", statements)
	if statements < 8 {
		t.Errorf("it came to %d statements only", statements)
	}
}
