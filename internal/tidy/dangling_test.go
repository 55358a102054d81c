package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestNoCommentDangles checks that every comment stands at what it comments: no file ends in one
// after its last declaration, and none that begins with a name stands above another declaration.
func TestNoCommentDangles(t *testing.T) {
	declared := make(map[string]map[string]bool) // names by directory
	for _, f := range tree(t) {
		if declared[f.dir] == nil {
			declared[f.dir] = make(map[string]bool)
		}
		for _, d := range documented(f) {
			for _, name := range d.names {
				declared[f.dir][name] = true
			}
		}
	}
	eachFile(t, func(f *source) []string { return checkDangling(f, declared[f.dir]) })
}

// documentable is what a comment can stand above: a declaration, a specification in a group, a
// field, or a method of an interface. A comment without any of them has no names.
type documentable struct {
	doc   *ast.CommentGroup
	names []string
	part  bool // of a declaration: comments of parts may be no sentences
}

// documented lists the declarations of a file and their parts, and the comments between them.
func documented(f *source) (all []documentable) {
	docs := make(map[*ast.CommentGroup]bool)
	add := func(doc *ast.CommentGroup, names []string, part bool) {
		all = append(all, documentable{doc, names, part})
		docs[doc] = true
	}
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Doc, []string{d.Name.Name}, false)
		case *ast.GenDecl:
			var inGroup []string
			for _, s := range d.Specs {
				doc, names := specNames(s)
				inGroup = append(inGroup, names...)
				if d.Lparen.IsValid() {
					add(doc, names, true)
				}
			}
			if d.Tok != token.IMPORT {
				add(d.Doc, inGroup, false)
			}
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if fields, ok := n.(*ast.FieldList); ok {
			for _, field := range fields.List {
				if names := fieldNames(field); len(names) > 0 {
					add(field.Doc, names, true)
				}
			}
		}
		return true
	})
	for _, g := range f.file.Comments {
		inside := func(d ast.Decl) bool { return d.Pos() < g.Pos() && g.Pos() < d.End() }
		if !docs[g] && g.Pos() > f.file.Name.End() && !slices.ContainsFunc(f.file.Decls, inside) {
			add(g, nil, false)
		}
	}
	return all
}

func specNames(s ast.Spec) (doc *ast.CommentGroup, names []string) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Doc, []string{s.Name.Name}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names = append(names, n.Name)
		}
		return s.Doc, names
	}
	return nil, nil
}

// fieldNames are the names of a field, or of the type that it embeds.
func fieldNames(field *ast.Field) (names []string) {
	for _, n := range field.Names {
		names = append(names, n.Name)
	}
	x := field.Type
	if s, ok := x.(*ast.StarExpr); ok {
		x = s.X
	}
	if s, ok := x.(*ast.SelectorExpr); ok {
		x = s.Sel
	}
	if n, ok := x.(*ast.Ident); ok && len(names) == 0 {
		names = append(names, n.Name)
	}
	return names
}

var (
	// nameAndVerb is how a comment of one name begins: "x is", or "x, unless it is empty, tells".
	nameAndVerb = regexp.MustCompile(`^([A-Za-z]\w*)(?:, [^.]*?,)? (is|are|was|has|implements|tells|reports|` +
		`returns|gives|takes|makes|finds|keeps|checks|holds|says|runs|starts|reads|writes|counts)\b`)
	// camelCase is a word that can only be a name in the code.
	camelCase = regexp.MustCompile(`^[A-Za-z]*[a-z0-9][A-Z]\w*$`)
	// testFunction is a function that go test runs. Its comment may begin with what it shows.
	testFunction = regexp.MustCompile(`^(Test|Example|Fuzz|Benchmark)`)
)

func checkDangling(f *source, declared map[string]bool) (bad []string) {
	last := f.file.Name.End()
	if n := len(f.file.Decls); n > 0 {
		last = f.file.Decls[n-1].End()
	}
	for _, d := range documented(f) {
		if d.doc == nil {
			continue
		}
		text := d.doc.Text()
		if d.names == nil && d.doc.Pos() > last &&
			f.fset.Position(d.doc.Pos()).Line > f.fset.Position(last).Line {
			bad = append(bad, fmt.Sprintf("%s: the file ends in a comment, above no declaration: %s", f.at(d.doc.Pos()),
				firstLine(text)))
			continue
		}
		if name := begins(text, d, declared); name != "" && !slices.Contains(d.names, name) {
			where := "no declaration"
			if d.names != nil {
				where = strings.Join(d.names, ", ")
			}
			bad = append(bad, fmt.Sprintf("%s: a comment about %s stands above %s", f.at(d.doc.Pos()), name, where))
		}
	}
	return bad
}

// begins gives the name that a comment begins with; "" if it begins with prose.
func begins(text string, d documentable, declared map[string]bool) string {
	first, _, _ := strings.Cut(firstLine(text), " ")
	first = strings.TrimSuffix(strings.TrimRight(first, ":,."), "'s")
	m := nameAndVerb.FindStringSubmatch(text)
	switch ofTest := len(d.names) == 1 && testFunction.MatchString(d.names[0]); {
	case camelCase.MatchString(first) && (!ofTest || testFunction.MatchString(first)):
		return first
	case m == nil || ofTest || d.names == nil:
		return ""
	case m[2] == "implements", declared[m[1]], !d.part && !unicode.IsUpper(rune(m[1][0])),
		len(d.names) == 1 && strings.EqualFold(m[1], d.names[0]):
		return m[1]
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func TestDanglingCommentsAreFound(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"own name", "// f is one.\nfunc f() {}", ""},
		{"possessive", "// fooBar's end.\nfunc fooBar() {}", ""},
		{"prose", "// The end is near.\nfunc f() {}", ""},
		{"prose without an article", "// Texts are read.\nfunc f() {}", ""},
		{"heading", "var a int\n\n// ---- Texts.\n\n// f is one.\nfunc f() {}", ""},
		{"group", "// a and b are two.\nvar (\n\ta, b int\n\t// c is one.\n\tc int\n)", ""},
		{"member of the group", "// c is one.\nvar (\n\ta, b int\n\tc int\n)", ""},
		{"comment in a function at the end", "func f() {\n\t// fooBar\n}", ""},
		{"comment at the end of a line", "var a int // more\n", ""},
		{"example", "// AllOrNone waits.\nfunc ExampleAllOrNone() {}", ""},
		{"test", "// Garbage is read.\nfunc TestIt() {}\nvar Garbage int", ""},
		{"field", "type s struct {\n\t// only is prose here\n\tb int\n}", ""},
		{"directive", "//go:embed x\nvar a string", ""},
		{"end of the file", "var a int\n\n// b is gone.\n",
			"a.go:4: the file ends in a comment, above no declaration: b is"},
		{"end of a file without declarations", "\n// b is gone.\n", "the file ends in a comment"},
		{"other name", "// b is one.\nfunc a() {}", "a.go:2: a comment about b stands above a"},
		{"other spelling", "// Crowd is how many.\nconst crowd = 1", "about Crowd stands above crowd"},
		{"other words", "// fooBar makes one.\nfunc a() {}", "about fooBar stands above a"},
		{"declared elsewhere", "// Two, if there are, is one.\nfunc a() {}\nvar Two int", "about Two stands above a"},
		{"method", "type s int\n\n// Return implements x.Y.\nfunc (s) Nak() {}", "about Return stands above Nak"},
		{"interface", "type i interface {\n\t// Return gives.\n\tNak()\n\t// Return gives.\n\tReturn()\n}",
			"a.go:3: a comment about Return stands above Nak"},
		{"in a group", "var (\n\t// fooBar is one.\n\ta int\n)", "about fooBar stands above a"},
		{"not in the group", "// fooBar is one.\nvar (\n\ta int\n)", "about fooBar stands above a"},
		{"above nothing", "// fooBar is one.\n\nfunc a() {}", "about fooBar stands above no declaration"},
		{"other test", "// TestThat: it works.\nfunc TestThis() {}", "about TestThat stands above TestThis"},
	} {
		f, err := parse("pkg/a/a.go", "package a\n"+c.src)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(checkDangling(f, map[string]bool{"Two": true, "Garbage": true, "Return": true}), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
