//go:build unix

package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file is the processes: the test starts this test binary again with a role.

// role is the service that a process runs, with its settings.
type role struct {
	Kind string // nats, orchestrator or worker
	ID   string

	// Of a NATS server: where it keeps its streams, where it listens, and its configuration.
	Dir, Listen, Conf string

	// Of a service.
	Broker       natsbroker.Config
	Database     string
	WakeStep     time.Duration
	Orchestrator orchestrator.Config
	Worker       worker.Config
	// Ledger is the file in which it notes its deliveries, or its executions.
	Ledger string
}

// roleVariable has the role of a process, as JSON.
const roleVariable = "RONDO_CHAOS_ROLE"

// play runs a role instead of tests. It ends when its standard input does: when the process that
// started it is gone, for whatever reason.
func play(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends in any case
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch r.Kind {
	case "nats":
		return playServer(ctx, r, log)
	case "orchestrator":
		return playOrchestrator(ctx, r, log)
	default:
		return playWorker(ctx, r, log)
	}
}

func playServer(ctx context.Context, r role, log *slog.Logger) error {
	s, err := embedded.Start(embedded.Options{Dir: r.Dir, Listen: r.Listen, Config: r.Conf, Logger: log})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close()
}

func playOrchestrator(ctx context.Context, r role, log *slog.Logger) error {
	r.Broker.Logger, r.Orchestrator.Logger = log, log
	b, err := natstest.Dial(ctx, r.Broker)
	if err != nil {
		return err
	}
	defer b.Close()
	store, err := cockroach.Open(ctx, r.Database, cockroach.Options{WakeStep: r.WakeStep, Log: log})
	if err != nil {
		return err
	}
	defer store.Close()
	code, err := orchestration.NewRegistry(plays...)
	if err != nil {
		return err
	}
	deliveries, err := openLedger(r.Ledger)
	if err != nil {
		return err
	}
	o, err := orchestrator.New(counted{b, deliveries}, store, code, r.Orchestrator)
	if err != nil {
		return err
	}
	return o.Run(ctx)
}

func playWorker(ctx context.Context, r role, log *slog.Logger) error {
	r.Broker.Logger, r.Worker.Logger = log, log
	executions, err := openLedger(r.Ledger)
	if err != nil {
		return err
	}
	code, err := activity.NewRegistry(works(executions)...)
	if err != nil {
		return err
	}
	b, err := natstest.Dial(ctx, r.Broker)
	if err != nil {
		return err
	}
	defer b.Close()
	w, err := worker.New(b, code, r.Worker)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// ledger is a file to which lines are added. An added line survives a kill of the process.
type ledger struct{ file *os.File }

func openLedger(path string) (ledger, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return ledger{f}, err
}

func (l ledger) note(line string) {
	if _, err := l.file.WriteString(line + "\n"); err != nil {
		panic(err) // without it, the test would prove less than it says
	}
}

// counted notes the id of each message that is delivered.
type counted struct {
	*natsbroker.Bus
	deliveries ledger
}

// Receive implements broker.Inbox.
func (c counted) Receive(ctx context.Context, partition int, take func(broker.Delivery)) error {
	return c.Bus.Receive(ctx, partition, func(d broker.Delivery) {
		id := d.ID()
		if h := d.Header[events.HeaderMsgID]; len(h) > 0 {
			id = h[0]
		}
		c.deliveries.note(id)
		take(d)
	})
}

// ---- Starting and ending them.

// process is one that runs, or should.
type process struct {
	t    testing.TB
	role role
	logs string

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	wanted bool
	deaths []string // how it ended by itself
}

// launch starts a process, and starts it again whenever it ends by itself, as a supervisor would.
func launch(t testing.TB, r role, logs string) *process {
	t.Helper()
	p := &process{t: t, role: r, logs: logs}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	p.spawn()
}

// spawn starts it. The lock is held.
func (p *process) spawn() {
	text, err := json.Marshal(p.role)
	if err != nil {
		p.t.Error(err)
		return
	}
	log, err := os.OpenFile(filepath.Join(p.logs, p.role.ID+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer log.Close() // the process has its own
	if _, err := fmt.Fprintf(log, "---- started %s\n", time.Now().Format(time.RFC3339Nano)); err != nil {
		p.t.Error(err)
		return
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own, so that Ctrl-C ends the test alone, which ends the others in order; and
	// so that the system wakes and ends it when it is stopped while this process dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Errorf("starting %s: %v", p.role.ID, err)
		return
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		err := cmd.Wait()
		_ = in.Close() // the process does not read it any more
		close(done)
		p.ended(cmd, err)
	}()
}

// ended starts it again after a moment, if it was not to end.
func (p *process) ended(cmd *exec.Cmd, err error) {
	p.mu.Lock()
	unexpected := p.wanted && p.cmd == cmd
	if unexpected {
		p.deaths = append(p.deaths, fmt.Sprintf("%s ended by itself (%v): %s", p.role.ID, err, p.lastWords()))
	}
	p.mu.Unlock()
	if !unexpected {
		return
	}
	<-time.After(500 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted && p.cmd == cmd {
		p.spawn()
	}
}

// lastWords is the last line of its log.
func (p *process) lastWords() string {
	data, err := os.ReadFile(filepath.Join(p.logs, p.role.ID+".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}

// kill kills the process with SIGKILL: it cannot shut down in order.
func (p *process) kill() {
	p.mu.Lock()
	p.wanted = false
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it fails only if it has ended
	<-done
}

// signal freezes the process, or lets it go on.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to %s: %v", s, p.role.ID, err)
	}
}

// died lists how the process ended by itself, each time.
func (p *process) died() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deaths
}
