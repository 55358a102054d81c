package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

const (
	codeColumns  = 120
	proseColumns = 100
	tabColumns   = 4
)

// TestColumns checks that lines fit beside each other on a screen.
func TestColumns(t *testing.T) {
	r := newRatchet("columns")
	eachFile(t, func(f *source) []string {
		for _, site := range wideLines(f) {
			r.add(f.path, site)
		}
		return nil
	})
	err := walk(func(name string) error {
		if !strings.HasSuffix(name, ".md") || strings.Contains("/"+name, "/testdata/") {
			return nil
		}
		text, err := readFile(name)
		for _, site := range wideProse(name, string(text)) {
			r.add(name, site)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.check(t)
}

func columnsOf(line string) (n int) {
	for _, c := range line {
		if c == '\t' {
			n += tabColumns
		} else {
			n++
		}
	}
	return n
}

// wideLines finds the lines of a Go file that are too wide. Lines with raw strings are as wide as
// what they say; what is indented in a comment is a table or a diagram, and counts as code.
func wideLines(f *source) (sites []string) {
	raw := rawLines(f)
	n := 0
	for line := range strings.Lines(f.text) {
		n++
		line = strings.TrimRight(line, "\n")
		most := codeColumns
		comment, isComment := strings.CutPrefix(strings.TrimLeft(line, "\t"), "// ")
		if isComment && !strings.HasPrefix(comment, "  ") && !strings.HasPrefix(comment, "\t") {
			most = proseColumns
		}
		if isComment && isOneWord(comment) || raw[n] {
			continue
		}
		if c := columnsOf(line); c > most {
			sites = append(sites, fmt.Sprintf("%s:%d: the line has %d columns, at most %d are readable", f.path, n, c,
				most))
		}
	}
	return sites
}

// rawLines are the lines that have a part of a raw string.
func rawLines(f *source) map[int]bool {
	raw := make(map[int]bool)
	ast.Inspect(f.file, func(n ast.Node) bool {
		if b, ok := n.(*ast.BasicLit); ok && b.Kind == token.STRING && b.Value[0] == '`' {
			for i := f.fset.Position(b.Pos()).Line; i <= f.fset.Position(b.End()).Line; i++ {
				raw[i] = true
			}
		}
		return true
	})
	return raw
}

var linked = regexp.MustCompile(`\]\(|://`)

// wideProse finds the lines of a Markdown file that are too wide, tables, code and links aside.
func wideProse(name, text string) (sites []string) {
	n, fenced := 0, false
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			fenced = !fenced
		}
		if fence || fenced || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") ||
			linked.MatchString(line) || isOneWord(line) {
			continue
		}
		if c := columnsOf(line); c > proseColumns {
			sites = append(sites, fmt.Sprintf("%s:%d: the line has %d columns, at most %d are readable", name, n, c,
				proseColumns))
		}
	}
	return sites
}

// isOneWord tells whether a line cannot be broken: it is an address, or a word in backquotes.
func isOneWord(line string) bool {
	fields := strings.Fields(line)
	return len(fields) <= 1 || len(fields) == 2 && len(fields[0]) <= 2
}

func TestWideLinesAreFound(t *testing.T) {
	long := strings.Repeat("word ", 20) + "more"
	for _, c := range []struct {
		name, src string
		want      int
	}{
		{"comment", "// " + long + "\npackage a", 1},
		{"indented comment", "//\t" + long + "\npackage a", 0},
		{"list in a comment", "//   - " + long + "\npackage a", 0},
		{"address", "// " + strings.ReplaceAll(long, " ", "/") + "\npackage a", 0},
		{"code", "package a\nvar a = \"" + long + "\"", 0},
		{"wide code", "package a\nvar a = \"" + long + long + "\"", 1},
		{"tabs", "package a\n" + strings.Repeat("\t", 25) + "var a = \"a long string of words\"", 1},
		{"raw string", "package a\nvar a = `" + long + long + "\n" + long + long + "`", 0},
	} {
		f, err := parse("pkg/a/a.go", c.src)
		if err != nil {
			t.Fatal(err)
		}
		if got := wideLines(f); len(got) != c.want {
			t.Errorf("%s: got %q, want %d", c.name, got, c.want)
		}
	}
	for text, want := range map[string]int{
		long: 1, "- " + long: 1, "| " + long + " |": 0, "    " + long: 0, "```\n" + long + "\n```\n": 0,
		"see [this](that.md) " + long: 0, "see " + long + "\n" + long: 2,
	} {
		if got := wideProse("a.md", text); len(got) != want {
			t.Errorf("%q: got %q, want %d", text, got, want)
		}
	}
}
