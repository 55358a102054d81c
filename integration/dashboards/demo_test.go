package dashboards_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/internal/devdir"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/client"
	flow "github.com/rondo-run/rondo/pkg/orchestration"
)

// This file scrapes the metrics: of `rondo dev --demo` as a process, which gets orders.

const (
	// root is the module of the product.
	root = "../.."
	// patience bounds each wait. It is only used up when something is wrong.
	patience = 2 * time.Minute
	// scrapes are made in quick succession, and stored as if there were a quarter of a minute
	// between them: alerts need time.
	scrapes, scrapeEvery, scrapeAs = 100, 60 * time.Millisecond, 15 * time.Second
)

var target = labels.FromStrings("namespace", "demo", "job", "rondo-dev", "instance", "127.0.0.1:7070")

// demonstration returns the scraped series. The process runs once for all tests.
func demonstration(t *testing.T) *memory {
	t.Helper()
	scraped.once.Do(func() { scraped.memory, scraped.err = demonstrate(t) })
	if scraped.err != nil {
		t.Fatal(scraped.err)
	}
	return scraped.memory
}

var scraped struct {
	once   sync.Once
	memory *memory
	err    error
}

func demonstrate(t *testing.T) (*memory, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	dir := t.TempDir()
	program := os.Getenv("RONDO_TEST_BINARY") // the command line, where a whole run builds it once
	if program == "" {
		program = filepath.Join(dir, "rondo")
		if out, err := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", program,
			"./cmd/rondo").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	data := filepath.Join(dir, "data")
	stop, err := dev(ctx, program, data)
	if err != nil {
		return nil, err
	}
	defer stop()
	at, err := devdir.Read(data)
	if err != nil {
		return nil, err
	}
	c, err := client.Connect(ctx, at.NATS)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	tick := time.NewTicker(scrapeEvery)
	defer tick.Stop()
	for m := newMemory(); !m.knows(telemetry.MetricPartitionWait) || !m.knows(telemetry.MetricNATSRoundTrip) ||
		!m.knows(telemetry.MetricReady); <-tick.C {
		// until it has the metrics that services measure only now and then
		if err := scrapeOnce(ctx, m, at.Health+"/metrics", start); err != nil {
			return nil, err
		}
	}
	m := newMemory()
	for i := range scrapes {
		if err := scrapeOnce(ctx, m, at.Health+"/metrics", start.Add(time.Duration(i)*scrapeAs)); err != nil {
			return nil, err
		}
		if err := order(ctx, c, i); err != nil {
			return nil, err
		}
		<-tick.C
	}
	return m, nil
}

// knows reports whether there are series of a metric.
func (m *memory) knows(metric string) bool {
	return m.has([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", name(metric))})
}

// order sends one. Every tenth is large and gets no approval in time, so it fails.
func order(ctx context.Context, c *client.Client, i int) error {
	o := contract.Order{SKU: "chair", Cents: 4500, Card: "1111", ShipTo: "Bremen"}
	if i%10 == 5 {
		o.Cents, o.ApproveWithin = contract.Large, 50*time.Millisecond
	}
	_, err := contract.Fulfil.Start(ctx, c, o, flow.ID(fmt.Sprintf("order-%d", i)))
	return err
}

// dev starts it, and waits until the demonstration is over.
func dev(ctx context.Context, program, data string) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, program, "dev", "--demo", "--dir", data, "--nats-listen", "127.0.0.1:0", "--listen",
		"127.0.0.1:0")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "What runs goes on running") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return stop, nil
		}
	}
	stop()
	return nil, errors.Join(lines.Err(), fmt.Errorf("the demonstration did not end: %s", problems.String()))
}

func scrapeOnce(ctx context.Context, m *memory, url string, at time.Time) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return m.scrape(text, answer.Header.Get("Content-Type"), at, target)
}
