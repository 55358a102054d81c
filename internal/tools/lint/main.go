// Command lint is the vet tool of this repository: the analyzers of `go vet`, and errcheck, nilerr
// and exhaustive. `go vet -vettool` runs it on one package at a time, so that the build cache keeps
// its results.
package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/gostaticanalysis/nilerr"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/nishanths/exhaustive/passes/exhaustive"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"golang.org/x/tools/go/ast/astutil"
	"golang.org/x/tools/go/types/typeutil"
)

// unchecked are the functions whose error no caller needs, in the notation of errcheck.
var unchecked = []string{
	// The command line keeps the first error of writing its output; an HTTP client or a terminal
	// that is gone reads no error.
	"fmt.Fprint(io.Writer)", "fmt.Fprintf(io.Writer)", "fmt.Fprintln(io.Writer)",
	"fmt.Fprintf(net/http.ResponseWriter)", "fmt.Fprintln(net/http.ResponseWriter)",
	// Flush returns the error of a table, and a hash never fails.
	"fmt.Fprintf(*text/tabwriter.Writer)", "fmt.Fprintln(*text/tabwriter.Writer)",
	"fmt.Fprint(hash.Hash32)", "fmt.Fprintf(hash.Hash64)", "fmt.Fprintf(hash.Hash)",
	// Reading has returned the error that matters, or there was none.
	"(io.ReadCloser).Close", "(net.Conn).Close", "(net.Listener).Close", "(*database/sql.Rows).Close",
	"(*github.com/jackc/pgx/v5.Conn).Close", "(*github.com/nats-io/nats.go.Subscription).Unsubscribe",
	"(*github.com/rondo-run/rondo/pkg/client.Client).Close",
	"(*github.com/rondo-run/rondo/internal/health.Server).Close",
}

// settings configure exhaustive. A switch over an enumeration or an interface of this module names
// every case, unless it has a default.
var settings = map[string]string{
	"check": "switch,typeswitch", "d": "true", "typeonly": `^github\.com/rondo-run/rondo/`,
}

func main() {
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, unchecked...)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if err := exhaustive.Analyzer.Flags.Set(name, settings[name]); err != nil {
			panic(err) // the settings above are wrong
		}
	}
	unitchecker.Main(append(vet.Suite, errors, nilerr.Analyzer, exhaustive.Analyzer)...)
}

// errors is errcheck, but for the calls that isExpected lists.
var errors = &analysis.Analyzer{Name: "errcheck", Doc: errcheck.Analyzer.Doc, Run: checkErrors}

func checkErrors(pass *analysis.Pass) (any, error) {
	filtered := *pass
	filtered.Report = func(d analysis.Diagnostic) {
		if !isExpected(pass, d.Pos) {
			pass.Report(d)
		}
	}
	_, err := errcheck.Analyzer.Run(&filtered)
	return nil, err
}

const orchestration = "github.com/rondo-run/rondo/pkg/orchestration"

// isExpected reports whether no caller needs the error of the call or receive at a position. An
// orchestration goes on when its status is too large to be shown. A test observes the effects of
// closing, setting and waiting, and receives errors as signals.
func isExpected(pass *analysis.Pass, pos token.Pos) bool {
	isTest := strings.HasSuffix(pass.Fset.Position(pos).Filename, "_test.go")
	call := callAt(pass, pos)
	if call == nil {
		return isTest
	}
	fn, _ := typeutil.Callee(pass.TypesInfo, call).(*types.Func)
	if fn == nil {
		return false
	}
	switch fn.Origin().FullName() {
	case "(" + orchestration + ".Status[T]).Set":
		return true
	case "(" + orchestration + ".Value[T]).Set", "(*" + orchestration + ".Context).WaitAll":
		return isTest
	}
	return isTest && fn.Name() == "Close"
}

// callAt finds a call by its opening parenthesis.
func callAt(pass *analysis.Pass, pos token.Pos) *ast.CallExpr {
	for _, f := range pass.Files {
		if pos < f.FileStart || f.FileEnd <= pos {
			continue
		}
		path, _ := astutil.PathEnclosingInterval(f, pos, pos)
		for _, n := range path {
			if call, ok := n.(*ast.CallExpr); ok && call.Lparen == pos {
				return call
			}
		}
	}
	return nil
}
