package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// flaky runs the tests that differ from a branch many times, with the race detector, with one
// processor and with four, beside other work on all processors.
func flaky(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gate flaky", flag.ContinueOnError)
	base := flags.String("base", "main", "the branch to compare with")
	count := flags.Int("count", 30, "how often each test runs")
	load := flags.Int("load", 2, "how many processes keep the machine busy meanwhile")
	race := flags.String("race", "", "the flags of the race detector, as one word")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := changesSince(ctx, *base)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "flaky-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a system cleans its temporary files, too
	busy, stop := context.WithCancel(ctx)
	defer stop()
	for range *load {
		// the other work ends by itself, should this process be killed
		c := exec.CommandContext(busy, "timeout", "3600", "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			return err
		}
		defer func() { stop(); _ = c.Wait() }() // it was killed
	}
	failed, found := false, false
	for _, pkg := range c.packages() {
		tests, err := c.testsOf(pkg)
		if err != nil {
			return err
		}
		if len(tests) == 0 {
			continue
		}
		found = true
		ok, err := repeat(ctx, dir, pkg, tests, *count, strings.Fields(*race))
		if err != nil {
			return err
		}
		failed = failed || !ok
	}
	switch {
	case failed:
		return errFailed
	case !found:
		fmt.Printf("no test differs from %s\n", *base)
	}
	return nil
}

// repeat runs tests of a package, and prints how that went.
func repeat(ctx context.Context, dir, pkg string, tests []string, count int, race []string) (ok bool, err error) {
	module := moduleOf(pkg)
	binary := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".test")
	rel, err := filepath.Rel(module, pkg)
	if err != nil {
		return false, err
	}
	build := exec.CommandContext(ctx, "go", append(append([]string{"-C", module, "test", "-c", "-o", binary}, race...),
		"./"+rel)...)
	if out, err := build.CombinedOutput(); err != nil {
		return false, fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return true, nil // no file of the package is for this system
	}
	ok = true
	for _, processors := range []int{1, 4} {
		c := exec.CommandContext(ctx, binary, "-test.run=^("+strings.Join(tests, "|")+")$",
			"-test.count="+strconv.Itoa(count), "-test.failfast", "-test.timeout=1h", "-test.short")
		c.Dir, c.Env = pkg, append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(processors))
		out, err := c.CombinedOutput()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			ok = false
			fmt.Printf("%s", out)
		}
		fmt.Printf("%s: %d runs with GOMAXPROCS=%d of %s: %s\n", pkg, count, processors, strings.Join(tests, " "),
			map[bool]string{true: "ok", false: "FAILED"}[err == nil])
	}
	return ok, nil
}

// moduleOf returns the directory of the module that a package belongs to.
func moduleOf(pkg string) string {
	for dir := filepath.Clean(pkg); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == "." {
			return dir
		}
	}
}
