package tidy

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// elapsed lists the functions of tests that compare elapsed time, each with the reason why that
// does not depend on the machine. A directory stands for all of its files.
var elapsed = map[string]string{
	"integration/simulation": "virtual time, and how many seeds a run takes",

	"pkg/history/cockroach/hanging_test.go TestCloseDoesNotWaitForAServer": "synctest",

	"examples/batch/main_test.go TestInFlight":                      "virtual time of rondotest",
	"examples/comparison/fulfil_test.go TestApprovalMayComeEarly":   "virtual time of rondotest",
	"examples/comparison/fulfil_test.go TestApprovalIsMissing":      "virtual time of rondotest",
	"examples/hello/main_test.go TestHello":                         "virtual time of rondotest",
	"internal/slowtest/until_test.go TestUntil":                     "synctest",
	"services/jobs/attack_test.go TestAttackStarterLeak":            "synctest",
	"services/jobs/start_test.go TestTheRateIsKept":                 "synctest",
	"services/orchestrator/ownership/takeover_test.go ownersWithin": "synctest",
	"services/worker/limits_test.go TestARateIsKept":                "synctest",
	"services/worker/limits_test.go TestOneSlotServesManyQueues":    "synctest",

	"integration/chaos/verdict_test.go allEnd":        "the deadline of the test, while nothing ends",
	"pkg/history/historytest/observer.go observeEach": "what was observed is a part of what was measured",
	"internal/pgtest/server.go restart":               "the deadline of the helper",
}

// TestElapsed keeps tests independent of the speed of the machine: they compare no elapsed time
// with a limit. They wait for a signal, compare the order of moments or count what has happened;
// what is about time runs in virtual time. Benchmarks measure time, and loops may run for a while.
func TestElapsed(t *testing.T) {
	used := make(map[string]bool)
	eachFile(t, func(f *source) []string { return checkElapsed(f, elapsed, used) })
	for entry := range elapsed {
		if !used[entry] {
			t.Errorf("the list of tests that compare elapsed time has %q, which compares none", entry)
		}
	}
}

// checkElapsed reports comparisons of elapsed time that the list does not allow.
func checkElapsed(f *source, allowed map[string]string, used map[string]bool) (bad []string) {
	name := path.Base(f.dir)
	if !f.test && (!strings.HasSuffix(name, "test") || !strings.HasPrefix(f.dir, "internal/") &&
		!strings.HasPrefix(f.dir, "pkg/history/")) || strings.HasPrefix(f.dir, "bench") {
		return nil
	}
	for _, d := range f.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || strings.HasPrefix(fn.Name.Name, "Benchmark") {
			continue
		}
		for _, at := range comparesElapsed(fn.Body) {
			entries := []string{f.path + " " + fn.Name.Name, f.dir}
			if i := slices.IndexFunc(entries, func(e string) bool { return allowed[e] != "" }); i >= 0 {
				used[entries[i]] = true
				continue
			}
			bad = append(bad, fmt.Sprintf("%s: a comparison of elapsed time depends on the machine: wait for "+
				"a signal, compare moments, count, or use testing/synctest", f.at(at)))
		}
	}
	return bad
}

// comparesElapsed finds the comparisons by < and > of time.Since, and of variables with elapsed
// time. The condition of a loop is how long the loop runs.
func comparesElapsed(body *ast.BlockStmt) (found []token.Pos) {
	durations := make(map[string]bool)
	assigned := func(left []ast.Expr, right []ast.Expr) {
		for i, l := range left {
			if id, ok := l.(*ast.Ident); ok && len(right) == len(left) && isElapsed(id.Name, right[i]) {
				durations[id.Name] = true
			}
		}
	}
	loops := make(map[ast.Node]bool)
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			assigned(x.Lhs, x.Rhs)
		case *ast.ForStmt:
			loops[x.Cond] = x.Cond != nil
		default:
		}
		return true
	})
	ast.Inspect(body, func(n ast.Node) bool {
		if n != nil && loops[n] {
			return false
		}
		x, ok := n.(*ast.BinaryExpr)
		if !ok || !slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, x.Op) {
			return true
		}
		if mentionsElapsed(x.X, durations) || mentionsElapsed(x.Y, durations) {
			found = append(found, x.Pos())
			return false
		}
		return true
	})
	slices.SortFunc(found, func(a, b token.Pos) int { return cmp.Compare(a, b) })
	return found
}

// isElapsed reports whether a variable gets elapsed time: that of time.Since, or a difference if
// its name says so.
func isElapsed(name string, value ast.Expr) bool {
	if mentionsElapsed(value, nil) {
		return true
	}
	call, ok := value.(*ast.CallExpr)
	if !ok || name != "took" && name != "elapsed" {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Sub"
}

// mentionsElapsed reports whether an expression has time.Since or one of the variables in it.
func mentionsElapsed(e ast.Expr, durations map[string]bool) (has bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectorExpr:
			id, ok := x.X.(*ast.Ident)
			has = has || ok && id.Name == "time" && x.Sel.Name == "Since"
		case *ast.Ident:
			has = has || durations[x.Name]
		case *ast.FuncLit:
			return false
		default:
		}
		return true
	})
	return has
}

func TestElapsedIsFound(t *testing.T) {
	const head = "package p\nimport \"time\"\n"
	for text, want := range map[string]int{
		"func TestX() { if time.Since(x) > y {} }":                                  1,
		"func TestX() { if a || time.Since(x)-lost <= y {} }":                       1,
		"func TestX() { took := time.Since(x); if took > y || took < z {} }":        2,
		"func TestX() { most := c*time.Since(x)/2; if n > most {} }":                1,
		"func TestX() { took := b.Sub(a); if took >= y {} }":                        1,
		"func TestX() { late := b.Sub(a); if late >= y {} }":                        0,
		"func TestX() { for time.Since(x) < y {} }":                                 0,
		"func TestX() { for { if time.Since(x) < y {} } }":                          1,
		"func BenchmarkX() { if time.Since(x) > y {} }":                             0,
		"func TestX() { t.Log(time.Since(x)); if n > 2 || at.Before(x.Add(y)) {} }": 0,
		"func TestX() { f := func() { e := time.Since(x); if e > y {} }; f() }":     1,
		"func TestAllowed() { if time.Since(x) > y {} }":                            0,
	} {
		f, err := parse("pkg/p/x_test.go", head+text)
		if err != nil {
			t.Fatal(err)
		}
		used := make(map[string]bool)
		bad := checkElapsed(f, map[string]string{"pkg/p/x_test.go TestAllowed": "a reason"}, used)
		if len(bad) != want || len(used) > 0 != strings.Contains(text, "TestAllowed") {
			t.Errorf("%s: %q, want %d", text, bad, want)
		}
	}
}
