package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the root of the repository. The tests do not change to it: go test would no longer notice
// that files have changed, and report a cached result.
const root = "../.."

// inRoot is the path of a file, which is named by its path from the root, with slashes.
func inRoot(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }

func readFile(name string) ([]byte, error) { return os.ReadFile(inRoot(name)) }

// source is one parsed Go file.
type source struct {
	path, dir string // with slashes, from the root of the repository
	text      string
	test      bool
	fset      *token.FileSet
	file      *ast.File
	mentions  []mention
}

// mention is a place where a name of an imported package is written.
type mention struct {
	pkg, name string
	pos       token.Pos
}

func (f *source) at(p token.Pos) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(p).Line)
}

func (f *source) what() string {
	if f.test {
		return "a test of " + f.dir
	}
	return f.dir
}

func (f *source) table() string {
	if f.test {
		return "testImports"
	}
	return "the table of packages"
}

func eachFile(t *testing.T, check func(*source) []string) {
	t.Helper()
	for _, f := range tree(t) {
		report(t, check(f))
	}
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// tree gives all Go files of the module, but for those in testdata.
func tree(t *testing.T) []*source {
	t.Helper()
	files, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var parseAll = sync.OnceValues(func() ([]*source, error) {
	var files []*source
	err := walk(func(name string) error {
		if !strings.HasSuffix(name, ".go") || strings.Contains("/"+name, "/testdata/") {
			return nil
		}
		text, err := readFile(name)
		if err != nil {
			return err
		}
		f, err := parse(name, string(text))
		files = append(files, f)
		return err
	})
	return files, err
})

// walk visits all files of the repository, by their paths from its root. What git ignores is left
// out.
func walk(visit func(name string) error) error {
	ignored := []string{".git", "bin"}
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			name, err = filepath.Rel(root, name)
		}
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(ignored, name) || d.Name() == "node_modules" || d.Name() == ".rondo"):
			return filepath.SkipDir
		case slices.Contains(ignored, name) || !d.Type().IsRegular() || strings.HasSuffix(name, ".test") ||
			strings.HasSuffix(name, ".out"):
			return nil
		}
		return visit(filepath.ToSlash(name))
	})
}

func parse(name, text string) (*source, error) {
	f := &source{path: name, dir: path.Dir(name), text: text, test: strings.HasSuffix(name, "_test.go"),
		fset: token.NewFileSet()}
	file, err := parser.ParseFile(f.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f.file = file
	imported := make(map[string]string)
	for _, i := range file.Imports {
		imported[importName(i)] = importPath(i)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && imported[x.Name] != "" {
			f.mentions = append(f.mentions, mention{imported[x.Name], s.Sel.Name, s.Pos()})
		}
		return true
	})
	return f, nil
}

var majorVersion = regexp.MustCompile(`^v\d+$`)

// importName is the name under which a file knows a package.
func importName(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	p := importPath(i)
	if majorVersion.MatchString(path.Base(p)) {
		p = path.Dir(p)
	}
	return path.Base(p)
}

func importPath(i *ast.ImportSpec) string {
	p, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		panic(err) // the parser has checked it
	}
	return p
}

// isStandard tells the standard library from everything else: its paths do not begin with a domain.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

// textLine is a line of a comment, of a string, or of prose.
type textLine struct {
	number int
	text   string
}

// commentLines are the lines of all comments of a file, directives left out.
func commentLines(f *source) (lines []textLine) {
	for _, g := range f.file.Comments {
		for _, c := range g.List {
			if directive.MatchString(c.Text) {
				continue
			}
			text := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/"), "//")
			n := f.fset.Position(c.Pos()).Line
			for line := range strings.Lines(text) {
				lines = append(lines, textLine{n, strings.TrimRight(line, "\r\n")})
				n++
			}
		}
	}
	return lines
}

var directive = regexp.MustCompile(`^//[a-z]+:[a-z]`)

// proseLines are the lines of a Markdown file outside of its code blocks.
func proseLines(text string) (lines []textLine) {
	n, fenced := 0, false
	for line := range strings.Lines(text) {
		n++
		if fence := strings.HasPrefix(strings.TrimSpace(line), "```"); fence {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, textLine{n, strings.TrimRight(line, "\r\n")})
		}
	}
	return lines
}

// eachDocument visits all Markdown files, but for those in testdata.
func eachDocument(t *testing.T, visit func(name, text string)) {
	t.Helper()
	err := walk(func(name string) error {
		if !strings.HasSuffix(name, ".md") || strings.Contains("/"+name, "/testdata/") {
			return nil
		}
		text, err := readFile(name)
		if err == nil {
			visit(name, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
