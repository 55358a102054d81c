package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// printTable prints the results in files as readable tables.
func printTable(w io.Writer, files []string) error {
	if len(files) == 0 {
		return errors.New("of which file? bench table results.jsonl")
	}
	var all []*Result
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		list, err := readResults(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, list...)
	}
	return writeTable(w, all)
}

// processes are the columns for the resources of each process.
var processes = []string{"orchestrator", "worker", "database", "nats", "client"}

// writeTable writes results as a Markdown table.
func writeTable(w io.Writer, all []*Result) error {
	head := []string{"workload", "variant", "database", "n", "per second", "p50 ms", "p99 ms", "CPU ms: orchestrator",
		"worker", "database", "NATS", "client",
		"RSS MB: orchestrator", "worker", "database", "NATS", "commits", "rows", "messages", "KB", "allocations",
		"sync ms", "switch ns", "own %", "busy %", "spread %", "figures"}
	var b strings.Builder
	row := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(head)
	row(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range all {
		each := func(v float64) string { return number(v / float64(max(1, r.N))) }
		cells := []string{r.Workload, r.Variant, r.Database, strconv.Itoa(r.N), number(r.PerSecond), number(r.P50),
			number(r.P99)}
		for _, p := range processes {
			cells = append(cells, number(r.CPU[p]))
		}
		for _, p := range processes[:4] {
			cells = append(cells, number(r.RSS[p]))
		}
		cells = append(cells, each(r.Commits), each(float64(r.Rows)), each(float64(r.Messages)),
			each(float64(r.NATSBytes)/1000),
			each(r.Allocations["orchestrator"]+r.Allocations["worker"]), number(r.Sync), number(float64(r.Switch)),
			number(r.Own), number(r.Busy), number(r.Spread), figures(r.Figures))
		row(cells)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number writes a number with three significant digits; nothing for a figure that was not measured.
func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v >= 100 || v <= -100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// figures writes the figures that only some workloads have.
func figures(all map[string]float64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+" "+cmp.Or(number(all[name]), "0"))
	}
	return strings.Join(list, ", ")
}

// inShort is a result in a line.
func (r *Result) inShort() string {
	var list []string
	add := func(v float64, unit string) {
		if v != 0 {
			list = append(list, number(v)+" "+unit)
		}
	}
	add(r.PerSecond, r.Unit+"/s")
	add(r.P50, "ms p50")
	add(r.P99, "ms p99")
	total := 0.0
	for _, v := range r.CPU {
		total += v
	}
	add(total, "ms CPU each")
	if f := figures(r.Figures); f != "" {
		list = append(list, f)
	}
	return strings.Join(list, ", ")
}
