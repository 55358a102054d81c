package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestWhatIsWrittenCanBeRead(t *testing.T) {
	want := []*Result{
		{Workload: "W1", Variant: "128 in flight", throughput: throughput{N: 10, PerSecond: 5},
			resources: resources{CPU: map[string]float64{"worker": 0.5}},
			Figures:   map[string]float64{"x": 1}, machine: machine{Cores: 2, Go: "go1"}},
		{Workload: "W4", latencies: latencies{P50: 1.5}, comparison: comparison{Compared: "p50_ms"}},
	}
	var b bytes.Buffer
	for _, r := range want {
		if err := writeResult(&b, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readResults(strings.NewReader(b.String() + "\n"))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := readResults(strings.NewReader(b.String() + "what?\n")); err == nil ||
		!strings.Contains(err.Error(), "line 3") {
		t.Errorf("the third line is no result, and the error is %v", err)
	}
}

func TestTheRunInTheMiddleCounts(t *testing.T) {
	var runs []*Result
	for _, rate := range []float64{300, 100, 200} {
		runs = append(runs, &Result{throughput: throughput{PerSecond: rate}})
	}
	got := ofMiddle(runs)
	if got.PerSecond != 200 || got.Runs != 3 || got.Spread != 100 || len(got.All) != 3 {
		t.Errorf("got %+v", got)
	}
	if got := ofMiddle(runs[:1]); got.PerSecond != 300 || got.Spread != 0 || got.All != nil {
		t.Errorf("of one run: %+v", got)
	}
	var late []*Result
	for n, p99 := range []float64{3, 1, 2} {
		late = append(late, &Result{latencies: latencies{P99: p99}, comparison: comparison{Compared: "p99_ms"},
			throughput: throughput{PerSecond: float64(1 + n)}})
	}
	if got := ofMiddle(late); got.P99 != 2 {
		t.Errorf("by latency: %+v", got)
	}
	byX := comparison{Compared: "x"}
	own := []*Result{{comparison: byX, Figures: map[string]float64{"x": 2}},
		{comparison: byX, Figures: map[string]float64{"x": 9}}}
	if got := ofMiddle(own); got.Figures["x"] != 2 {
		t.Errorf("by a figure of its own: %+v", got)
	}
}

func TestTableOfResults(t *testing.T) {
	var b strings.Builder
	err := writeTable(&b, []*Result{
		{
			Workload: "W1", Variant: "128 in flight", Database: "postgres",
			throughput:     throughput{N: 2000, PerSecond: 1234.56},
			latencies:      latencies{P50: 1.23456, P99: 123.456},
			commitCounts:   commitCounts{Commits: 100},
			databaseCounts: databaseCounts{Rows: 10_000},
			natsTraffic:    natsTraffic{Messages: 6000, NATSBytes: 4_000_000},
			resources: resources{CPU: map[string]float64{"orchestrator": 0.25, "database": 0.5},
				RSS: map[string]float64{"worker": 40}, Own: 90, Busy: 95.5},
			allocations: allocations{Allocations: map[string]float64{"orchestrator": 200_000, "worker": 100_000}},
			conditions:  conditions{Sync: 0.2, Switch: 63},
			comparison:  comparison{Spread: 3},
		},
		{Workload: "W9", Variant: "orchestrator killed",
			Figures: map[string]float64{"ready_seconds": 0.5, "first_seconds": 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := []string{
		"| W1 | 128 in flight | postgres | 2000 | 1235 | 1.23 | 123 | 0.25 |  | 0.5 |  |  |  | 40 |  |  | 0.05 | 5 " +
			"| 3 | 2 | 150 | 0.2 | 63 | 90 | 95.5 | 3 |  |",
		"| W9 | orchestrator killed |  | 0 |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  |  | " +
			"first_seconds 0, ready_seconds 0.5 |",
	}
	if len(lines) != 4 || lines[2] != want[0] || lines[3] != want[1] {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines[2:], "\n"), strings.Join(want, "\n"))
	}
	for _, l := range lines {
		if strings.Count(l, "|") != strings.Count(lines[0], "|") {
			t.Errorf("%q has %d bars, the head %d", l, strings.Count(l, "|"), strings.Count(lines[0], "|"))
		}
	}
}

func TestMetricsAreRead(t *testing.T) {
	c, err := parseMetrics(strings.NewReader(`# HELP rondo_turns_total Turns.
# TYPE rondo_turns_total counter
rondo_turns_total{otel_scope_name="rondo",outcome="committed"} 7
rondo_turns_total{otel_scope_name="rondo",outcome="conflict"} 2
rondo_turns_total_not 100
rondo_commit_events_sum 1.5e+03
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		got, want float64
	}{
		{c.sum("rondo_turns_total"), 9}, {c.sum("rondo_turns_total", `outcome="conflict"`), 2},
		{c.sum("rondo_commit_events_sum"), 1500}, {c.sum("nothing"), 0},
	} {
		if x.got != x.want {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
	for _, bad := range []string{"word", "name value"} {
		if _, err := parseMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
