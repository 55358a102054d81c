package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file runs services as processes of their own: it starts this test binary again with a role,
// so that a test can kill the process.

// A role is the service that a process runs, with its settings.
type role struct {
	Kind     string // orchestrator or worker
	ID       string
	Broker   natsbroker.Config
	Database string
	Schema   cockroach.SchemaMode
	Config   orchestrator.Config // only the fields that JSON can carry
	Worker   worker.Config
	// Twice delivers every message twice.
	Twice bool
	// Bridges says that an orchestrator has job queues beside it, and where it kills itself there,
	// if it is to; Begun is when their clocks begin.
	Bridges string
	Begun   int64
	// Window is the one in which it kills itself, if it is to; then it does the shapes.
	Window string

	program string // that is started; the test's own if it is empty
}

// roleVariable has the role of a process, as JSON.
const roleVariable = "RONDO_TEST_ROLE"

// ready is the line that a process prints on its standard output once it works.
const ready = "ready"

// play runs a role instead of tests.
func play(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("process", r.ID)
	r.Broker.Logger = log
	if r.Window != "" {
		return playWindow(ctx, r, log)
	}
	if r.Bridges != "" {
		return playBridges(ctx, r, log)
	}
	b, err := natstest.Dial(ctx, r.Broker)
	if err != nil {
		return err
	}
	defer b.Close()
	if r.Kind == "worker" {
		return playWorker(ctx, b, r, log)
	}
	return playOrchestrator(ctx, b, r, log)
}

func playOrchestrator(ctx context.Context, b *natsbroker.Bus, r role, log *slog.Logger) error {
	store, err := cockroach.Open(ctx, r.Database, cockroach.Options{WakeStep: wakeStep, MaxConns: 4, Log: log,
		ConnectTimeout: connects})
	if err != nil {
		return err
	}
	defer store.Close()
	code, err := orchestration.NewRegistry(plays...)
	if err != nil {
		return err
	}
	r.Config.ID, r.Config.Logger = r.ID, log
	var broker orchestrator.Broker = b
	if r.Twice {
		broker = twice{b}
	}
	o, err := orchestrator.New(broker, store, code, r.Config)
	if err != nil {
		return err
	}
	go func() {
		for o.Ready(ctx) != nil && ctx.Err() == nil {
			<-time.After(5 * time.Millisecond)
		}
		fmt.Println(ready)
	}()
	return o.Run(ctx)
}

func playWorker(ctx context.Context, b *natsbroker.Bus, r role, log *slog.Logger) error {
	code, err := activity.NewRegistry(works...)
	if err != nil {
		return err
	}
	r.Worker.ID, r.Worker.Logger = r.ID, log
	var broker worker.Broker = b
	if r.Twice {
		broker = twice{b}
	}
	w, err := worker.New(broker, code, r.Worker)
	if err != nil {
		return err
	}
	fmt.Println(ready)
	return w.Run(ctx)
}

// twice publishes every message twice, in a way that the broker cannot tell.
type twice struct{ *natsbroker.Bus }

// Publish implements broker.Publisher.
func (t twice) Publish(ctx context.Context, messages ...events.Wire) error {
	return t.Bus.Publish(ctx, doubled(messages)...)
}

// doubled repeats each message, except withdrawals.
func doubled(messages []events.Wire) []events.Wire {
	var out []events.Wire
	for _, m := range messages {
		if out = append(out, m); !m.Purge {
			out = append(out, work.Again(m))
		}
	}
	return out
}

// process is a service in a process of its own.
type process struct {
	t    *testing.T
	id   string
	cmd  *exec.Cmd
	said *lockedBuffer
	done chan struct{}
	err  error
}

// processes is a system whose services are processes.
type processes struct {
	*system
	database string
}

// onProcesses makes one on PostgreSQL.
func onProcesses(t *testing.T) *processes {
	t.Helper()
	pgtest.Need(t)
	t.Parallel()
	address := pgtest.Database(t)
	slowtest.Room(t)
	s := newSystemAt(t, slowtest.Slowest, func() history.Store {
		s, err := cockroach.Open(t.Context(), address, cockroach.Options{WakeStep: wakeStep, MaxConns: 4, Log: quiet(),
			ConnectTimeout: connects})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
	return &processes{system: s, database: address}
}

// launch starts a service, which does not have to work when this returns.
func (p *processes) launch(kind, id string, change ...func(*role)) *process {
	p.t.Helper()
	r := role{Kind: kind, ID: id, Broker: p.config, Database: p.database, Config: p.hasty(),
		Worker: worker.Config{ShutdownTimeout: 5 * time.Second, CancelGrace: time.Second}}
	r.Broker.URLs, r.Broker.Logger = p.server.URL(), nil
	r.Config.Logger, r.Config.ShutdownTimeout = nil, 10*time.Second
	for _, f := range change {
		f(&r)
	}
	text, err := json.Marshal(r)
	if err != nil {
		p.t.Fatal(err)
	}
	x := &process{t: p.t, id: id, said: &lockedBuffer{}, done: make(chan struct{})}
	x.cmd = exec.Command(cmp.Or(r.program, os.Args[0]))
	x.cmd.Env = append(os.Environ(), roleVariable+"="+string(text), "GORACE=halt_on_error=1")
	x.cmd.Stdout, x.cmd.Stderr = x.said, x.said
	if err := x.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		x.err = x.cmd.Wait()
		close(x.done)
	}()
	p.t.Cleanup(func() {
		x.kill()
		if p.t.Failed() {
			p.t.Logf("%s said:\n%s", id, x.said)
		}
		if strings.Contains(x.said.String(), "DATA RACE") {
			p.t.Errorf("%s has a data race:\n%s", id, x.said)
		}
	})
	return x
}

// run starts a service and waits until it works. If the service ends because NATS or the database
// answers too late, as on a slow machine, run starts it again, as Kubernetes does.
func (p *processes) run(kind, id string, change ...func(*role)) *process {
	p.t.Helper()
	x := p.launch(kind, id, change...)
	p.eventually(id+" works", func() error {
		if strings.Contains(x.said.String(), ready) {
			return nil
		}
		select {
		case <-x.done:
			if !late.MatchString(x.said.String()) {
				p.t.Fatalf("%s has ended (%v):\n%s", id, x.err, x.said)
			}
			p.t.Logf("%s has ended (%v), and is started again:\n%s", id, x.err, x.said)
			x = p.launch(kind, id, change...)
		default:
		}
		return errors.New("it has not said so")
	})
	return x
}

// late matches the last line of a process that ends because a request took longer than its limit.
var late = regexp.MustCompile(`(?:deadline exceeded|timeout)[^\n]*\n?$`)

// kill kills a process with SIGKILL: it cannot shut down in order.
func (x *process) kill() {
	_ = x.cmd.Process.Kill() // it fails only if it has ended
	<-x.done
}

// terminate asks it to end, and waits until it has.
func (x *process) terminate() time.Duration {
	x.t.Helper()
	begun := time.Now()
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		x.t.Fatal(err)
	}
	select {
	case <-x.done:
	case <-time.After(patience):
		x.t.Fatalf("%s does not end:\n%s", x.id, x.said)
	}
	if x.err != nil {
		x.t.Errorf("%s ended with %v:\n%s", x.id, x.err, x.said)
	}
	return time.Since(begun)
}

// lockedBuffer collects the output of a process.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
