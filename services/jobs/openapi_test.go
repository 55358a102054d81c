package jobserver

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The document has the routes that are served, by the same names, and no others. Whether they
// answer as it says is looked at by integration/openapi.
func TestRoutesOfTheDocument(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var documented, served []string
	for path, methods := range doc.Paths {
		for method, o := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path+" "+o.ID)
		}
	}
	for _, r := range routes {
		served = append(served, r.Method+" "+r.Path+" "+r.ID)
	}
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("the document has\n%s\nand these are served:\n%s", strings.Join(documented, "\n"),
			strings.Join(served, "\n"))
	}
}

// Every code of a problem is in the document.
func TestCodesOfTheDocument(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "code") {
			code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			given[code] = true
		}
		return true
	})
	if len(given) < 15 {
		t.Fatalf("only %d codes were found in problem.go", len(given))
	}
	for _, code := range slices.Sorted(maps.Keys(given)) {
		if !bytes.Contains(openAPI, []byte(`"`+code+`"`)) && !bytes.Contains(openAPI, []byte("("+code+")")) {
			t.Errorf("%s is not in the document", code)
		}
	}
}
