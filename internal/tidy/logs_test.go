package tidy

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys reads the table of keys in docs/logs.md.
func logKeys(t *testing.T) map[string]bool {
	t.Helper()
	text, err := readFile("docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(string(text), -1) {
		for key := range strings.SplitSeq(m[1], ", ") {
			keys[strings.Trim(key, "`")] = true
		}
	}
	return keys
}

// logCalls are the methods that take keys, and how many arguments stand before those.
var logCalls = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2,
	"ErrorContext": 2, "Log": 3, "With": 0,
}

// TestLogKeys keeps what is logged findable: all say the same thing with the same key, and each key
// is explained.
func TestLogKeys(t *testing.T) {
	known := logKeys(t)
	used := make(map[string]bool)
	for _, f := range tree(t) {
		if f.test || !slices.ContainsFunc([]string{"services/", "pkg/", "internal/"}, func(d string) bool {
			return strings.HasPrefix(f.path, d)
		}) {
			continue
		}
		check := func(args []ast.Expr) {
			for i := 0; i < len(args); i += 2 {
				lit, ok := args[i].(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return // keys that are made elsewhere, or no log call at all
				}
				key, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				used[key] = true
				if !known[key] {
					t.Errorf("%s: the key %q is not in the table of docs/logs.md: choose one of "+
						"those, or explain it there", f.at(lit.Pos()), key)
				}
			}
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := c.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if skip, ok := logCalls[s.Sel.Name]; ok && len(c.Args) >= skip+2 && (len(c.Args)-skip)%2 == 0 &&
				!c.Ellipsis.IsValid() && isLogger(s.X) {
				check(c.Args[skip:])
			}
			return true
		})
	}
	if len(used) < 30 {
		t.Errorf("only %d keys were found: %v", len(used), used)
	}
	// These are made in handlers, and so in no call.
	for _, key := range strings.Fields("trace_id span_id version step") {
		used[key] = true
	}
	for key := range known {
		if !used[key] {
			t.Errorf("docs/logs.md: nobody logs the key %q", key)
		}
	}
}

// isLogger tells whether an expression looks like a logger: o.log, s.options.Log, slog,
// telemetry.LogOf(…), a.log().
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.Contains(strings.ToLower(x.Name), "log") || x.Name == "l"
	case *ast.SelectorExpr:
		return strings.Contains(strings.ToLower(x.Sel.Name), "log")
	case *ast.CallExpr:
		if s, ok := x.Fun.(*ast.SelectorExpr); ok {
			return isLogger(s) || s.Sel.Name == "of" || isLogger(s.X)
		}
	}
	return false
}
