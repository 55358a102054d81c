package app

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestAnOverdueProcessExits: a process that was told to end, and is kept from it by a defect, logs
// the stacks of its goroutines, and exits.
func TestAnOverdueProcessExits(t *testing.T) {
	for command, within := range map[Command]time.Duration{
		Orchestrator: 20*time.Second + 8*time.Second,
		Worker:       20*time.Second + 10*time.Second + 5*time.Second + 8*time.Second,
	} {
		t.Run(string(command), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stderr strings.Builder
				a := overdueApp(t, command, &stderr)
				ctx, cancel := context.WithCancel(t.Context())
				codes := make(chan int, 1)
				ended := a.exitOverdue(ctx, func(code int) { codes <- code })
				defer ended()
				<-time.After(time.Hour) // it runs
				told := time.Now()
				cancel()
				if code := <-codes; code != failed {
					t.Errorf("it exits with %d", code)
				}
				if at := told.Add(within); !time.Now().Equal(at) {
					t.Errorf("it exits at %v; want %v", time.Now(), at)
				}
				for _, part := range []string{"level=ERROR", "did not end in time", "TestAnOverdueProcessExits"} {
					if text := stderr.String(); !strings.Contains(text, part) {
						t.Errorf("it logs %s; want %q", text, part)
					}
				}
			})
		})
	}
}

// TestAProcessWithAFailedServiceExits: a service fails, and another one does not end. No one has
// told the process to end.
func TestAProcessWithAFailedServiceExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr strings.Builder
		a := overdueApp(t, Orchestrator, &stderr)
		code := make(chan int, 1)
		defer a.exitOverdue(t.Context(), func(c int) { code <- c })()
		hangs, fails := make(chan struct{}), make(chan struct{})
		service := func(name string, until <-chan struct{}) service {
			return service{name: name, live: alive, ready: readyAnyway, run: func(context.Context) error {
				<-until
				return errors.New(name)
			}}
		}
		ended := make(chan error, 1)
		all := group{service("fails", fails), service("hangs", hangs)}
		go func() { ended <- all.run(t.Context(), &health{}, a.ending, func() {}) }()
		<-time.After(time.Hour) // it runs
		failedAt := time.Now()
		close(fails)
		if c := <-code; c != failed {
			t.Errorf("it exits with %d", c)
		}
		if at := failedAt.Add(28 * time.Second); !time.Now().Equal(at) {
			t.Errorf("it exits at %v; want %v", time.Now(), at)
		}
		if text := stderr.String(); !strings.Contains(text, "did not end in time") {
			t.Errorf("it logs %s", text)
		}
		close(hangs)
		<-ended
	})
}

// TestAProcessThatCannotCloseExits: what it has opened before does not close.
func TestAProcessThatCannotCloseExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := overdueApp(t, Dev, io.Discard)
		code := make(chan int, 1)
		defer a.exitOverdue(t.Context(), func(c int) { code <- c })()
		hangs, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			var err error
			a.closeInto(&err, func() error {
				<-hangs
				return nil
			})
		}()
		if c := <-code; c != failed {
			t.Errorf("it exits with %d", c)
		}
		close(hangs)
		<-ended
	})
}

// stuck is an output whose reader does not read.
type stuck struct{ until <-chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.until
	return len(p), nil
}

// TestAnOverdueProcessExitsWithoutALog: the reader of its log is stuck, too.
func TestAnOverdueProcessExitsWithoutALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		a := overdueApp(t, Orchestrator, stuck{until})
		ctx, cancel := context.WithCancel(t.Context())
		codes := make(chan int, 1)
		ended := a.exitOverdue(ctx, func(code int) { codes <- code })
		defer ended()
		cancel()
		<-codes
		close(until)
	})
}

// TestAProcessThatEnds is not ended.
func TestAProcessThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := overdueApp(t, Orchestrator, io.Discard)
		ended := a.exitOverdue(ctx, func(code int) { t.Errorf("it exits with %d", code) })
		cancel()
		<-time.After(20 * time.Second)
		ended()
		<-time.After(time.Hour)
	})
}

func overdueApp(t *testing.T, command Command, stderr io.Writer) *App {
	t.Helper()
	c := Defaults(command)
	c.Stdout, c.Stderr, c.Database.URL = io.Discard, stderr, "postgres://rondo@localhost/rondo"
	code := func(*orchestration.Context, int) (int, error) { return 0, nil }
	a, err := New(c, nothing.Bind(func(context.Context, int) (int, error) { return 0, nil }),
		orchestration.Define[int, int]("nothing").Bind(code))
	if err != nil {
		t.Fatal(err)
	}
	return a
}
