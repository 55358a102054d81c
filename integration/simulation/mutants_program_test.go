package simulation

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file builds many mistakes into one program, which costs one compilation and one link instead
// of one for each. A function with a mistake gets a copy that has it, and calls the copy if the
// program runs with the number of the mistake:
//
//	func (r *round) end(at time.Time) error { if plantedMutant == 3 { return r.endMutant3(at) }; … }

// plantedVariable is the environment variable with the number of the mistake that a program plays.
const plantedVariable = "RONDO_TEST_MUTANT"

// A nursery has the files of the product with mistakes that a program chooses when it starts.
type nursery struct {
	root    string
	sources map[string][]byte
	copies  map[string][]copied // by file
	planted []mutant            // the first has number 1
}

// copied is a function's copy with a mistake.
type copied struct {
	at         int // where the body of the original begins
	call, text string
}

// plant adds a mistake. It returns 0 if the mistake is not within functions, or if a function
// cannot pass its parameters on, because one of them has no name.
func (y *nursery) plant(t *testing.T, m mutant) (number int) {
	t.Helper()
	number = len(y.planted) + 1
	type place struct {
		file string
		from int
	}
	edits := make(map[place][]edit)
	functions := make(map[place]*ast.FuncDecl)
	for _, e := range m.edits {
		path := filepath.Join(y.root, filepath.FromSlash(e.file))
		source, known := y.sources[path]
		if !known {
			var err error
			if source, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			y.sources[path] = source
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(source, []byte(e.before))
		function := functionAround(f, at, at+len(e.before))
		if function == nil {
			return 0
		}
		p := place{path, int(function.Pos() - f.FileStart)}
		edits[p], functions[p] = append(edits[p], e), function
	}
	made := make(map[string][]copied)
	for p, function := range functions {
		call, ok := callOf(function, number)
		if !ok {
			return 0
		}
		offset := func(at token.Pos) int { return p.from + int(at-function.Pos()) }
		source := y.sources[p.file]
		name := offset(function.Name.Pos())
		text := string(source[p.from:name]) + mutantName(function, number) +
			string(source[offset(function.Name.End()):offset(function.End())])
		for _, e := range edits[p] {
			text = strings.Replace(text, e.before, e.after, 1)
		}
		made[p.file] = append(made[p.file], copied{offset(function.Body.Lbrace) + 1, call, text})
	}
	for file, all := range made {
		y.copies[file] = append(y.copies[file], all...)
	}
	y.planted = append(y.planted, m)
	return number
}

// functionAround returns the function whose body has a part of a file.
func functionAround(f *ast.File, from, to int) *ast.FuncDecl {
	for _, d := range f.Decls {
		function, ok := d.(*ast.FuncDecl)
		if ok && function.Body != nil && int(function.Body.Lbrace-f.FileStart) < from &&
			to <= int(function.Body.Rbrace-f.FileStart) {
			return function
		}
	}
	return nil
}

func mutantName(function *ast.FuncDecl, number int) string {
	return fmt.Sprint(function.Name.Name, "Mutant", number)
}

// callOf returns the statements with which a function calls its copy.
func callOf(function *ast.FuncDecl, number int) (call string, ok bool) {
	if function.Type.TypeParams != nil || function.Name.Name == "init" {
		return "", false
	}
	call = mutantName(function, number)
	if r := function.Recv; r != nil {
		if len(r.List) != 1 || len(r.List[0].Names) != 1 || r.List[0].Names[0].Name == "_" {
			return "", false
		}
		call = r.List[0].Names[0].Name + "." + call
	}
	var args []string
	for _, p := range function.Type.Params.List {
		if len(p.Names) == 0 {
			return "", false
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", false
			}
			args = append(args, n.Name)
		}
		if _, variadic := p.Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	call += "(" + strings.Join(args, ", ") + ")"
	if function.Type.Results == nil {
		call += "; return"
	} else {
		call = "return " + call
	}
	return fmt.Sprintf(" if plantedMutant == %d { %s };", number, call), true
}

// files returns the files of the product with all mistakes, and one more for each package, which
// reads the number.
func (y *nursery) files(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for path, copies := range y.copies {
		source := string(y.sources[path])
		f, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		var ends strings.Builder
		slices.SortStableFunc(copies, func(a, b copied) int { return b.at - a.at })
		for _, c := range copies {
			source = source[:c.at] + c.call + source[c.at:]
			ends.WriteString("\n" + c.text + "\n")
		}
		all[path] = source + ends.String()
		all[filepath.Join(filepath.Dir(path), "planted_mutant.go")] = fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n"+
			"\t\"strconv\"\n)\n\nvar plantedMutant, _ = strconv.Atoi(os.Getenv(%q))\n", f.Name.Name, plantedVariable)
	}
	return all
}
