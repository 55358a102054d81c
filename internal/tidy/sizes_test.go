package tidy

import (
	"fmt"
	"go/ast"
	"testing"
)

const (
	maxFileLines     = 700
	maxFunctionLines = 100
)

func TestSizes(t *testing.T) { eachFile(t, checkSizes) }

// checkSizes bounds the files, and the functions that are not tests.
func checkSizes(f *source) []string {
	var bad []string
	if n := f.fset.File(f.file.FileStart).LineCount(); n > maxFileLines {
		bad = append(bad, fmt.Sprintf(
			"%s:%d: the file has %d lines, at most %d are readable: find the second noun in it and give it a file",
			f.path, n, n, maxFileLines))
	}
	if f.test {
		return bad
	}
	for _, d := range f.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
		if n > maxFunctionLines {
			bad = append(bad, fmt.Sprintf("%s: function %s has %d lines, at most %d are readable: give its parts names",
				f.at(fn.Pos()), fn.Name.Name, n, maxFunctionLines))
		}
	}
	return bad
}
