package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads the figures that the processes report about themselves.

// reading is how much was used and done until a moment.
type reading struct {
	at      time.Time
	machine machineTimes
	usage   map[string]usage // of NATS, the database, the orchestrators, the worker and the client
	// orchestrator and worker are the metrics that they serve, those of several orchestrators added
	// up.
	orchestrator, worker counters
	// allocations and allocated count the objects that were allocated, and their bytes, by process.
	allocations, allocated map[string]float64
	nats                   natsCounters
}

// read reads all figures except the counters of the database.
func (s *system) read(ctx context.Context) (r reading, err error) {
	if r.machine, err = timesOfMachine(); err != nil {
		return r, err
	}
	if r.usage, err = s.usages(); err != nil {
		return r, err
	}
	r.orchestrator = make(counters)
	for _, p := range s.orchestrators {
		m, err := scrape(ctx, p.found.Health)
		if err != nil {
			return r, err
		}
		for name, v := range m {
			r.orchestrator[name] += v
		}
	}
	if r.worker, err = scrape(ctx, s.worker.found.Health); err != nil {
		return r, err
	}
	if r.allocations, err = s.ask("allocations"); err != nil {
		return r, err
	}
	if r.allocated, err = s.ask("allocated"); err != nil {
		return r, err
	}
	if s.monitor != "" {
		if r.nats, err = readNATS(ctx, s.monitor); err != nil {
			return r, err
		}
	}
	r.at = time.Now()
	return r, nil
}

// ask gets a number from each process. It adds up those of several orchestrators.
func (s *system) ask(what string) (map[string]float64, error) {
	all := make(map[string]float64)
	for name, p := range s.services() {
		v, err := p.order(what)
		if err != nil {
			return nil, err
		}
		all[kindOf(name)] += float64(v)
	}
	return all, nil
}

// kindOf is the name of a process without its number.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// usages measures all processes.
func (s *system) usages() (map[string]usage, error) {
	all := make(map[string]usage)
	add := func(name string, u usage, err error) error {
		if err == nil {
			before := all[name]
			all[name] = usage{before.cpu + u.cpu, before.rss + u.rss}
		}
		return err
	}
	for name, p := range s.services() {
		u, err := usageOf(p.pid())
		if err := add(kindOf(name), u, err); err != nil {
			return nil, err
		}
	}
	u, err := usageOf(os.Getpid())
	if err := add("client", u, err); err != nil {
		return nil, err
	}
	if s.database.usage != nil {
		u, err := s.database.usage()
		if err := add("database", u, err); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ---- Metrics of the services.

// counters are the values of metrics, by their names with labels, as Prometheus writes them.
type counters map[string]float64

// scrape reads the metrics of a service.
func scrape(ctx context.Context, address string) (counters, error) {
	body, err := get(ctx, address+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseMetrics(body)
}

func get(ctx context.Context, address string) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", address, answer.Status)
		_ = answer.Body.Close() // it is not read
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return body{answer.Body, cancel}, nil
}

// body ends the request when it is closed.
type body struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// parseMetrics reads the text format of Prometheus: lines of a name, labels and a value.
func parseMetrics(from io.Reader) (counters, error) {
	all := make(counters)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		l := lines.Text()
		if l == "" || l[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(l, ' ')
		if at < 0 {
			return nil, fmt.Errorf("metrics: what is %q?", l)
		}
		v, err := strconv.ParseFloat(l[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", l, err)
		}
		all[l[:at]] = v
	}
	return all, lines.Err()
}

// sum adds up a metric over all its series, or over those with all the given labels, like
// outcome="stored".
func (c counters) sum(name string, having ...string) (total float64) {
	for key, v := range c {
		base, labels, _ := strings.Cut(key, "{")
		if base == name && !slices.ContainsFunc(having, func(h string) bool { return !strings.Contains(labels, h) }) {
			total += v
		}
	}
	return total
}

// ---- NATS.

// natsCounters are the counters of a NATS server.
type natsCounters struct {
	Version    string `json:"version"`
	InMessages int64  `json:"in_msgs"`
	InBytes    int64  `json:"in_bytes"`
	OutBytes   int64  `json:"out_bytes"`
	stored     int64  // messages that streams have stored, ever
}

func readNATS(ctx context.Context, address string) (n natsCounters, err error) {
	if err := getJSON(ctx, address+"/varz", &n); err != nil {
		return n, err
	}
	var streams struct {
		Accounts []struct {
			Streams []struct {
				Name  string `json:"name"`
				State struct {
					Last int64 `json:"last_seq"`
				} `json:"state"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := getJSON(ctx, address+"/jsz?accounts=true&streams=true", &streams); err != nil {
		return n, err
	}
	for _, a := range streams.Accounts {
		for _, s := range a.Streams {
			if !strings.HasPrefix(s.Name, "KV_") { // buckets list members; they have no work
				n.stored += s.State.Last
			}
		}
	}
	return n, nil
}

func getJSON(ctx context.Context, address string, into any) error {
	body, err := get(ctx, address)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}
