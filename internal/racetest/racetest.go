// Package racetest scales tests. The race detector makes Go code five to ten times slower, and
// tests of size, or of many faults one after the other, show it nothing new. Such a test does less
// with it; `make test-all`, a step of `make deep`, runs those whose name says so once more without
// it, in full: see FULL_STORES and FULL_OTHERS in the Makefile. `make test` and `make quick` run
// all tests with -short, which makes them do less still.
package racetest

import "testing"

// Size returns the amount of a test's work: less with the race detector, or when time is short.
func Size(normal, less int) int {
	if On || testing.Short() {
		return less
	}
	return normal
}

// Short returns the amount of work of a test that does the same with the race detector and without:
// less when time is short.
func Short(normal, less int) int {
	if testing.Short() {
		return less
	}
	return normal
}

// TooMuch skips a test with the race detector. All that the test does concurrently, another test
// does, too.
func TooMuch(tb testing.TB) {
	tb.Helper()
	if On {
		tb.Skip("too much for the race detector; `make test-all` runs it without")
	}
}
