package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// test runs each argument, a go test command, some at the same time. It prints one line when a
// package passes, and the output of the failed tests when it fails.
func test(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gate test", flag.ContinueOnError)
	top := flags.Int("top", 10, "how many packages the table has")
	atOnce := flags.Int("j", 3, "how many commands run at the same time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &report{out: os.Stdout}
	began := time.Now()
	w := watch(os.Getpid())
	var failed sync.Map
	var all sync.WaitGroup
	slots := make(chan struct{}, max(1, *atOnce))
	for _, command := range flags.Args() {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := r.run(ctx, strings.Fields(command)); err != nil {
				failed.Store(command, err)
			}
		})
	}
	all.Wait()
	r.spent(w.end())
	r.table(*top, time.Since(began))
	result := error(nil)
	for command, err := range failed.Range {
		fmt.Printf("FAILED: %v: %.300s\n", err, command)
		result = errFailed
	}
	return result
}

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// packageRun is a run of a package's tests. Two commands may run different tests of one package.
type packageRun struct {
	name   string
	wall   time.Duration
	cpu    time.Duration
	failed bool
	// output has the lines of the tests that have not passed, by test; "" is the package itself.
	output map[string][]string
	order  []string // of the tests in output
}

// report collects the events of all commands. It is safe for concurrent use.
type report struct {
	out io.Writer

	mu       sync.Mutex
	runs     []*packageRun
	compiled time.Duration // CPU time that is not of tests
}

// run runs a go test command, with -json.
func (r *report) run(ctx context.Context, words []string) error {
	at := slices.Index(words, "test")
	if at < 0 {
		return errors.New("want a go test command")
	}
	words = slices.Insert(slices.Clone(words), at+1, "-json")
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	runs := make(map[string]*packageRun)
	for lines.Scan() {
		r.line(runs, lines.Bytes())
	}
	return errors.Join(lines.Err(), c.Wait())
}

// line takes a line of output of a command with these runs, by package.
func (r *report) line(runs map[string]*packageRun, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprintf(r.out, "%s\n", line)
		return
	}
	if e.Action == "build-output" {
		fmt.Fprint(r.out, e.Output)
	}
	if e.Package == "" {
		return
	}
	p := runs[e.Package]
	if p == nil {
		p = &packageRun{name: e.Package, output: make(map[string][]string)}
		runs[e.Package] = p
		r.runs = append(r.runs, p)
	}
	p.take(e, r.out)
}

// packages returns one run for each package: the longest of its runs, which has failed if one of
// them has. mu is held.
func (r *report) packages() []*packageRun {
	byName := make(map[string]*packageRun)
	for _, run := range r.runs {
		p := byName[run.name]
		if p == nil {
			p = &packageRun{name: run.name}
			byName[run.name] = p
		}
		p.wall = max(p.wall, run.wall)
		p.cpu += run.cpu
		p.failed = p.failed || run.failed
	}
	return slices.Collect(maps.Values(byName))
}

// take takes an event, and prints the summary of a package.
func (p *packageRun) take(e event, out io.Writer) {
	switch {
	case e.Action == "output" && e.Test == "" && isSummary(e.Output):
		fmt.Fprint(out, e.Output)
	case e.Action == "output":
		p.keep(e.Test, e.Output)
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
		// go test attributes all output of the process to the test that it named last. That test
		// may have ended: the stacks after a SIGQUIT come between its last line and its event.
		later := afterEnd(p.output[e.Test])
		delete(p.output, e.Test)
		p.keep("", later...)
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		p.wall = time.Duration(e.Elapsed * float64(time.Second))
		if p.failed = e.Action == "fail"; p.failed {
			for _, name := range slices.Compact(p.order) {
				fmt.Fprint(out, strings.Join(p.output[name], ""))
			}
			fmt.Fprintf(out, "FAIL\t%s\t%.3fs\n", p.name, e.Elapsed)
		}
		p.output, p.order = nil, nil
	}
}

// keep adds lines to the output of a test.
func (p *packageRun) keep(test string, lines ...string) {
	if len(lines) == 0 {
		return
	}
	if _, known := p.output[test]; !known {
		p.order = append(p.order, test)
	}
	p.output[test] = append(p.output[test], lines...)
}

// afterEnd returns the lines of a test after the one that says how it ended.
func afterEnd(lines []string) []string {
	end := slices.IndexFunc(lines, func(line string) bool {
		line = strings.TrimLeft(line, " ")
		return strings.HasPrefix(line, "--- PASS: ") || strings.HasPrefix(line, "--- SKIP: ")
	})
	if end < 0 {
		return nil
	}
	return lines[end+1:]
}

// isSummary reports whether a line of a package says how the package ended well. That of a failed
// one comes after the output of its tests.
func isSummary(line string) bool { return strings.HasPrefix(line, "ok  \t") }

// spent takes the CPU time of test binaries, by the end of their directory.
func (r *report) spent(byDir map[string]time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := time.Duration(0)
	for dir, cpu := range byDir {
		all += cpu
		var best *packageRun // the one with the longest common end
		for _, p := range r.runs {
			if common(p.name, dir) > 0 && (best == nil || common(p.name, dir) > common(best.name, dir)) {
				best = p
			}
		}
		if best != nil {
			best.cpu += cpu
		}
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) == nil {
		r.compiled = max(0, time.Duration(used.Utime.Nano()+used.Stime.Nano())-all)
	}
}

// common returns how many of the last elements of two paths are the same.
func common(a, b string) (n int) {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	for n < len(x) && n < len(y) && x[len(x)-1-n] == y[len(y)-1-n] {
		n++
	}
	return n
}

// table prints the most expensive packages, and all that failed.
func (r *report) table(top int, wall time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.packages()
	slices.SortFunc(all, func(a, b *packageRun) int {
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.wall, a.wall), cmp.Compare(a.name, b.name))
	})
	tests, failed := time.Duration(0), 0
	for _, p := range all {
		tests += p.cpu
		if p.failed {
			failed++
		}
	}
	fmt.Fprintln(r.out, "\n   CPU s  wall s  the most expensive packages")
	for _, p := range all[:min(top, len(all))] {
		fmt.Fprintf(r.out, "%8.1f%8.1f  %s\n", p.cpu.Seconds(), p.wall.Seconds(), p.name)
	}
	fmt.Fprintf(r.out, "%8.1f%8.1f  all tests, and %.1f s of CPU time to compile them\n", tests.Seconds(),
		wall.Seconds(), r.compiled.Seconds())
	for _, p := range all {
		if p.failed {
			fmt.Fprintf(r.out, "FAILED: %s\n", p.name)
		}
	}
	fmt.Fprintf(r.out, "packages: %d passed, %d failed\n", len(all)-failed, failed)
}
