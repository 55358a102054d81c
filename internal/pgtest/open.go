package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// This file is for programs that are not tests, such as benchmarks: the same servers, with methods
// that return errors.

// Open starts a server for a program. It waits for the disk, unless [Fsync] says otherwise, and
// ends with [Cluster.Close], or with the process.
func Open(opts ...Option) (*Cluster, error) {
	o := options{fsync: true}
	for _, opt := range opts {
		opt(&o)
	}
	s, err := startServer(o)
	if err != nil {
		return nil, err
	}
	return &Cluster{s}, nil
}

// Close ends the server and removes its data.
func (c *Cluster) Close() error { return c.end() }

// Crash is [Cluster.Kill], and Revive [Cluster.Restart], for programs.
func (c *Cluster) Crash() error  { return c.kill() }
func (c *Cluster) Revive() error { return c.restart() }

// PID is the server's first process, which has started all others.
func (c *Cluster) PID() (int, error) {
	path := filepath.Join(c.Data(), pidFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return pid, nil
}
