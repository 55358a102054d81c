package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/query"
)

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

// More instances than one deletion takes are refused before the command connects.
func TestDeleteNamesNotTooMany(t *testing.T) {
	c := &cli{printer: printer{now: time.Now}}
	cmd := removeCommands{c}.delete()
	cmd.SetArgs(slices.Repeat([]string{"a"}, query.MaxIDs+1))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "name at most 1000, as with xargs -n 1000") {
		t.Errorf("got %v", err)
	}
}
