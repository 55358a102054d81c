// Package racetest tells tests whether the race detector watches them. It makes Go code five to ten
// times slower, and what is about size or about many faults one after the other shows it nothing
// new. Such a test does less with it; `make test` runs those whose name says so once more without
// it, in full: see FULL_STORES and FULL_OTHERS in the Makefile.
package racetest

import "testing"

// Size is how much a test does: less with the race detector, or when time is short.
func Size(normal, less int) int {
	if On || testing.Short() {
		return less
	}
	return normal
}

// TooMuch skips a test with the race detector. The test does nothing at the same time as something
// else that another test does not do, too.
func TooMuch(tb testing.TB) {
	tb.Helper()
	if On {
		tb.Skip("too much for the race detector; `make test` runs it without")
	}
}
