package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// run runs the program in this process until it is told to end.
func run(t *testing.T, dir string, change func(*app.Config)) (a *app.App, end func()) {
	t.Helper()
	c := app.Defaults(app.Dev)
	keep(&c)
	c.Dir, c.NATSListen, c.Listen, c.Stdout, c.Stderr = dir, "127.0.0.1:0", "off", io.Discard, io.Discard
	change(&c)
	a, err := app.New(c, parts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	select {
	case <-a.Started():
	case err := <-done:
		done <- err
		t.Fatal("it has ended at once: ", err)
	}
	return a, end
}

// start runs the program, and gives a client of it.
func start(t *testing.T, dir string) (c *client.Client, end func()) {
	t.Helper()
	a, stop := run(t, dir, func(c *app.Config) {
		c.Streams.InboxAckWait = time.Second            // so that NATS redelivers soon
		c.Orchestrator.KeepFormerFor = time.Millisecond // nothing old comes again here
	})
	c, err := client.Connect(t.Context(), a.Addresses().NATS)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stop()
	}
}

// pushAtOnce is push that does not wait for each to be stored.
func pushAtOnce(t *testing.T, c *client.Client, commands []Command) {
	t.Helper()
	var all []events.Message
	for _, command := range commands {
		data, err := c.Codec().Encode(command)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events.Message{ID: c.NewID(), Instance: "account-1",
			Content: &events.MailboxMessage{Mailbox: Commands.Name(), Data: data}})
	}
	if err := c.Publish(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
}

// TestRestart ends the program twice while commands are waiting. None is lost, comes twice or is
// overtaken, and former executions go.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	c, end := start(t, dir)
	if _, err := Account.Start(t.Context(), c, Opening{Owner: "ann"}, orchestration.ID("account-1")); err != nil {
		t.Fatal(err)
	}
	const each = 500
	for range 3 {
		pushAtOnce(t, c, pairs(each))
		end()
		c, end = start(t, dir)
	}
	defer func() { end() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := Ask.Run(ctx, c, Request{Account: "account-1", Command: Command{Do: "deposit", Cents: 42}})
	if err != nil || answer != (Answer{Balance: 42}) {
		t.Errorf("%+v, %v", answer, err)
	}
	book, _, err := Book.Read(ctx, c, "account-1")
	if want := (State{Balance: 42, Handled: 6*each + 1}); err != nil || book != want {
		t.Errorf("the book says %+v, %v; want %+v", book, err, want)
	}
	info, err := c.Instances().Get(ctx, "account-1")
	if err != nil || info.Execution != 6*each/perExecution+1 || info.LastEvent > 20 {
		t.Errorf("execution %d with %d events, %v; want execution %d, just begun", info.Execution, info.LastEvent, err,
			6*each/perExecution+1)
	}

	end()
	c, end = start(t, dir) // removes former executions
	executions := 0
	for tick := time.NewTicker(20 * time.Millisecond); executions != 3; {
		kept, err := client.Collect(c.Instances().Executions(ctx, "account-1"))
		if err != nil {
			t.Fatalf("%d executions are kept: %v", executions, err)
		}
		executions = len(kept)
		<-tick.C
	}
	push(t, c, Command{Do: "close"})
	wantState(t, Account.Handle(c, "account-1"), State{Balance: 42, Handled: 6*each + 2, Closed: true})
}

// TestDemo runs `actor dev --demo` until it has printed what there is to see.
func TestDemo(t *testing.T) {
	out := &watched{want: "Ctrl-C ends it.\n", times: 2, seen: make(chan struct{})}
	_, end := run(t, t.TempDir(), func(c *app.Config) { c.Demo, c.Stdout = true, out })
	select {
	case <-out.seen:
	case <-time.After(time.Minute):
		t.Error("it has not shown everything within a minute")
	}
	end()
	for _, want := range []string{
		"withdraw 9900: the balance is 3800; there are only 3800 cents",
		"{Balance:5799 Handled:2005 Refused:2 Closed:false}", "This is execution 5.",
	} {
		if !strings.Contains(out.text.String(), want) {
			t.Errorf("missing: %s\nin: %s", want, out.text.String())
		}
	}
}

// watched closes seen when the wanted text was written so many times.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	want  string
	times int
	seen  chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.count()
	n, err := w.text.Write(p)
	if before < w.times && w.count() >= w.times {
		close(w.seen)
	}
	return n, err
}

func (w *watched) count() int { return strings.Count(w.text.String(), strings.TrimSpace(w.want)) }
