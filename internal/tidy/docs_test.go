package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file keeps the documents true as far as a test can: docs/feature-table.md has every row
// once, says in one of four ways how things stand, and names only tests that exist.

const (
	featureTable = "docs/feature-table.md"
	scenarios    = "pkg/round/testdata"
	storeSuite   = "pkg/history/historytest"
)

// columns are those of all tables of the feature table.
var columns = []string{"row", "what it is", "here", "shown by"}

// needed are the rows that must be there: ranges of ids, and the shapes of races, which have names.
// There may be others.
var needed = slices.Concat(ids("O", 1, 87), ids("E", 1, 28), ids("W", 1, 12), ids("X", 1, 4), ids("C", 1, 26),
	ids("R", 1, 45), ids("P", 1, 15), ids("G", 1, 15), ids("T", 1, 40), []string{
		"orchestration_delayed_abandon_preserves_unlocked_rows",
		"duplicate_start_preserves_pinned_handler",
		"continue_as_new_unregistered_backoff",
		"continue_as_new_duplicate_start",
		"continue_as_new_transition_delivery, queue",
		"continue_as_new_transition_delivery, race",
		"continue_as_new_transition_delivery, mixed stale",
		"continue_as_new_transition_delivery, signal",
		"continue_as_new_transition_delivery, cancel",
		"continue_as_new_transition_delivery, future completion",
		"continue_as_new_transition_delivery, stale only",
		"queue_race_cancellation_replay",
		"continue_as_new_queue_race_replay",
		"queue_replay_version_stamp_roundtrip",
		"positional_wait_race_replay",
		"legacy_queue_race_decision_preserved",
	})

// parts are the parts of Rondo that something can be left to.
var parts = []string{"bus", "worker", "orchestrator service", "client", "command line"}

// nothing stands in a cell that would be empty.
const nothing = "–"

func ids(letter string, from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, letter+strconv.Itoa(i))
	}
	return out
}

func TestFeatureTable(t *testing.T) {
	text, err := readFile(featureTable)
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkFeatureTable(string(text), testsOf(tree(t), scenarioNames(t)), needed))
}

// featureRow is one row of the feature table.
type featureRow struct {
	line                    int
	id, what, here, shownBy string
}

func (r featureRow) at() string { return featureTable + ":" + strconv.Itoa(r.line) + ": row " + r.id }

// checkFeatureTable lists what is wrong with the table.
func checkFeatureTable(text string, tests map[string][]string, needed []string) []string {
	rows, bad := featureRows(text)
	first := make(map[string]featureRow)
	for _, r := range rows {
		if before, twice := first[r.id]; twice {
			bad = append(bad, fmt.Sprintf("%s stands in line %d already: keep one", r.at(), before.line))
			continue
		}
		first[r.id] = r
		bad = append(bad, checkFeatureRow(r, tests)...)
	}
	for _, id := range needed {
		if _, ok := first[id]; !ok {
			bad = append(bad, fmt.Sprintf("%s: row %s is missing: say how it stands", featureTable, id))
		}
	}
	return bad
}

// featureRows reads the tables.
func featureRows(text string) (rows []featureRow, bad []string) {
	inTable, number := false, 0
	for line := range strings.Lines(text) {
		number++
		inner, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok {
			inTable = false
			continue
		}
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) != len(columns):
			bad = append(bad, fmt.Sprintf("%s:%d: the row has %d cells, want %d: %s", featureTable, number, len(cells),
				len(columns), strings.Join(columns, ", ")))
		case slices.Contains(cells, ""):
			bad = append(bad, fmt.Sprintf("%s:%d: a cell is empty: write %s if there is nothing", featureTable,
				number, nothing))
		case !inTable && !slices.Equal(cells, columns):
			bad = append(bad, fmt.Sprintf("%s:%d: the columns are %q, want %q", featureTable, number, cells, columns))
		case !inTable, strings.Trim(strings.Join(cells, ""), "-:") == "":
		default:
			rows = append(rows, featureRow{number, cells[0], cells[1], cells[2], cells[3]})
		}
		inTable = true
	}
	return rows, bad
}

// checkFeatureRow lists what is wrong with a row, its id aside.
func checkFeatureRow(r featureRow, tests map[string][]string) []string {
	var bad []string
	form, reason, _ := strings.Cut(r.here, ": ")
	switch {
	case r.here == "works":
	case (form == "better" || form == "not") && reason != "":
	case form == "later" && slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(reason, p) }):
	case form == "later":
		bad = append(bad, fmt.Sprintf("%s is left to %q: begin with one of %s", r.at(), reason,
			strings.Join(parts, ", ")))
	default:
		bad = append(bad, fmt.Sprintf(`%s says %q: want "works", "better: …", "not: …" or "later: …"`, r.at(), r.here))
	}
	if r.shownBy == nothing {
		if form == "works" || form == "better" {
			bad = append(bad, r.at()+" is shown by nothing: name a test that shows it, or say that there is none")
		}
		return bad
	}
	for name := range strings.SplitSeq(r.shownBy, ", ") {
		test, ok := strings.CutPrefix(name, "`")
		test, closed := strings.CutSuffix(test, "`")
		switch dirs := tests[test]; {
		case !ok || !closed:
			bad = append(bad, fmt.Sprintf("%s names %s: write tests in backquotes, with commas between them",
				r.at(), name))
		case len(dirs) == 0:
			bad = append(bad, fmt.Sprintf("%s names the test %s, which does not exist", r.at(), test))
		case len(dirs) > 1:
			bad = append(bad, fmt.Sprintf("%s names the test %s, which %s all have: write the package before it",
				r.at(), test, strings.Join(dirs, ", ")))
		}
	}
	return bad
}

var testName = regexp.MustCompile(`^(Test|Example|Fuzz)([^a-z].*)?$`)

// testsOf finds all tests, by their names and by their names with the package before it, and tells
// the directories they are in.
func testsOf(files []*source, scenarios []string) map[string][]string {
	tests := make(map[string][]string)
	for _, f := range files {
		if !f.test {
			continue
		}
		for _, d := range f.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !testName.MatchString(fn.Name.Name) || fn.Name.Name == "TestMain" {
				continue
			}
			for _, name := range []string{fn.Name.Name, path.Base(f.dir) + "." + fn.Name.Name} {
				if !slices.Contains(tests[name], f.dir) {
					tests[name] = append(tests[name], f.dir)
				}
			}
		}
	}
	for _, s := range scenarios {
		tests["TestScenarios/"+s] = tests["TestScenarios"]
	}
	if len(tests["TestConformance"]) > 0 { // whoever has one runs the same
		for _, s := range suiteNames(files) {
			tests["TestConformance/"+s] = []string{storeSuite}
		}
	}
	return tests
}

var suiteTest = regexp.MustCompile(`(?m)^\t\{"(\w+/\w+)", \w+\},$`)

// suiteNames finds the tests of the store's suite, which stand in lists with their functions behind
// them. Each store runs them as subtests of a test.
func suiteNames(files []*source) []string {
	var names []string
	for _, f := range files {
		if f.dir != storeSuite || f.test {
			continue
		}
		for _, m := range suiteTest.FindAllStringSubmatch(f.text, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

func scenarioNames(t *testing.T) []string {
	t.Helper()
	files, err := os.ReadDir(inRoot(scenarios))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".txt"); ok {
			names = append(names, name)
		}
	}
	return names
}

// TestFeatureTableChecksNotice makes sure that the checks find what they are there to find, and
// nothing else.
func TestFeatureTableChecksNotice(t *testing.T) {
	var files []*source
	for name, src := range map[string]string{
		"pkg/round/a_test.go": `package round; func TestScenarios() {}; func TestBoth() {}; func TestMain() {}; func Testimony() {}; func (x) TestMethod() {}`,
		"pkg/other/b_test.go": `package other_test; func TestBoth() {}; func Example() {}; func FuzzIt() {}; func helper() {}; func TestConformance() {}`,
		"pkg/other/b.go":      `package other; func TestNot() {}`,

		"pkg/store/c_test.go": `package store; func TestConformance() {}`,
		"pkg/history/historytest/d.go": "package historytest; var tests = []test{\n\t{\"sums/add_up\", " +
			"addUp},\n\t// {\"sums/gone\", gone},\n\t{\"whole\", whole},\n}\n",
		"pkg/history/historytest/d_test.go": "package historytest\n" +
			"var tests = []test{\n\t{\"sums/of_a_test\", x},\n}\n",
		"pkg/history/historytest/sub/d.go": "package sub; var tests = []test{\n\t{\"sums/elsewhere\", x},\n}\n",
	} {
		f, err := parse(name, src)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	tests := testsOf(files, []string{"child_fails"})
	if got, want := slices.Sorted(maps.Keys(tests)),
		"Example FuzzIt TestBoth TestConformance TestConformance/sums/add_up TestScenarios TestScenarios/child_fails "+
			"other.Example other.FuzzIt other.TestBoth other.TestConformance round.TestBoth round.TestScenarios "+
			"store.TestConformance"; strings.Join(got, " ") != want {
		t.Errorf("the tests are %q, want %q", got, want)
	}

	const head = "# Title\n\n| row | what it is | here | shown by |\n| --- | --- | --- | --- |\n"
	row := func(here, by string) string { return head + "| O1 | a thing | " + here + " | " + by + " |\n" }
	cases := []struct {
		name, text, want string // part of the problem; "" if there is none
	}{
		{"works", row("works", "`TestScenarios/child_fails`"), ""},
		{"better", row("better: it is: faster", "`round.TestBoth`, `other.TestBoth`, `FuzzIt`"), ""},
		{"not", row("not: nobody needs it", nothing), ""},
		{"not, with a test", row("not: the last part is missing", "`Example`"), ""},
		{"later", row("later: orchestrator service; the core does its part", "`TestScenarios`"), ""},
		{"other rows", head + "| O1 | a | works | `FuzzIt` |\n| Z9 | b | works | `FuzzIt` |\n", ""},
		{"two tables", row("works", "`FuzzIt`") + "\nText.\n\n" + strings.ReplaceAll(row("works", "`FuzzIt`"),
			"O1", "O2"), ""},
		{"missing", head, "row O1 is missing"},
		{"twice", row("works", "`FuzzIt`") + "| O1 | again | works | `FuzzIt` |\n", "row O1 stands in line 5 already"},
		{"twice in two tables", row("works", "`FuzzIt`") + "\n" + row("works", "`FuzzIt`"), "stands in line 5 already"},
		{"works, but", row("works, mostly", "`FuzzIt`"), `want "works"`},
		{"works with a reason", row("works: well", "`FuzzIt`"), `want "works"`},
		{"better without saying how", row("better", "`FuzzIt`"), `want "works"`},
		{"better with nothing behind it", row("better: ", "`FuzzIt`"), `want "works"`},
		{"not without a reason", row("not", nothing), `want "works"`},
		{"later, by nobody", row("later: some day", nothing), "begin with one of bus, worker"},
		{"later, by a part that is there", row("later: store", nothing), "begin with one of bus, worker"},
		{"works, but nothing shows it", row("works", nothing), "is shown by nothing"},
		{"better, but nothing shows it", row("better: faster", nothing), "is shown by nothing"},
		{"test that does not exist", row("works", "`TestNot`"), "which does not exist"},
		{"scenario that does not exist", row("works", "`TestScenarios/nobody`"),
			"TestScenarios/nobody, which does not exist"},
		{"test of the store's suite", row("works", "`TestConformance/sums/add_up`, `store.TestConformance`"), ""},
		{"test of the store's suite that does not exist", row("works", "`TestConformance/sums/nobody`"),
			"TestConformance/sums/nobody, which does not exist"},
		{"section of the store's suite", row("works", "`TestConformance/sums`"),
			"TestConformance/sums, which does not exist"},
		{"one of two does not exist", row("works", "`FuzzIt`, `TestNot`"), "TestNot, which does not exist"},
		{"test of several packages", row("works", "`TestBoth`"), "write the package before it"},
		{"test without backquotes", row("works", "FuzzIt"), "in backquotes"},
		{"tests without a comma", row("works", "`FuzzIt` `Example`"), "does not exist"},
		{"empty cell", row("works", ""), "a cell is empty"},
		{"missing cell", head + "| O1 | a thing | works |\n", "3 cells, want 4"},
		{"stroke in a cell", row("better: a | b", "`FuzzIt`"), "5 cells, want 4"},
		{"other columns", strings.Replace(row("works", "`FuzzIt`"), "what it is", "what", 1), "the columns are"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(checkFeatureTable(c.text, tests, []string{"O1"}), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
