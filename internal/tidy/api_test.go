package tidy

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var accept = flag.Bool("accept", false, "write the exported API of the user packages as it is now")

// userPackages are the packages that users import. Their exported API changes only on purpose.
var userPackages = []string{
	"pkg/activity", "pkg/app", "pkg/client", "pkg/codec", "pkg/failure", "pkg/jobpush", "pkg/orchestration",
	"pkg/rondotest",
}

// enginePackages are for writers of stores: the API of user packages does not show their types.
var enginePackages = []string{"pkg/round", "pkg/history", "pkg/outbox"}

// forWriters are the declarations with which a writer of a store gives it to a program.
var forWriters = []string{"pkg/app OpenStore", "pkg/app StoreOptions.Observer"}

// TestAPI compares the exported API of each user package with a file.
func TestAPI(t *testing.T) {
	for _, dir := range userPackages {
		now := apiOf(filesOf(t, dir))
		file := apiFile(dir)
		if *accept {
			if err := writeAPI(file, now); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := readFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if changes := compareAPI(strings.Split(string(text), "\n"), now); len(changes) > 0 {
			t.Errorf("%s: the exported API has changed:\n\t%s\nto accept that, run: "+
				"go test ./internal/tidy -run TestAPI -accept", dir, strings.Join(changes, "\n\t"))
		}
	}
}

func apiFile(dir string) string { return "internal/tidy/testdata/api/" + path.Base(dir) + ".txt" }

func writeAPI(file string, lines []string) error {
	if err := os.MkdirAll(filepath.Dir(inRoot(file)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(inRoot(file), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// compareAPI lists the declarations that were removed, with a minus, and those that were added,
// with a plus.
func compareAPI(before, now []string) (changes []string) {
	for _, line := range before {
		if line != "" && !slices.Contains(now, line) {
			changes = append(changes, "- "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			changes = append(changes, "+ "+line)
		}
	}
	return changes
}

// TestAPIShowsNothingInternal lists the exported declarations with a type of an internal package,
// which users cannot name, or of the engine.
func TestAPIShowsNothingInternal(t *testing.T) {
	r := newRatchet("internal_types")
	for _, dir := range userPackages {
		for _, f := range filesOf(t, dir) {
			for _, d := range exportedOf(f) {
				if name := internalIn(f, d.shown); name != "" && !slices.Contains(forWriters, dir+" "+d.name) {
					r.add(dir, fmt.Sprintf("%s: %s shows %s, which is not for users", f.at(d.at), d.name, name))
				}
			}
		}
	}
	r.check(t)
}

// TestAPIIsDocumented checks that the comment of each exported name begins with the name.
func TestAPIIsDocumented(t *testing.T) {
	for _, dir := range userPackages {
		for _, f := range filesOf(t, dir) {
			report(t, checkDocumented(f))
		}
	}
}

func checkDocumented(f *source) (bad []string) {
	for _, d := range exportedOf(f) {
		if d.grouped || strings.HasPrefix(d.text, "field ") || d.ofInterface {
			continue
		}
		name := d.name[strings.LastIndex(d.name, ".")+1:]
		words := strings.Fields(d.doc)
		if len(words) > 1 && words[0] != name && slices.Contains([]string{"A", "An", "The"}, words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || strings.TrimRight(words[0], ",:.'s") != strings.TrimRight(name, "s") {
			bad = append(bad, fmt.Sprintf("%s: the comment of %s must begin with %q", f.at(d.at), d.name, name))
		}
	}
	return bad
}

// filesOf gives the files of a package, tests left out.
func filesOf(t *testing.T, dir string) (files []*source) {
	t.Helper()
	for _, f := range tree(t) {
		if f.dir == dir && !f.test {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatalf("there is no package in %s", dir)
	}
	return files
}

// exported is an exported declaration, field or method.
type exported struct {
	name, text, doc string
	at              token.Pos
	shown           []ast.Node // the parts of its syntax that users see
	grouped         bool       // it stands in a group of constants or variables that has a comment
	ofInterface     bool
}

// apiOf lists the exported declarations of a package, one a line, sorted.
func apiOf(files []*source) []string {
	lines := make(map[string]bool)
	for _, f := range files {
		for _, d := range exportedOf(f) {
			lines[d.text] = true
		}
	}
	return slices.Sorted(maps.Keys(lines))
}

func exportedOf(f *source) (all []exported) {
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || token.IsExported(receiverOf(d))) {
				all = append(all, exportedFunc(d))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						all = append(all, exportedType(d, s)...)
					}
				case *ast.ValueSpec:
					all = append(all, exportedValues(d, s)...)
				}
			}
		}
	}
	return all
}

func exportedFunc(d *ast.FuncDecl) exported {
	x := exported{name: d.Name.Name, doc: d.Doc.Text(), at: d.Pos(), shown: []ast.Node{d.Type}}
	text := "func " + d.Name.Name
	if d.Recv != nil {
		x.name = receiverOf(d) + "." + d.Name.Name
		text = "method (" + types.ExprString(d.Recv.List[0].Type) + ") " + d.Name.Name
	}
	x.text = text + parametersOf(d.Type.TypeParams) + signatureOf(d.Type)
	return x
}

func exportedType(group *ast.GenDecl, s *ast.TypeSpec) []exported {
	x := exported{name: s.Name.Name, doc: docOf(group, s.Doc, nil), at: s.Pos()}
	text := "type " + s.Name.Name + parametersOf(s.TypeParams) + " "
	if s.TypeParams != nil {
		x.shown = append(x.shown, s.TypeParams)
	}
	if s.Assign.IsValid() {
		text += "= "
	}
	var inside []exported
	switch t := s.Type.(type) {
	case *ast.StructType:
		text, inside = text+"struct", fieldsOf(s.Name.Name, t)
	case *ast.InterfaceType:
		text, inside = text+"interface", methodsOf(s.Name.Name, t)
		if slices.ContainsFunc(t.Methods.List, func(m *ast.Field) bool {
			return len(m.Names) > 0 && !m.Names[0].IsExported()
		}) {
			text += " (closed)"
		}
	default:
		text, x.shown = text+typeOf(t), append(x.shown, t)
	}
	x.text = text
	return append([]exported{x}, inside...)
}

func fieldsOf(of string, t *ast.StructType) (all []exported) {
	for _, field := range t.Fields.List {
		if len(field.Names) == 0 {
			text := typeOf(field.Type)
			if name := text[strings.LastIndexAny(text, ".*")+1:]; token.IsExported(name) {
				all = append(all, exported{name: of + "." + name, text: "field " + of + " embeds " + text,
					at: field.Pos(), shown: []ast.Node{field.Type}})
			}
		}
		for _, name := range field.Names {
			if name.IsExported() {
				all = append(all, exported{name: of + "." + name.Name, at: field.Pos(), shown: []ast.Node{field.Type},
					text: "field " + of + "." + name.Name + " " + typeOf(field.Type)})
			}
		}
	}
	return all
}

func methodsOf(of string, t *ast.InterfaceType) (all []exported) {
	for _, m := range t.Methods.List {
		x := exported{at: m.Pos(), shown: []ast.Node{m.Type}, ofInterface: true}
		fn, isMethod := m.Type.(*ast.FuncType)
		switch {
		case isMethod && m.Names[0].IsExported():
			x.name = of + "." + m.Names[0].Name
			x.text = "method " + of + "." + m.Names[0].Name + signatureOf(fn)
		case !isMethod:
			x.name = of
			x.text = "method " + of + " embeds " + typeOf(m.Type)
		default:
			continue
		}
		all = append(all, x)
	}
	return all
}

func exportedValues(group *ast.GenDecl, s *ast.ValueSpec) (all []exported) {
	for i, name := range s.Names {
		if !name.IsExported() {
			continue
		}
		x := exported{name: name.Name, doc: docOf(group, s.Doc, s.Comment), at: name.Pos(),
			text: group.Tok.String() + " " + name.Name, grouped: group.Lparen.IsValid()}
		if s.Type != nil {
			x.text, x.shown = x.text+" "+typeOf(s.Type), []ast.Node{s.Type}
		}
		if group.Tok == token.CONST && i < len(s.Values) {
			x.text += " = " + types.ExprString(s.Values[i])
		}
		all = append(all, x)
	}
	return all
}

func docOf(group *ast.GenDecl, doc, comment *ast.CommentGroup) string {
	for _, c := range []*ast.CommentGroup{doc, group.Doc, comment} {
		if c != nil {
			return c.Text()
		}
	}
	return ""
}

// typeOf writes a type, functions without the names of their parameters.
func typeOf(x ast.Expr) string {
	if fn, ok := x.(*ast.FuncType); ok {
		return "func" + signatureOf(fn)
	}
	return types.ExprString(x)
}

func signatureOf(fn *ast.FuncType) string {
	text := "(" + strings.Join(typesOf(fn.Params), ", ") + ")"
	switch results := typesOf(fn.Results); len(results) {
	case 0:
		return text
	case 1:
		return text + " " + results[0]
	default:
		return text + " (" + strings.Join(results, ", ") + ")"
	}
}

func typesOf(list *ast.FieldList) (all []string) {
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for range max(1, len(field.Names)) {
			all = append(all, typeOf(field.Type))
		}
	}
	return all
}

func parametersOf(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var all []string
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, name.Name+" "+types.ExprString(field.Type))
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// internalIn finds a name of an internal package in what users see.
func internalIn(f *source, shown []ast.Node) (name string) {
	for _, n := range shown {
		ast.Inspect(n, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			i := slices.IndexFunc(f.mentions, func(m mention) bool { return m.pos == s.Pos() })
			if i >= 0 && (strings.Contains("/"+f.mentions[i].pkg+"/", "/internal/") ||
				slices.Contains(enginePackages, strings.TrimPrefix(f.mentions[i].pkg, module+"/"))) {
				name = path.Base(f.mentions[i].pkg) + "." + s.Sel.Name
			}
			return true
		})
	}
	return name
}

func TestAPIIsListed(t *testing.T) {
	f, err := parse("pkg/a/a.go", `package a
import "github.com/rondo-run/rondo/internal/coro"
// A does.
func A[T any](a, b int, f func(x T) (n int, err error)) (coro.Told, error) { return }
func b() {}
// B does it.
type B[T any] struct { C, d int; coro.Task; E map[string]*coro.Host }
func (x *B[T]) F() {}
func (x b) G() {}
// H is
type H interface { I(a string) error; j(); coro.Part }
type K = coro.Kind
// The values.
const ( L, m Kind = 1, 2; N = "n" )
var O error`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"const L Kind = 1", "const N = \"n\"",
		"field B embeds coro.Task", "field B.C int", "field B.E map[string]*coro.Host",
		"func A[T any](int, int, func(T) (int, error)) (coro.Told, error)", "method (*B[T]) F()",
		"method H embeds coro.Part", "method H.I(string) error", "type B[T any] struct", "type H interface (closed)",
		"type K = coro.Kind", "var O error",
	}
	if got := apiOf([]*source{f}); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var shown []string
	for _, d := range exportedOf(f) {
		if name := internalIn(f, d.shown); name != "" {
			shown = append(shown, d.name+" "+name)
		}
	}
	if got, want := strings.Join(shown, ", "),
		"A coro.Told, B.Task coro.Task, B.E coro.Host, H coro.Part, K coro.Kind"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if bad := checkDocumented(f); len(bad) != 3 { // F, K and O have no comment
		t.Errorf("got %q, want 3 without a comment", bad)
	}
	changes := compareAPI([]string{"func A()", "func B()"}, []string{"func B()", "func C()"})
	if got := strings.Join(changes, "; "); got != "- func A(); + func C()" {
		t.Errorf("got %s", got)
	}
}
