package tidy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWatchedTestsExist looks up the tests that the race detector watches, as the Makefile says:
// after a rename, it would silently watch one less.
func TestWatchedTestsExist(t *testing.T) {
	makefile, err := readFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOf(tree(t), nil)
	maps.DeleteFunc(tests, func(_ string, dirs []string) bool {
		return !slices.ContainsFunc(dirs, func(dir string) bool {
			return dir == "integration" || dir == "internal/broker/nats" || dir == "services/jobs"
		})
	})
	report(t, checkWatched(string(makefile), slices.Sorted(maps.Keys(tests))))
}

var watchedLine = regexp.MustCompile(`(?m)^WATCHED := (?:\$\(WATCHED\)\|)?(.+)$`)

// checkWatched lists the parts of the Makefile's regular expression that match no test.
func checkWatched(makefile string, tests []string) (problems []string) {
	lines := watchedLine.FindAllStringSubmatch(makefile, -1)
	if len(lines) == 0 {
		return []string{"Makefile: nothing says which tests the race detector watches"}
	}
	for _, line := range lines {
		for part := range strings.SplitSeq(strings.ReplaceAll(line[1], "$$", "$"), "|") {
			if part == "" || !slices.ContainsFunc(tests, regexp.MustCompile(part).MatchString) {
				problems = append(problems, fmt.Sprintf("Makefile: WATCHED has %q, which matches no test", part))
			}
		}
	}
	return problems
}

func TestWatchedIsChecked(t *testing.T) {
	tests := []string{"TestConformance", "TestShutdownUnderLoad"}
	const good = "WATCHED := Conformance$$\nWATCHED := $(WATCHED)|Shutdown\n"
	if problems := checkWatched(good, tests); problems != nil {
		t.Error(problems)
	}
	for _, bad := range []string{"", "WATCHED := Gone", "WATCHED := Shutdown$$", "WATCHED := Shutdown||Conformance"} {
		if problems := checkWatched(bad, tests); len(problems) != 1 {
			t.Errorf("%q: %q, want one problem", bad, problems)
		}
	}
}
