// Package seedtest chooses the seeds of random tests, and keeps those that failed.
//
// With -short a test plays the same seeds each time, so that `make test` does not depend on chance.
// Otherwise it draws fresh ones. Where RONDO_TEST_LEDGER is set, as `make deep` does, a seed that
// fails is written into a ledger in the package under test, such as pkg/round/testdata/seeds.txt,
// and each run plays it from then on.
package seedtest

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// ledgerVariable has seeds that fail written into the ledger.
const ledgerVariable = "RONDO_TEST_LEDGER"

// writing guards the ledger.
var writing sync.Mutex

// Draw returns a seed for a test: with -short the same one each time. If the test fails, its log
// has the seed, and so has the ledger.
func Draw(tb testing.TB) uint64 {
	tb.Helper()
	seed := fixed(tb.Name())
	if !testing.Short() {
		seed = max(1, rand.Uint64()>>1)
	}
	tb.Logf("the seed is %d", seed)
	Keep(tb, tb.Name(), seed)
	return seed
}

// fixed is a seed that follows from a name.
func fixed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return max(1, h.Sum64()>>1)
}

// Keep writes a seed into the ledger if tb fails. The test is the name under which [Kept] returns
// the seed.
func Keep(tb testing.TB, test string, seed uint64) {
	tb.Helper()
	if os.Getenv(ledgerVariable) == "" {
		return
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			Note(tb, test, seed)
		}
	})
}

// Note writes a seed that has failed into the ledger.
func Note(tb testing.TB, test string, seed uint64) {
	tb.Helper()
	if os.Getenv(ledgerVariable) == "" {
		return
	}
	if err := write(ledger(), test, seed); err != nil {
		tb.Errorf("the seed %d is not in the ledger: %v", seed, err)
	}
}

// Kept returns the seeds with which a test has failed before.
func Kept(tb testing.TB, test string) []uint64 {
	tb.Helper()
	seeds, err := read(ledger(), test)
	if err != nil {
		tb.Fatal(err)
	}
	return seeds
}

// ledger is the file of the package under test: go test runs a test in its package's directory.
func ledger() string { return filepath.Join("testdata", "seeds.txt") }

// read reads the seeds of a test from a ledger. A line has the name of a test and a seed; the rest
// is a comment.
func read(path, test string) (seeds []uint64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if line := lines.Text(); line == "" || line[0] == '#' {
			continue
		}
		var name string
		var seed uint64
		if _, err := fmt.Sscan(lines.Text(), &name, &seed); err != nil {
			return nil, fmt.Errorf("%s:%d: want the name of a test and a seed: %w", path, n, err)
		}
		if name == test {
			seeds = append(seeds, seed)
		}
	}
	return seeds, lines.Err()
}

// write adds a seed to a ledger, unless the ledger has it.
func write(path, test string, seed uint64) (err error) {
	writing.Lock()
	defer writing.Unlock()
	kept, err := read(path, test)
	if err != nil {
		return err
	}
	for _, k := range kept {
		if k == seed {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = fmt.Fprintf(f, "%s %d\n", test, seed)
	return err
}
