package tidy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreignFiles are names of files in comments and documents that are not files of this repository,
// by the file that names them.
var foreignFiles = map[string]string{
	"README.md main.go":                              "the program that the reader writes",
	"docs/comparison.md docs/architecture":           "a directory of another product",
	"docs/feature-table.md pkg/round/testdata/x.txt": "stands for any scenario",
	"pkg/failure/failure.go shop/main.go":            "a program of a user",
	"pkg/history/historytest/doc.go x.txt":           "stands for any scenario",
}

// TestFilesExist checks that every file of this repository that a comment or a document names
// exists. Names with * are patterns, and match at least one file. The changelog names the files of
// its day.
func TestFilesExist(t *testing.T) {
	var names []string
	if err := walk(func(name string) error { names = append(names, name); return nil }); err != nil {
		t.Fatal(err)
	}
	all := newFileNames(names)
	foreign := make(map[string]bool)
	check := func(name string, lines []textLine) { report(t, checkFiles(name, lines, all, foreign)) }
	eachFile(t, func(f *source) []string { check(f.path, commentLines(f)); return nil })
	eachDocument(t, func(name, text string) {
		if name != "CHANGELOG.md" {
			check(name, proseLines(text))
		}
	})
	for name := range foreignFiles {
		if !foreign[name] {
			t.Errorf("foreignFiles in internal/tidy/files_test.go lists %q, which is unused: remove it", name)
		}
	}
}

// fileNames are the files and directories of a repository.
type fileNames struct {
	all  map[string]bool
	tops map[string]bool     // directories in the root
	ends map[string][]string // by the last element of their path
}

func newFileNames(files []string) fileNames {
	names := fileNames{make(map[string]bool), make(map[string]bool), make(map[string][]string)}
	for _, f := range files {
		for p := f; p != "." && !names.all[p]; p = path.Dir(p) {
			names.all[p] = true
			names.ends[path.Base(p)] = append(names.ends[path.Base(p)], p)
		}
		if top, _, ok := strings.Cut(f, "/"); ok {
			names.tops[top] = true
		}
	}
	return names
}

// find lists the files that a name in a file of a directory means: one beside it, one by its path
// from the root, or else all with a path that ends so.
func (names fileNames) find(dir, name string) []string {
	beside, root := path.Join(dir, name), path.Clean(name)
	if strings.Contains(name, "*") {
		var found []string
		for f := range names.all {
			depth := strings.Count(f, "/") - strings.Count(root, "/")
			end := strings.Join(strings.Split(f, "/")[max(depth, 0):], "/")
			if ok, err := path.Match(root, end); ok && err == nil {
				return []string{f}
			}
		}
		return found
	}
	for _, p := range []string{beside, root} {
		if names.all[p] {
			return []string{p}
		}
	}
	var found []string
	for _, p := range names.ends[path.Base(root)] {
		if strings.HasSuffix(p, "/"+root) {
			found = append(found, p)
		}
	}
	return found
}

var (
	pathWord    = regexp.MustCompile(`[\w./*-]+`)
	linkText    = regexp.MustCompile(`\[[^\]]*\]\([^)\s]*\)`) // TestLinksInDocuments follows links
	ownKinds    = strings.Fields(".go .md .mjs .sh .sql .svg .txt .txtar")
	sharedKinds = strings.Fields(".conf .html .json .yaml .yml") // users have such files, too
)

// named tells whether a word is a name of a file of this repository.
func (names fileNames) named(word string) bool {
	first, _, isPath := strings.Cut(word, "/")
	switch kind := path.Ext(word); {
	case strings.HasPrefix(word, "/"), isPath && strings.Contains(strings.TrimLeft(first, "."), "."):
		return false // absolute, or an address
	case isPath && names.tops[first], slices.Contains(ownKinds, kind) && word != kind:
		return true
	default:
		return isPath && slices.Contains(sharedKinds, kind) && word[0] != '.'
	}
}

// checkFiles lists the names of files in some lines that do not exist, or are of several files.
func checkFiles(file string, lines []textLine, names fileNames, foreign map[string]bool) (bad []string) {
	for _, l := range lines {
		text := linkText.ReplaceAllString(l.text, "")
		for _, m := range pathWord.FindAllStringIndex(text, -1) {
			word := strings.TrimRight(strings.TrimSuffix(text[m[0]:m[1]], "/..."), "./-")
			if m[0] > 0 && strings.ContainsRune("$:{}<>@~=%", rune(text[m[0]-1])) ||
				m[1] < len(text) && strings.ContainsRune("{<$%", rune(text[m[1]])) || !names.named(word) {
				continue
			}
			if key := file + " " + word; foreignFiles[key] != "" {
				foreign[key] = true
				continue
			}
			switch found := names.find(path.Dir(file), word); {
			case len(found) == 0:
				bad = append(bad, fmt.Sprintf("%s:%d: %s does not exist: name the file that has it now", file, l.number,
					word))
			case len(found) > 1:
				slices.Sort(found)
				bad = append(bad, fmt.Sprintf("%s:%d: %s is one of %s: write more of the path", file, l.number, word,
					strings.Join(found, ", ")))
			}
		}
	}
	return bad
}

func TestMissingFilesAreFound(t *testing.T) {
	names := newFileNames([]string{"README.md", "docs/a.md", "docs/adr/0001-a.md", "pkg/a/a.go", "pkg/a/b.go",
		"pkg/b/b.go", "pkg/b/sub/c.go", "pkg/b/testdata/one_1.txt", "deploy/nats/values.yaml"})
	for text, want := range map[string]string{
		"see b.go, a.go and c.go.":                        "",
		"see sub/c.go, pkg/b/b.go":                        "",
		"see pkg/b/sub, deploy/..., pkg/... and pkg/b/":   "",
		"see one_*.txt and pkg/*/b.go":                    "",
		"see deploy/nats/values.yaml, and your rest.yaml": "",
		"see https://x.example/docs/none.md, go.dev/x.go": "",
		"see [none.go](none.go) and /etc/none.md":         "",
		"see $DIR/none.go, docs/<name>.md, ./b.go":        "",
		"a word/other word, e.g. this.that":               "",
		"see none.go":                                     "pkg/a/a.go:7: none.go does not exist",
		"see docs/none.md":                                "docs/none.md does not exist",
		"see `docs/none.md`.":                             "docs/none.md does not exist",
		"see pkg/none":                                    "pkg/none does not exist",
		"see two_*.txt":                                   "two_*.txt does not exist",
		"see pkg/*/none.go":                               "pkg/*/none.go does not exist",
		"see deploy/nats/none.yaml":                       "none.yaml does not exist",
		"see nats/none.yaml":                              "none.yaml does not exist",
		"see none_test.go:12":                             "none_test.go does not exist",
		"see ../b/none.go":                                "none.go does not exist",
	} {
		got := strings.Join(checkFiles("pkg/a/a.go", []textLine{{7, text}}, names, nil), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	got := strings.Join(checkFiles("docs/a.md", []textLine{{7, "see b.go"}}, names, nil), "\n")
	if want := "docs/a.md:7: b.go is one of pkg/a/b.go, pkg/b/b.go: write more of the path"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLinesOfTextAreFound(t *testing.T) {
	f, err := parse("pkg/a/a.go", "// One.\n//\n//go:build x\npackage a\n\n/* Two\nthree */\n"+
		"var a = \"// not\" // four\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(commentLines(f)), "[{1  One.} {6  Two} {7 three } {8  four}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(proseLines("one\n```\ntwo\n```\nthree")), "[{1 one} {5 three}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
