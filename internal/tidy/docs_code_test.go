package tidy

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// This file keeps what documents show true: Go code in them stands in a Go file of this repository,
// where the compiler and tests see it, and links lead to something that is there. A block of code
// begins with ```go; how far it is indented does not matter.

func TestGoCodeInDocuments(t *testing.T) {
	files := tree(t)
	for _, d := range documents(t) {
		report(t, checkCode(d, files))
	}
}

func TestLinksInDocuments(t *testing.T) {
	all := documents(t)
	for _, d := range all {
		report(t, checkLinks(d, all, func(name string) bool {
			_, err := os.Stat(inRoot(name))
			return err == nil
		}))
	}
}

// document is a Markdown file.
type document struct{ path, text string }

// documents reads README.md and what is in docs.
func documents(t *testing.T) []document {
	t.Helper()
	var all []document
	err := walk(func(name string) error {
		if name != "README.md" && (!strings.HasPrefix(name, "docs/") || !strings.HasSuffix(name, ".md")) {
			return nil
		}
		text, err := readFile(name)
		all = append(all, document{name, string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ---- Code.

// codeBlock is code in a document. Its lines have no more indentation than they need.
type codeBlock struct {
	line  int // of its first line
	lines []string
}

func goBlocks(text string) (blocks []codeBlock) {
	inside, number := false, 0
	for line := range strings.Lines(text) {
		number++
		switch mark := strings.TrimSpace(line); {
		case inside && mark == "```":
			inside = false
		case inside:
			b := &blocks[len(blocks)-1]
			b.lines = append(b.lines, strings.TrimRightFunc(line, unicode.IsSpace))
		case mark == "```go":
			inside = true
			blocks = append(blocks, codeBlock{line: number + 1})
		}
	}
	for _, b := range blocks {
		common := -1
		for _, l := range b.lines {
			if n := len(indentation(l)); l != "" && (common < 0 || n < common) {
				common = n
			}
		}
		for i, l := range b.lines {
			b.lines[i] = l[min(len(l), max(common, 0)):]
		}
	}
	return blocks
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// checkCode lists the blocks of a document that stand in no Go file.
func checkCode(d document, files []*source) (bad []string) {
	lines := make([][]string, len(files))
	for i, f := range files {
		lines[i] = strings.Split(f.text, "\n")
	}
	for _, b := range goBlocks(d.text) {
		if !slices.ContainsFunc(lines, b.standsIn) {
			bad = append(bad, fmt.Sprintf("%s:%d: this code is in no Go file, so nobody knows whether it compiles: %s",
				d.path, b.line, b.nearest(files, lines)))
		}
	}
	return bad
}

// standsIn reports whether a file has the block, line by line, with any indentation.
func (b codeBlock) standsIn(file []string) bool {
	for at := range file {
		if _, differs := b.compare(file[at:]); differs < 0 {
			return true
		}
	}
	return false
}

// compare counts how many lines with something in them are the same, and tells which is the first
// that is not (-1 if all are).
func (b codeBlock) compare(file []string) (same, differs int) {
	differs = -1
	indent, begun := "", false
	for i, want := range b.lines {
		got := ""
		if i < len(file) {
			got = strings.TrimRightFunc(file[i], unicode.IsSpace)
		}
		if !begun && want != "" {
			indent, begun = strings.TrimSuffix(indentation(got), indentation(want)), true
		}
		if want != "" {
			want = indent + want
		}
		switch {
		case i >= len(file) || got != want:
			if differs < 0 {
				differs = i
			}
		case want != "":
			same++
		}
	}
	return same, differs
}

// nearest says which file is most like the block, and where it begins to be different.
func (b codeBlock) nearest(files []*source, lines [][]string) string {
	most, longest, said := 0, 0, "nothing is like it; put it into examples/guide"
	for i, file := range lines {
		for at := range file {
			same, differs := b.compare(file[at:])
			if same < most || same == most && differs <= longest {
				continue
			}
			most, longest = same, differs
			there := "the end of the file"
			if at+differs < len(file) {
				there = fmt.Sprintf("%q", strings.TrimSpace(file[at+differs]))
			}
			said = fmt.Sprintf("%s:%d is most like it, where line %d of the block is not %q, but %s",
				files[i].path, at+differs+1, differs+1, strings.TrimSpace(b.lines[differs]), there)
		}
	}
	return said
}

// ---- Links.

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	marks   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fences  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline  = regexp.MustCompile("`[^`]*`")
)

// anchorsOf are the anchors of documents that were read.
var anchorsOf = make(map[string][]string)

// anchors are the headings of a document, as links name them.
func anchors(text string) (names []string) {
	if names, known := anchorsOf[text]; known {
		return names
	}
	defer func() { anchorsOf[text] = names }()
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		name := strings.ReplaceAll(marks.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if n := slices.Index(names, name); n >= 0 {
			name += "-1"
		}
		names = append(names, name)
	}
	return names
}

// checkLinks lists the links of a document that lead to no file, or to no heading.
func checkLinks(d document, all []document, exists func(string) bool) (bad []string) {
	number, inside := 0, false
	for line := range strings.Lines(d.text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		}
		if inside {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(line, "code"), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := path.Join(path.Dir(d.path), file)
			if file == "" {
				target = d.path
			}
			i := slices.IndexFunc(all, func(x document) bool { return x.path == target })
			switch {
			case i < 0 && !exists(target):
				bad = append(bad, fmt.Sprintf("%s:%d: the link %s leads to no file", d.path, number, m[1]))
			case anchor != "" && i < 0:
				bad = append(bad, fmt.Sprintf(
					"%s:%d: the link %s leads into a file of which the headings are not known", d.path, number, m[1]))
			case anchor != "" && !slices.Contains(anchors(all[i].text), anchor):
				bad = append(bad, fmt.Sprintf("%s:%d: the link %s leads to no heading; there are %s", d.path, number,
					m[1], strings.Join(anchors(all[i].text), ", ")))
			}
		}
	}
	return bad
}

// TestDocumentChecksNotice makes sure that the checks find what they are there to find, and nothing
// else.
func TestDocumentChecksNotice(t *testing.T) {
	file, err := parse("examples/a.go",
		"// Package a is one.\npackage a\n\nfunc f() int {\n\tif true {\n\t\treturn 1\n\t}\n\n\treturn 2\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	block := func(lines ...string) string { return "Text.\n\n```go\n" + strings.Join(lines, "\n") + "\n```\n" }
	for _, c := range []struct {
		name, text, want string // part of the problem; "" if there is none
	}{
		{"no code", "Text.", ""},
		{"other code", "```sh\nls\n```\n", ""},
		{"a function", block("func f() int {", "\tif true {", "\t\treturn 1", "\t}", "", "\treturn 2", "}"), ""},
		{"a part of it", block("if true {", "\treturn 1", "}"), ""},
		{"as it is indented there", block("\tif true {", "\t\treturn 1", "\t}"), ""},
		{"further indented", block("\t\t\tif true {", "\t\t\t\treturn 1", "\t\t\t}", "", "\t\t\treturn 2"), ""},
		{"in a list", "- so:\n\n  ```go\n  return 2\n  ```\n", ""},
		{"another line", block("if true {", "\treturn 3", "}"),
			`docs/x.md:4: this code is in no Go file, so nobody knows whether it compiles: examples/a.go:6 is most like it, where line 2 of the block is not "return 3", but "return 1"`},
		{"a line is missing", block("if true {", "}"), "examples/a.go:6 is most like it"},
		{"wrongly indented", block("if true {", "return 1", "}"), "examples/a.go:6 is most like it"},
		{"an empty line more", block("if true {", "", "\treturn 1", "}"), "examples/a.go:6"},
		{"longer than the file", block("\treturn 2", "}", "", "", "more"), "but the end of the file"},
		{"nothing like it", block("go home()"), "nothing is like it"},
		{"the second block", block("return 2") + block("return 4"), "docs/x.md:9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(checkCode(document{"docs/x.md", c.text}, []*source{file}), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}

	all := []document{{"README.md", "# One\n\n## What is it?\n\n```sh\n# no heading\n```\n"},
		{"docs/y.md", "# I want to `go` home, now\n\n## Same\n\n## Same\n"}}
	for _, c := range []struct{ name, text, want string }{
		{"a file", "[a](../examples/a.go)", ""},
		{"a document", "[y](y.md) and [r](../README.md)", ""},
		{"another place", "[r](https://example.com/x#y)", ""},
		{"a heading", "[y](y.md#i-want-to-go-home-now) [r](../README.md#what-is-it)", ""},
		{"the second of its name", "[y](y.md#same-1)", ""},
		{"a heading of its own", "# Here\n\n[h](#here)", ""},
		{"code", "`x[a](b)`\n\n```go\nf[a](b)\n```\n", ""},
		{"no file", "[z](z.md)", "docs/x.md:1: the link z.md leads to no file"},
		{"no heading", "[y](y.md#elsewhere)", "leads to no heading; there are i-want-to-go-home-now, same"},
		{"a comment in code is no heading", "[r](../README.md#no-heading)", "leads to no heading"},
		{"no heading of its own", "[h](#there)", "leads to no heading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := document{"docs/x.md", c.text}
			got := strings.Join(checkLinks(d, append(all, d), func(name string) bool {
				return name == "examples/a.go"
			}), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
