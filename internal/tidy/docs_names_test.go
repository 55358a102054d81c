package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTestsThatExist looks up every test and benchmark that a document names.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	files := tree(t)
	tests := testsOf(files, scenarioNames(t))
	for _, f := range files {
		for _, name := range benchmarks(f) {
			tests[name] = append(tests[name], f.dir)
		}
		if f.dir == brokerSuite {
			for _, m := range brokerTest.FindAllStringSubmatch(f.text, -1) {
				tests["natsbroker.TestConformance/"+strings.ReplaceAll(m[1], " ", "_")] = []string{brokerSuite}
			}
		}
	}
	for _, d := range documents(t) {
		if path.Dir(d.path) == "docs" && d.path != featureTable { // that one has rules of its own
			report(t, checkNamesOfTests(d.path, d.text, tests))
		}
	}
}

// brokerSuite is the suite of the broker. Its tests stand in lists, with what they need behind
// them.
const brokerSuite = "internal/broker/brokertest"

var brokerTest = regexp.MustCompile(`(?m)^\t\{"([^"]+)", Settings\{`)

func benchmarks(f *source) (names []string) {
	for _, d := range f.file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Benchmark") {
			names = append(names, fn.Name.Name, path.Base(f.dir)+"."+fn.Name.Name)
		}
	}
	return names
}

var namedTest = regexp.MustCompile("`((?:[a-z]+\\.)?(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*(?:/[^`]+)?)`")

// checkNamesOfTests lists the tests that a document names and that do not exist, or exist more than
// once.
func checkNamesOfTests(document, text string, tests map[string][]string) (bad []string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
			switch dirs := tests[m[1]]; {
			case len(dirs) == 0:
				bad = append(bad, fmt.Sprintf("%s:%d names the test %s, which does not exist", document, number, m[1]))
			case len(dirs) > 1:
				bad = append(bad, fmt.Sprintf("%s:%d names the test %s, which %s all have: write the package before it",
					document, number, m[1], strings.Join(dirs, ", ")))
			}
		}
	}
	return bad
}

// TestDocumentsQuoteTheLogs looks up the messages that docs/operating.md says to watch for in the
// logs.
func TestDocumentsQuoteTheLogs(t *testing.T) {
	const document, head = "docs/operating.md", "| in the log |"
	text, err := readFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n"+head)
	if !found {
		t.Fatalf("%s has no table that begins with %q", document, head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var code strings.Builder
	for _, f := range tree(t) {
		if !f.test {
			code.WriteString(f.text)
		}
	}
	n := 0
	for line := range strings.Lines(table) {
		quoted, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |")
		if !ok || !strings.HasPrefix(line, "| `") {
			continue
		}
		if n++; !strings.Contains(code.String(), `"`+quoted) {
			t.Errorf("%s: nothing logs %q", document, quoted)
		}
	}
	if n == 0 {
		t.Errorf("%s: the table is empty", document)
	}
}

func TestNamesOfTestsAreLookedUp(t *testing.T) {
	tests := map[string][]string{"TestIt": {"a"}, "TestBoth": {"a", "b"}, "a.TestBoth": {"a"},
		"TestConformance/sums/add_up": {"c"}}
	for text, want := range map[string]string{
		"see `TestIt` and `a.TestBoth`":      "",
		"see `TestConformance/sums/add_up`":  "",
		"`go test`, `Testing`, TestNobody":   "",
		"see `TestNobody`":                   "TestNobody, which does not exist",
		"`TestIt`, `TestConformance/sums/x`": "sums/x, which does not exist",
		"see `TestBoth`":                     "write the package before it",
	} {
		got := strings.Join(checkNamesOfTests("d.md", text, tests), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
