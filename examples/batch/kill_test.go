package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// ledgerVariable makes the test binary the program. It names the file in which the program notes
// what it sends.
const ledgerVariable = "RONDO_EXAMPLE_LEDGER"

func TestMain(m *testing.M) {
	if ledger := os.Getenv(ledgerVariable); ledger != "" {
		app.Main(Bill.Bind(bill), Send.Bind(noting(ledger)), app.Demo(demo), app.Configure(impatient))
	}
	os.Exit(m.Run())
}

// impatient has the program notice sooner than usual that the one before it was killed.
func impatient(c *app.Config) {
	c.Streams.MemberLease, c.Streams.TaskAckWait, c.Orchestrator.OutboxAfter, c.Orchestrator.SweepEvery = time.Second,
		time.Second, time.Second, time.Second
}

// noting is send, with a note of it in a file that outlives the process.
func noting(ledger string) func(context.Context, Invoice) (int, error) {
	f, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return func(ctx context.Context, i Invoice) (int, error) {
		if err != nil {
			return 0, err
		}
		if _, err := fmt.Fprintln(f, i.Customer, activity.Info(ctx).IdempotencyKey); err != nil {
			return 0, err
		}
		return send(ctx, i)
	}
}

// program is the program as a process of its own.
type program struct {
	cmd    *exec.Cmd
	client *client.Client
}

// start starts the program, and gives it back when it runs.
func start(t *testing.T, dir, ledger string) program {
	t.Helper()
	p, out := run(t, dir, ledger)
	said := strings.Join(says(t, out, "Ctrl-C ends it."), "\n")
	go func() { _, _ = io.Copy(io.Discard, out) }() // until it ends
	var err error
	p.client, err = client.Connect(t.Context(), regexp.MustCompile(`nats://[0-9.:]+`).FindString(said))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.client.Close() }) // it may be closed
	return p
}

// run runs the program until the test ends.
func run(t *testing.T, dir, ledger string, args ...string) (program, io.Reader) {
	t.Helper()
	p := program{cmd: exec.Command(os.Args[0],
		append([]string{"dev", "--dir", dir, "--nats-listen", "127.0.0.1:0", "--listen", "off"}, args...)...)}
	p.cmd.Env = append(os.Environ(), ledgerVariable+"="+ledger)
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.cmd.Stderr = p.cmd.Stdout
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p, out
}

// says waits for a line, and gives all up to it.
func says(t *testing.T, out io.Reader, want string) (said []string) {
	t.Helper()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), want) {
			return said
		}
	}
	t.Fatalf("the program did not say %q, but:\n%s", want, strings.Join(said, "\n"))
	return nil
}

// kill ends it as a crash does.
func (p program) kill() {
	if p.client != nil {
		_ = p.client.Close() // it loses its server anyway
	}
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.cmd.Wait()         // it was killed
}

// sofar waits until a batch has come so far.
func (p program) sofar(t *testing.T, id string, customers int) {
	t.Helper()
	for status, err := range p.client.WatchStatus(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		var at Progress
		if err := p.client.Codec().Decode(status.Data, &at); err == nil && at.Billed+at.Failed >= customers {
			return
		}
	}
	t.Fatalf("%s has ended before the program could be killed", id)
}

// TestKilledInTheMiddle kills the program twice while it bills. In the end each customer counts
// once, and was sent invoices of one key only.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	dir, ledger := t.TempDir(), filepath.Join(t.TempDir(), "sent")
	job := Job{Month: "2027-01", Customers: 1_500, InFlight: 50, PerExecution: 200, EachMS: 20}
	p := start(t, dir, ledger)
	if _, err := Bill.Start(t.Context(), p.client, job, orchestration.ID("bill-1")); err != nil {
		t.Fatal(err)
	}
	for _, customers := range []int{400, 1000} {
		p.sofar(t, "bill-1", customers)
		p.kill()
		p = start(t, dir, ledger)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := Bill.Handle(p.client, "bill-1").Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wantSummary(t, got, job.Customers)
	info, err := p.client.Instances().Get(ctx, "bill-1")
	if err != nil || info.Execution != 8 || info.LastEvent > 500 {
		t.Errorf("execution %d with %d events, want execution 8 with a small history; %v", info.Execution,
			info.LastEvent, err)
	}
	wantOneKeyEach(t, ledger, job.Customers)
}

// wantOneKeyEach checks that each customer has one idempotency key, so that a printer that heeds
// keys has sent one invoice to each.
func wantOneKeyEach(t *testing.T, ledger string, customers int) {
	t.Helper()
	f, err := os.Open(ledger)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	keys, lines := make(map[int]string), 0
	for {
		var customer int
		var key string
		if _, err := fmt.Fscanln(f, &customer, &key); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if lines++; keys[customer] != "" && keys[customer] != key {
			t.Errorf("customer %d was sent invoices with the keys %s and %s", customer, keys[customer], key)
		}
		keys[customer] = key
	}
	if len(keys) != customers {
		t.Errorf("%d customers were sent something, want %d", len(keys), customers)
	}
	t.Logf("%d attempts for %d customers", lines, customers)
}

// TestDemo runs `batch dev --demo` until it has printed what there is to see.
func TestDemo(t *testing.T) {
	t.Parallel()
	_, out := run(t, t.TempDir(), filepath.Join(t.TempDir(), "sent"), "--demo")
	said := says(t, out, "4995 customers are billed with 12487500 cents, 5 are not:")
	if want := `  {"billed":4995,"failed":5,"of":5000}`; !slices.Contains(said, want) {
		t.Errorf("missing: %s\nin: %s", want, strings.Join(said, "\n"))
	}
}
