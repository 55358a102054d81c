package tidy

import (
	"fmt"
	"go/ast"
	"testing"
)

const (
	maxFields  = 25
	maxMethods = 30
)

// TestTypes checks that no type is too many things at once.
func TestTypes(t *testing.T) {
	r := newRatchet("types")
	fields, methods, at := make(map[string]int), make(map[string]int), make(map[string]string)
	eachFile(t, func(f *source) []string {
		countTypes(f, fields, methods, at)
		return nil
	})
	add := func(what string, counts map[string]int, most int) {
		for name, n := range counts {
			for range max(0, n-most) {
				key := name + " " + what
				if len(r.sites[key]) == 0 {
					r.add(key, fmt.Sprintf("%s: %s has %d %s, at most %d can be held in the head", at[name], name, n,
						what, most))
				} else {
					r.add(key, fmt.Sprintf("%s: and one more", name))
				}
			}
		}
	}
	add("fields", fields, maxFields)
	add("methods", methods, maxMethods)
	r.check(t)
}

// countTypes counts the fields of structs, and the methods of types and interfaces.
func countTypes(f *source, fields, methods map[string]int, at map[string]string) {
	if f.test {
		return
	}
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				methods[f.dir+"."+receiverOf(d)]++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				x, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				name := f.dir + "." + x.Name.Name
				at[name] = f.at(x.Pos())
				switch x := x.Type.(type) {
				case *ast.StructType:
					fields[name] = x.Fields.NumFields()
				case *ast.InterfaceType:
					methods[name] = x.Methods.NumFields()
				}
			}
		}
	}
}

// receiverOf is the name of the type of a method.
func receiverOf(d *ast.FuncDecl) string {
	x := d.Recv.List[0].Type
	if s, ok := x.(*ast.StarExpr); ok {
		x = s.X
	}
	switch g := x.(type) {
	case *ast.IndexExpr:
		x = g.X
	case *ast.IndexListExpr:
		x = g.X
	}
	return x.(*ast.Ident).Name
}

func TestTypesAreCounted(t *testing.T) {
	f, err := parse("pkg/a/a.go", `package a
type s[T any] struct { a, b int; c string; T }
func (x *s[T]) one() {}
func (x s[T]) two() {}
type i interface { one(); two(); three() }`)
	if err != nil {
		t.Fatal(err)
	}
	fields, methods, at := make(map[string]int), make(map[string]int), make(map[string]string)
	countTypes(f, fields, methods, at)
	got := fmt.Sprint(fields, methods, at)
	if want := "map[pkg/a.s:4] map[pkg/a.i:3 pkg/a.s:2] map[pkg/a.i:pkg/a/a.go:5 pkg/a.s:pkg/a/a.go:2]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
