package main

import "testing"

// A printed command can be copied, whatever the id is.
func TestPositional(t *testing.T) {
	for id, want := range map[string]string{
		"order-1": "order-1", "a/b": "a/b", "a~1": "a~1",
		"~":      "'~'", // a home directory
		"~ann":   "'~ann'",
		"-x":     "-- -x", // a flag
		"--wait": "-- --wait",
		"- x":    "-- '- x'",
	} {
		if got := positional(id); got != want {
			t.Errorf("%q is printed as %s, want %s", id, got, want)
		}
	}
}
