// Command share runs a command whose tests share one PostgreSQL server. Without it, each test
// process starts a server of its own:
//
//	go run ./internal/pgtest/share go test ./...
//
// It starts the server, runs the command with [pgtest.SharedVariable] set, and ends the server when
// the command has ended, or when it itself is killed. It exits as the command does. Without
// PostgreSQL on this machine, or within another share, it only runs the command.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/rondo-run/rondo/internal/pgtest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: share COMMAND [ARGUMENT]...")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "share:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run runs the command, and gives its exit code.
func run(name string, args []string) (code int, err error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A signal from a terminal reaches the command, too, and ends it; the server ends after it.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if _, missing := pgtest.Found(); missing == nil && os.Getenv(pgtest.SharedVariable) == "" {
		server, dir, failed := pgtest.Share()
		if failed != nil {
			return 1, failed
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		cmd.Env = append(os.Environ(), pgtest.SharedVariable+"="+dir)
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // it may have ended
			}
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return max(exit.ExitCode(), 1), nil
			}
			return 0, err
		}
	}
}
