package app_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// The tests start the test binary itself as a program: with this variable, it is one.
const asProgram = "RONDO_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		app.Main(parts...)
	}
	os.Exit(m.Run())
}

// The program: it greets, naps before it greets, and works on something that ends only when it is
// told to.
var (
	hello = orchestration.Define[string, string]("hello")
	nap   = orchestration.Define[int, string]("nap") // milliseconds
	toil  = orchestration.Define[bool, string]("toil")
	greet = activity.Define[string, string]("greet")
	work  = activity.Define[bool, string]("work")

	greeting = greet.Bind(func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	sleepy   = nap.Bind(func(ctx *orchestration.Context, ms int) (string, error) {
		if err := ctx.Sleep(time.Duration(ms) * time.Millisecond); err != nil {
			return "", err
		}
		return greet.Call(ctx, "sleeper")
	})
	parts = []app.Part{
		greeting, sleepy,
		hello.Bind(func(ctx *orchestration.Context, name string) (string, error) { return greet.Call(ctx, name) }),
		toil.Bind(func(ctx *orchestration.Context, stubborn bool) (string, error) { return work.Call(ctx, stubborn) }),
		work.Bind(func(ctx context.Context, stubborn bool) (string, error) {
			activity.Logger(ctx).Info("working")
			if stubborn {
				select {} // until the process dies
			}
			<-ctx.Done()
			return "", ctx.Err()
		}),
		app.Demo(func(ctx context.Context, s app.System) error {
			greeting, err := hello.Run(ctx, s.Client, "demo")
			if err != nil {
				return err
			}
			s.Print("the demo says: %s", greeting)
			if s.NATS == "" || s.Prefix != "rondo" {
				return errors.New("nobody says where NATS is")
			}
			return nil
		}),
	}
)

// running is a program that runs as a process of its own.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	out  *transcript
	errs *transcript
}

// start starts the program. It is killed with the test at the latest.
func start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	p := &running{t: t, done: make(chan struct{}), out: newTranscript(), errs: newTranscript()}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code tells
		p.out.end()
		p.errs.end()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%q said:\n%s%s", args, p.out, p.errs)
		}
	})
	return p
}

// patience bounds what a test waits for; it only matters when something is broken.
const patience = 5 * time.Minute

// wait waits for the end, and gives the exit code and the output.
func (p *running) wait() (code int, out, errs string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("the program has not ended; it said:\n%s%s", p.out, p.errs)
	}
	return p.cmd.ProcessState.ExitCode(), p.out.String(), p.errs.String()
}

func (p *running) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// ready waits until everything runs.
func (p *running) ready() *running {
	p.t.Helper()
	p.errs.await(p.t, "msg=ready")
	return p
}

// end ends the program in order.
func (p *running) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code, _, errs := p.wait(); code != 0 {
		p.t.Errorf("exit code %d: %s", code, errs)
	}
}

// transcript keeps the output, and wakes tests that wait for a line.
type transcript struct {
	mu     sync.Mutex
	text   bytes.Buffer
	change chan struct{}
	ended  bool
}

func newTranscript() *transcript { return &transcript{change: make(chan struct{})} }

func (x *transcript) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.change)
	x.change = make(chan struct{})
	return x.text.Write(p)
}

func (x *transcript) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	close(x.change)
	x.change = make(chan struct{})
}

func (x *transcript) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// await waits until a text was written, and gives the line it is in.
func (x *transcript) await(t *testing.T, want string) string {
	t.Helper()
	limit := time.After(patience)
	for {
		x.mu.Lock()
		text, change, ended := x.text.String(), x.change, x.ended
		x.mu.Unlock()
		for line := range strings.Lines(text) {
			if strings.Contains(line, want) {
				return strings.TrimSuffix(line, "\n")
			}
		}
		if ended {
			t.Fatalf("it has ended and did not say %q, but:\n%s", want, text)
		}
		select {
		case <-change:
		case <-limit:
			t.Fatalf("it did not say %q, but:\n%s", want, text)
		}
	}
}
