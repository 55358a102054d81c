package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file has services die as processes: they get SIGKILL in a window of TestCrashWindows. What
// they had not yet written to a connection is lost with them.

// playWindow is a process that kills itself in a window.
func playWindow(ctx context.Context, r role, log *slog.Logger) error {
	w, ok := windowNamed(r.Window)
	if !ok {
		return fmt.Errorf("there is no window %q", r.Window)
	}
	g := newGate(w.at, 1)
	g.die = func() {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {}
	}
	// the line only watches: SIGKILL itself cuts the connection
	r.Broker.InProcess = newLine(r.Broker.URLs[len("nats://"):], g)
	b, err := natstest.Dial(ctx, r.Broker)
	if err != nil {
		return err
	}
	broker := gatedBroker{world: b, g: g}
	if r.Kind == "worker" {
		code, err := activity.NewRegistry(activitiesOf(g)...)
		if err != nil {
			return err
		}
		r.Worker.ID, r.Worker.Logger = r.ID, log
		x, err := worker.New(broker, code, r.Worker)
		if err != nil {
			return err
		}
		return x.Run(ctx)
	}
	store, err := cockroach.Open(ctx, r.Database,
		cockroach.Options{WakeStep: wakeStep, MaxConns: 3, Log: log, Configure: tapped(g), ConnectTimeout: connects})
	if err != nil {
		return err
	}
	code, err := orchestration.NewRegistry(orchestrationsOf(g)...)
	if err != nil {
		return err
	}
	r.Config.ID, r.Config.Logger = r.ID, log
	x, err := orchestrator.New(broker, gatedStore{store, g}, code, r.Config)
	if err != nil {
		return err
	}
	return x.Run(ctx)
}

// TestKilledInWindows is TestCrashWindows with processes that get SIGKILL. It tries some windows;
// with [large], all that need no preparation.
func TestKilledInWindows(t *testing.T) {
	t.Parallel()
	some := map[string]bool{"before the commit": true, "in the commit, before the answer is read": true,
		"half of the work is published": true, "a result was published": true}
	for _, w := range windows {
		if w.before != nil || w.during != nil || w.ignorant || !large && !some[w.name] {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			x := shapes[indexOfShapeFor(w)]
			postgres := windowStores[1]
			r := newWindowRun(t, window{}, x, postgres, 0)
			p := &processes{r.system, r.address}
			var dying *process
			if w.worker {
				r.orchestrate(r.settings)
				dying = p.launch("worker", "dies", func(r *role) { r.Window = w.name })
			} else {
				r.gatedWorker(newGate(crossing{}, 0))
				dying = p.launch("orchestrator", "dies", func(x *role) {
					x.Window = w.name
					r.settings(&x.Config)
				})
			}
			r.begins(x)
			r.await(dying.done, "the process dies")
			var exit *exec.ExitError
			if !errors.As(dying.err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("it has ended by itself: %v\n%s", dying.err, dying.said)
			}
			if w.worker {
				r.gatedWorker(newGate(crossing{}, 0))
			} else {
				r.orchestrate(r.settings)
			}
			r.finish(nil)
		})
	}
}

// indexOfShapeFor finds a shape that gets to a window.
func indexOfShapeFor(w window) int {
	name := "one"
	if len(w.only) > 0 {
		name = w.only[0]
	}
	for _, x := range [][2]string{
		{"half", "fan-out"}, {"timer", "timer"}, {"child", "child"}, {"continue", "continue-as-new"},
		{"another instance", "speaking"}, {"was said", "speaking"},
		{"withdraw", "withdrawal"}, {"step", "steps"}, {"error", "retry"}, {"begun", "begun"}, {"values", "reading"},
	} {
		if w.only == nil && strings.Contains(w.name, x[0]) {
			name = x[1]
		}
	}
	return slices.IndexFunc(shapes, func(x shape) bool { return x.name == name })
}

// TestDocumentHasEveryWindow compares the names of the windows with the tables of the document.
func TestDocumentHasEveryWindow(t *testing.T) {
	const document, begin, end = "../docs/reliability.md", "\n## Where a process can die\n", "\n## "
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s has no section %q", document, strings.TrimSpace(begin))
	}
	section, _, _ = strings.Cut(section, end)
	var documented []string
	for line := range strings.Lines(section) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !strings.HasPrefix(line, "| ") || name == "---" || name == "where it dies" {
			continue
		}
		if _, ok := windowNamed(name); !ok {
			t.Errorf("%s: TestCrashWindows has no window %q", document, name)
		}
		if slices.Contains(documented, name) {
			t.Errorf("%s has %q twice", document, name)
		}
		documented = append(documented, name)
	}
	for _, w := range windows {
		if !slices.Contains(documented, w.name) {
			t.Errorf("%s does not say what happens in the window %q", document, w.name)
		}
	}
}
