package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has orchestrators of two engines in one system. The newer one is this program, built
// once more from a source in which the number of the engine is one higher. It runs the test, too:
// an older engine could not judge what the newer one writes.

// olderVariable has the path of the program of the older engine, in the process of the newer one.
const olderVariable = "RONDO_TEST_OLDER_ENGINE"

// TestRollingUpgrade replaces orchestrators of an older engine by those of a newer one, while there
// is work.
func TestRollingUpgrade(t *testing.T) {
	pgtest.Need(t)
	if older := os.Getenv(olderVariable); older != "" {
		upgrade(t, older)
		return
	}
	t.Parallel()
	older, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), newerEngine(t), "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), olderVariable+"="+older)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "upgrade_test.go") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// newerEngine builds this program with a newer engine.
func newerEngine(t *testing.T) string {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("TWO ENGINES ARE NOT TESTED: ", err)
	}
	dir := t.TempDir()
	source, err := filepath.Abs("../pkg/events/events.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	now := fmt.Sprintf("const Engine = %d\n", events.Engine)
	if strings.Count(string(text), now) != 1 {
		t.Fatalf("%s does not say %q", source, now)
	}
	changed := filepath.Join(dir, "events.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "newer")
	err = errors.Join(
		os.WriteFile(changed,
			[]byte(strings.Replace(string(text), now, fmt.Sprintf("const Engine = %d\n", events.Engine+1), 1)), 0o600),
		os.WriteFile(overlayFile, overlay, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), goTool, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlayFile,
		"-o", program, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make test` builds other programs: their packages are cached
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// upgrade is the test, run by the program of the newer engine.
func upgrade(t *testing.T, older string) {
	n := racetest.Size(600, 150)
	p := onProcesses(t)
	old := func(r *role) { r.program = older }
	first, second := p.run("orchestrator", "older-0", old), p.run("orchestrator", "older-1", old)
	p.run("worker", "worker")

	jobs := mixed("j", n)
	next := 0
	more := func() []work.Job {
		from := next
		next = min(n, next+n/5)
		p.begin(jobs[from:next], false)
		return jobs[from:next]
	}
	more()
	p.start("waiter", "pinned-to-older", "")
	p.reaches("pinned-to-older", events.KindEventAwaited)
	p.pinned("pinned-to-older", events.Engine-1)

	// Side by side: the newer one owns everything at once, also what began on the older ones.
	newer := p.run("orchestrator", "newer-0")
	more()
	p.owned(3, "newer-0")
	p.start("waiter", "pinned-to-newer", "")
	p.reaches("pinned-to-newer", events.KindEventAwaited)
	p.pinned("pinned-to-newer", events.Engine)

	// The newer one dies. The older ones go on with their instances, and do not touch those of the
	// newer.
	newer.kill()
	p.owned(2, "older-0", "older-1")
	approve := func(instance, with string) {
		p.say(events.Message{ID: instance + "-" + with, Instance: instance,
			Content: &events.EventRaised{Name: approval.Name(), Data: work.Payload(with)}})
	}
	approve("pinned-to-newer", "yes")
	p.waits("pinned-to-newer")
	p.start("once", "after", "x")
	p.completed("after", "x")
	p.pinned("after", events.Engine-1)
	more()
	if info, err := p.store.Instance(t.Context(), "pinned-to-newer"); err != nil || info.Status.Ended() {
		t.Errorf("an older engine has gone on with an instance of a newer one: it is %s (%v)", info.Status, err)
	}

	// The upgrade goes on, one after the other.
	p.run("orchestrator", "newer-1")
	p.completed("pinned-to-newer", "yes")
	t.Logf("the first older one ended within %v", first.terminate().Round(time.Millisecond))
	more()
	p.run("orchestrator", "newer-2")
	t.Logf("the second older one ended within %v", second.terminate().Round(time.Millisecond))
	last := more()
	p.owned(2, "newer-1", "newer-2")
	approve("pinned-to-older", "yes")
	p.completed("pinned-to-older", "yes")
	p.pinned("pinned-to-older", events.Engine-1)

	p.letGo(jobs)
	p.finished(jobs, patience)
	p.settled()
	p.outboxIsEmpty()
	for _, j := range last {
		p.pinned(j.ID, events.Engine)
	}
	began := make(map[int]int)
	for _, j := range jobs {
		began[p.engine(j.ID)]++
	}
	t.Logf("%d instances began on engine %d and %d on engine %d", began[events.Engine-1], events.Engine-1,
		began[events.Engine], events.Engine)
}

// waits waits until an orchestrator reports that it cannot take the messages of an instance,
// because of its engine.
func (p *processes) waits(instance string) {
	p.t.Helper()
	c := busclient.New[*client.Client](p.bus, busclient.Options{})
	p.eventually(instance+" waits for a newer engine", func() error {
		all, err := c.System().Processes(p.t.Context())
		for _, x := range all {
			for _, u := range x.Unknown {
				if u.Instance == instance && u.Reason == string(round.NewerEngine) {
					return nil
				}
			}
		}
		return errors.Join(errors.New("nobody says so"), err)
	})
}

// engine is that on which an instance began.
func (p *processes) engine(instance string) int {
	p.t.Helper()
	for _, e := range p.events(instance, 1) {
		if s, ok := e.Fact.(*events.Started); ok {
			return s.Engine
		}
	}
	p.t.Fatalf("%s has not begun", instance)
	return 0
}

// pinned checks the engine with which an instance began, and the one in its row.
func (p *processes) pinned(instance string, engine int) {
	p.t.Helper()
	if got := p.engine(instance); got != engine {
		p.t.Errorf("%s began on engine %d, want %d", instance, got, engine)
	}
	known, err := p.store.Load(p.t.Context(), []string{instance}, nil)
	if err != nil || len(known) != 1 {
		p.t.Fatalf("%d rows of %s, %v", len(known), instance, err)
	}
	if known[0].Row.Execution == 1 && known[0].Row.Engine != engine {
		p.t.Errorf("the row of %s is pinned to engine %d, want %d", instance, known[0].Row.Engine, engine)
	}
}

// owned waits until so many orchestrators are there, and all partitions belong to some of them.
func (p *processes) owned(there int, by ...string) {
	p.t.Helper()
	c := busclient.New[*client.Client](p.bus, busclient.Options{})
	p.eventually(fmt.Sprint("all partitions belong to ", by), func() error {
		s, err := c.System().Status(p.t.Context())
		if err != nil {
			return err
		}
		if len(s.Orchestrators) != there {
			return fmt.Errorf("there are %d orchestrators", len(s.Orchestrators))
		}
		left := len(s.Partitions)
		for _, o := range s.Orchestrators {
			for _, id := range by {
				if o.ID == id {
					left -= len(o.Partitions)
				}
			}
		}
		if left != 0 {
			return fmt.Errorf("%d belong to others, or to nobody", left)
		}
		return nil
	})
}
