package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// TestNodeWorker runs the shop with the worker in JavaScript. It needs node, npm, and what npm
// downloads.
func TestNodeWorker(t *testing.T) {
	t.Parallel()
	dir := install(t)
	at := shopRuns(t)
	c, err := client.Connect(t.Context(), at.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	order := func(id, card string) orchestration.Handle[contract.Receipt] {
		h, err := contract.Fulfil.Start(t.Context(), c,
			contract.Order{SKU: "chair", Cents: 4500, Card: card, ShipTo: "Bremen"}, orchestration.ID(id))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	waiting := order("early/äöü.1", "1111") // before there is a worker, and with an id that has to be encoded
	w := startNode(t, dir, "worker.mjs", at.NATS)
	if r, err := waiting.Wait(limited(t)); err != nil || !strings.HasPrefix(r.Payment, "payment-early/%C3%A4") {
		t.Errorf("%+v, %v", r, err)
	}

	t.Run("a failure is tried again", func(t *testing.T) {
		h := order("flaky", "flaky")
		if _, err := h.Wait(limited(t)); err != nil {
			t.Error(err)
		}
		failed, by := 0, ""
		for _, e := range historyOf(t, c, h.ID) {
			switch f := e.Fact.(type) {
			case *events.ActivityFailed:
				failed++
				by = f.Worker
			default:
			}
		}
		if failed != 1 || !strings.HasPrefix(by, "node-") {
			t.Errorf("%d failures, by %q", failed, by)
		}
	})
	t.Run("an error keeps its type", func(t *testing.T) {
		if _, err := order("declined", "declined").Wait(limited(t)); !errors.Is(err,
			orchestration.OfType(contract.CardDeclined)) {
			t.Error(err)
		}
	})
	t.Run("what is cancelled is stopped", func(t *testing.T) {
		h := order("slow", "slow")
		w.await(t, "charge slow 4500 attempt 1")
		all, err := c.System().Processes(t.Context())
		i := slices.IndexFunc(all, func(p client.Process) bool { return strings.HasPrefix(p.ID, "node-") })
		if err != nil || i < 0 || len(all[i].Works.Holds) != 1 || all[i].Works.Holds[0].Instance != "slow" ||
			all[i].Works.Holds[0].Attempt != 1 {
			t.Errorf("these say that they are there: %+v, %v", all, err)
		}
		if err := h.Cancel(t.Context(), "no longer wanted"); err != nil {
			t.Fatal(err)
		}
		w.await(t, "cancelled charge slow")
		if _, err := h.Wait(limited(t)); !errors.Is(err, orchestration.ErrCancelled) {
			t.Error(err)
		}
	})
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	w.await(t, "ended")
	t.Run("what the shop does not need", func(t *testing.T) { oddWork(t, dir, at, c) })
}

// The activities of testdata/odd.mjs, and the orchestration that calls them.
var (
	odd  = activity.Tag("odd")
	hang = activity.Define[int, int]("hang", odd, activity.StartToClose(150*time.Millisecond),
		activity.ScheduleToStart(time.Minute))
	silent = activity.Define[int, int]("silent", odd, activity.HeartbeatTimeout(150*time.Millisecond))
	beat   = activity.Define[int, int]("beat", odd, activity.HeartbeatTimeout(500*time.Millisecond))
	later  = activity.Define[int, string]("later", odd)

	oddities = orchestration.Define[int, string]("oddities")
)

// callOddities wants two timeouts, a result that takes longer than the silence that is allowed, and
// one that comes from elsewhere.
func callOddities(ctx *orchestration.Context, _ int) (string, error) {
	slow, quiet, beaten := hang.Start(ctx, 0), silent.Start(ctx, 0), beat.Start(ctx, 15)
	var failed *failure.Error
	if _, err := slow.Get(ctx); !errors.As(err, &failed) || failed.Type != failure.TimeoutStartToClose {
		return "", fmt.Errorf("hang: %w", err)
	}
	if _, err := quiet.Get(ctx); !errors.As(err, &failed) || failed.Type != failure.TimeoutHeartbeat {
		return "", fmt.Errorf("silent: %w", err)
	}
	if n, err := beaten.Get(ctx); err != nil || n != 15 {
		return "", fmt.Errorf("beat: %d, %w", n, err)
	}
	return later.Call(ctx, 0)
}

func oddWork(t *testing.T, dir string, at app.Addresses, c *client.Client) {
	queues := []broker.TaskQueueName{
		{Activity: "charge"}, {Tag: "_", Activity: "_"}, {Tag: "g/p_u", Activity: "a/b.c_d"},
		{Tag: "ü", Activity: "Käse & Brot"},
		{Tag: strings.Repeat("ä", 64), Activity: strings.Repeat("x", 128)},
	}
	var asked []string
	for _, q := range queues {
		asked = append(asked, fmt.Sprintf(`{"tag":%q,"activity":%q}`, q.Tag, q.Activity))
	}
	w := startNode(t, dir, "odd.mjs", at.NATS, "["+strings.Join(asked, ",")+"]")
	for _, q := range queues {
		w.await(t, "name "+natsbroker.ConsumerOf(q)+" "+events.EncodeToken(q.Activity)+" true\n")
	}
	h, err := oddities.Start(t.Context(), c, 0, orchestration.ID("odd/1"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(w.await(t, "token odd/1/"), "token ")
	token, _, _ := strings.Cut(rest, "\n")
	if err := c.Complete(t.Context(), token, "from elsewhere"); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Wait(limited(t)); err != nil || got != "from elsewhere" {
		t.Errorf("%q, %v", got, err)
	}
}

// install copies the worker to where npm may write, and has npm fetch what it needs.
func install(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("THE WORKER IN JAVASCRIPT IS NOT TESTED: %v", err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "rondo.mjs", "worker.mjs",
		"testdata/odd.mjs"} {
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("THE WORKER IN JAVASCRIPT IS NOT TESTED: npm ci: %v\n%s", err, out)
	}
	return dir
}

// shopRuns starts the shop in this process.
func shopRuns(t *testing.T) app.Addresses {
	t.Helper()
	c := app.Defaults(app.Dev)
	c.Dir, c.NATSListen, c.Listen, c.Stdout, c.Stderr = t.TempDir(), "127.0.0.1:0", "off", io.Discard, io.Discard
	a, err := app.New(c, append(parts, oddities.Bind(callOddities))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-a.Started():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return a.Addresses()
}

// node is a worker that runs.
type node struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func startNode(t *testing.T, dir string, args ...string) *node {
	t.Helper()
	n := &node{cmd: exec.Command("node", args...), more: make(chan struct{}, 1)}
	n.cmd.Dir, n.cmd.Stdout, n.cmd.Stderr = dir, n, n
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.cmd.Process.Kill() // it may have ended
		_ = n.cmd.Wait()
		if t.Failed() {
			t.Logf("node said:\n%s", &n.text)
		}
	})
	n.await(t, "ready")
	return n
}

func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default:
	}
	return n.text.Write(p)
}

// await waits until the worker has said something, and gives all that it has said.
func (n *node) await(t *testing.T, want string) string {
	t.Helper()
	limit := time.After(patience)
	for {
		n.mu.Lock()
		text := n.text.String()
		n.mu.Unlock()
		if strings.Contains(text, want) {
			return text
		}
		select {
		case <-n.more:
		case <-limit:
			t.Fatalf("node has not said %q, but:\n%s", want, text)
		}
	}
}

// patience bounds each wait of a test; it only matters when something is broken.
const patience = 5 * time.Minute

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func historyOf(t *testing.T, c *client.Client, id string) []events.Event {
	t.Helper()
	x, err := c.Instances().History(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return x.Events
}
