package historytest

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file keeps the tables of testdata/behaviours.txt true as far as a test can: every behaviour
// has its line, and each test that a line names exists. Whether a test really shows the behaviour,
// only a reader can check.

//go:embed testdata/behaviours.txt
var behaviours string

// sections are those that the tables must have, in this order, with the number of their lines.
var sections = []section{
	{"5.1", "atomicity", 4},
	{"5.2", "error_handling", 5},
	{"5.3", "instance_creation", 4},
	{"5.4", "instance_locking", 11},
	{"5.5", "lock_expiration", 13},
	{"5.6", "queue_semantics", 8},
	{"5.7", "multi_execution", 5},
	{"5.8", "cancellation", 16},
	{"5.9", "poison_message", 9},
	{"5.10", "long_polling", 5},
	{"5.11", "management", 12},
	{"5.12", "deletion", 13},
	{"5.13", "bulk_deletion", 4},
	{"5.14", "prune", 4},
	{"5.15", "capability_filtering", 20},
	{"5.16", "custom_status", 7},
	{"5.17", "kv_store", 35},
	{"5.18", "sessions", 33},
	{"5.19", "tag_filtering", 10},
	{"5.20", "race_replay", 10},
}

type section struct {
	number, name string
	lines        int
}

// places are the parts that may show a behaviour; "not" stands for none.
var places = []string{"store", "core", "bus", "worker", "orchestrator", "not"}

// known reports which tests exist, so that a line may name them.
type known struct {
	store func(name string) bool // a test of this suite
	core  func(name string) bool // a test function, or the file of a scenario
}

func TestTables(t *testing.T) {
	for _, problem := range checkTables(behaviours, sections, known{store: inSuite(), core: inCore(t)}) {
		t.Error(problem)
	}
}

// inSuite knows the tests of this suite.
func inSuite() func(string) bool {
	names := make(map[string]bool)
	for _, x := range tests() {
		names[x.name] = true
	}
	return func(name string) bool { return names[name] }
}

// inCore knows the tests of the pure packages and the scenarios of package round.
func inCore(t *testing.T) func(string) bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	names := make(map[string]bool)
	for _, dir := range []string{"events", "round", "orchestration", "activity", "rondotest"} {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("there are no tests in %s (%v)", dir, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = true
			}
		}
	}
	return func(name string) bool {
		if !strings.HasSuffix(name, ".txt") {
			return names[name]
		}
		files, err := filepath.Glob(filepath.Join("..", "..", "round", "testdata", name))
		return err == nil && len(files) > 0
	}
}

var (
	tableHeading = regexp.MustCompile(`^# (\d\S*) (.+)$`)
	tableLine    = regexp.MustCompile(`^\t(\S+(?: \S+)*) {2,}(\S.*)$`)
)

// checkTables lists the mistakes in tables.
func checkTables(tables string, want []section, known known) (bad []string) {
	var got []section
	var seen map[string]bool
	for line := range strings.Lines(tables) {
		line = strings.TrimRight(line, "\n")
		if m := tableHeading.FindStringSubmatch(line); m != nil {
			got = append(got, section{number: m[1], name: m[2]})
			seen = make(map[string]bool)
			continue
		}
		if len(got) == 0 || line == "" {
			continue
		}
		at := &got[len(got)-1]
		m := tableLine.FindStringSubmatch(line)
		if m == nil {
			bad = append(bad, fmt.Sprintf(
				"section %s: %q is no line of a table: write the name, two spaces or more, and who shows it",
				at.number, line))
			continue
		}
		if seen[m[1]] {
			bad = append(bad, fmt.Sprintf("section %s: %s stands there twice: keep one", at.number, m[1]))
		}
		seen[m[1]] = true
		at.lines++
		for _, problem := range checkShown(m[2], known) {
			bad = append(bad, fmt.Sprintf("section %s: %s: %s", at.number, m[1], problem))
		}
	}
	if !slices.Equal(got, want) {
		bad = append(bad, fmt.Sprintf("the sections and their lines are\n%v\nwant\n%v", got, want))
	}
	return bad
}

// checkShown lists the mistakes in the second column of a line: parts with a semicolon between
// them, each a place and its tests, or a sentence.
func checkShown(shown string, known known) (bad []string) {
	var seen []string
	for part := range strings.SplitSeq(shown, "; ") {
		place, text, _ := strings.Cut(part, ": ")
		switch {
		case !slices.Contains(places, place):
			bad = append(bad, fmt.Sprintf("%q is no place: there are %s", place, strings.Join(places, ", ")))
			continue
		case strings.TrimSpace(text) == "":
			bad = append(bad, fmt.Sprintf("say what stands behind %q", place))
			continue
		case slices.Contains(seen, place):
			bad = append(bad, fmt.Sprintf("name %q once, with all that is there", place))
		}
		seen = append(seen, place)
		exists := map[string]func(string) bool{"store": known.store, "core": known.core}[place]
		if exists == nil {
			continue // it is a sentence
		}
		for name := range strings.SplitSeq(text, ", ") {
			if !exists(name) {
				bad = append(bad, fmt.Sprintf("%s has no test %q", place, name))
			}
		}
	}
	return bad
}

// TestTablesAreChecked shows that the check finds each kind of mistake, and nothing else.
func TestTablesAreChecked(t *testing.T) {
	known := known{
		store: func(name string) bool { return name == "a/b" || name == "a/c" },
		core:  func(name string) bool { return name == "TestX" || name == "x.txt" },
	}
	want := []section{{"5.1", "a", 2}}
	cases := map[string]struct {
		comment string
		want    string // part of a problem; "" if there is none
	}{
		"as it should be": {"Package x.\n\n\tlegend  of it\n\n# 5.1 a\n\n\tb   store: a/b, a/c; bus: carries " +
			"it\n\tc d  core: TestX, x.txt\n", ""},
		"a reason":            {"# 5.1 a\n\n\tb  not: it is a table: not a list; core: x.txt\n\tc  worker: w\n", ""},
		"a line is missing":   {"# 5.1 a\n\n\tb  store: a/b\n", "want"},
		"a line too many":     {"# 5.1 a\n\n\tb  bus: x\n\tc  bus: x\n\td  bus: x\n", "want"},
		"the section is gone": {"Package x.\n", "want"},
		"another name":        {"# 5.1 b\n\n\tb  bus: x\n\tc  bus: x\n", "want"},
		"another section":     {"# 5.1 a\n\n\tb  bus: x\n\tc  bus: x\n\n# 5.2 b\n", "want"},
		"twice":               {"# 5.1 a\n\n\tb  bus: x\n\tb  bus: y\n", "twice"},
		"nobody":              {"# 5.1 a\n\n\tb  bus: x\n\tc  somebody: y\n", "no place"},
		"nothing":             {"# 5.1 a\n\n\tb  bus: x\n\tc  bus:\n", "no place"},
		"nothing but spaces":  {"# 5.1 a\n\n\tb  bus: x; worker:  ; not: y\n\tc  bus: y\n", "say what"},
		"unknown test":        {"# 5.1 a\n\n\tb  store: a/b, a/x\n\tc  bus: y\n", `store has no test "a/x"`},
		"unknown scenario":    {"# 5.1 a\n\n\tb  core: y.txt\n\tc  bus: y\n", `core has no test "y.txt"`},
		"a place twice":       {"# 5.1 a\n\n\tb  store: a/b; store: a/c\n\tc  bus: y\n", "once"},
		"no line":             {"# 5.1 a\n\n\tb store: a/b\n\tc  bus: y\n", "no line"},
		"prose":               {"# 5.1 a\n\nProse.\n\n\tb  bus: x\n\tc  bus: y\n", "no line"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checkTables(c.comment, want, known), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
