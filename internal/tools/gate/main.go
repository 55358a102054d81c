// Command gate runs the commands that a change passes before it goes in, and prints how they went.
//
//	gate test 'go test -short ./...' …     runs go test, a line a package, and a table of the most expensive
//	gate steps [-from NAME] NAME=COMMAND…  runs all commands, also after a failure, and a table of them
//	gate changed [-base REF]               lists the packages and tests that differ from a branch
//	gate flaky [-base REF]                 runs these tests many times, beside load
//
// The Makefile calls it. Its exit status is 1 if a command failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// errFailed means that a command failed and that its failure is printed.
var errFailed = errors.New("a command failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{
		"test": test, "steps": steps, "changed": changed, "flaky": flaky,
	}
	var run func(context.Context, []string) error
	if len(os.Args) > 1 {
		run = commands[os.Args[1]]
	}
	if run == nil {
		fmt.Fprintln(os.Stderr, "gate: want one of the commands test, steps, changed and flaky")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[2:]); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "gate:", err)
		}
		os.Exit(1)
	}
}
