package rondo_test

import (
	"cmp"
	"fmt"
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
	"unicode"
	"unicode/utf8"
)

// This file keeps the repository in order: which package may import which, what the pure packages must not do, and how large and how well
// explained things are. It parses the files itself, so that it sees what is there and not what a build cache remembers.

// ---- The rules.

// module is the path of this module.
const module = "github.com/rondo-run/rondo"

// rule says what the files of a package may import, tests aside.
type rule struct {
	// imports are the packages of this module, by directory, and those of other modules, by their whole path. "dir/..." stands for
	// everything below dir.
	imports []string
	// pure packages give the same answer wherever and whenever they run: they may not import what is in outside, ask the
	// clock, or start goroutines.
	pure bool
	// partly are the exceptions from outside: the package, and the names of it that may be used ("*" for all).
	partly map[string]string
}

// packages is the table of all packages. The arrows point one way: from what runs things to what decides, from there to what is said.
var packages = map[string]rule{
	".": {},

	"pkg/events":      {pure: true, imports: []string{"internal/fields"}},
	"internal/fields": {pure: true},
	"internal/few":    {pure: true},
	"internal/program": {
		pure:    true,
		imports: []string{"internal/few", "pkg/events"},
		partly:  map[string]string{"context": "Context", "log/slog": "Attr Record", "math/rand/v2": "New NewChaCha8 Rand"},
	},
	"pkg/round": {
		pure:    true,
		imports: []string{"internal/few", "internal/program", "pkg/events"},
		partly:  map[string]string{"log/slog": "Attr Record"}, // to carry records and to print them, not to log
	},
	"pkg/orchestration": {
		pure:    true,
		imports: []string{"internal/program", "pkg/events", "golang.org/x/mod/semver"},
		partly:  map[string]string{"context": "*", "log/slog": "*", "math/rand/v2": "Rand"},
	},
	"pkg/activity": {
		imports: []string{"internal/program", "pkg/events", "pkg/orchestration"},
	},
	"pkg/rondotest": {
		imports: []string{"internal/program", "pkg/check", "pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity", "pkg/queue", "pkg/queue/queuepush", "go.opentelemetry.io/otel/propagation"},
	},
	"pkg/check": {imports: []string{"pkg/events", "pkg/round", "pkg/history", "pkg/bus"}},

	"pkg/queue":           {pure: true, partly: map[string]string{"context": "Context"}},
	"pkg/queue/queuepush": {imports: []string{"pkg/activity", "pkg/events", "pkg/orchestration", "pkg/queue", "go.opentelemetry.io/otel/propagation"}},
	"pkg/queue/queuetest": {imports: []string{"pkg/queue"}},

	"pkg/history":                     {imports: []string{"pkg/events", "pkg/round"}},
	"pkg/history/internal/relational": {imports: []string{"pkg/events", "pkg/round", "pkg/history", "pkg/queue"}},
	"pkg/history/cockroach": {imports: []string{
		"pkg/events", "pkg/round", "pkg/history", "pkg/history/internal/relational", "pkg/queue",
		"github.com/cockroachdb/cockroach-go/v2/...", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/...",
	}},
	"pkg/history/sqlite": {imports: []string{
		"pkg/events", "pkg/round", "pkg/history", "pkg/history/internal/relational", "pkg/queue",
		"modernc.org/sqlite", "modernc.org/sqlite/lib", "github.com/gofrs/flock",
	}},
	"pkg/history/historytest": {imports: []string{"internal/detector", "pkg/events", "pkg/round", "pkg/history", "pkg/queue", "pkg/queue/queuetest"}},

	"pkg/bus": {imports: []string{"pkg/events"}},
	"pkg/bus/natsbus": {imports: []string{
		"pkg/events", "pkg/bus", "github.com/nats-io/nats.go", "github.com/nats-io/nats.go/...", "github.com/synadia-io/orbit.go/natscontext",
		"golang.org/x/mod/semver", "golang.org/x/sync/semaphore",
	}},
	"pkg/bus/embedded": {imports: []string{"github.com/nats-io/nats-server/v2/server"}},
	"pkg/bus/bustest":  {imports: []string{"internal/detector", "internal/stall", "pkg/events", "pkg/bus"}},

	"pkg/process": {imports: []string{"pkg/bus"}},
	"pkg/outbox":  {imports: []string{"pkg/events", "pkg/round", "pkg/history", "pkg/bus"}},
	"pkg/query":   {imports: []string{"internal/fields", "pkg/events", "pkg/round", "pkg/history", "pkg/bus"}},
	"pkg/client":  {imports: []string{"pkg/events", "pkg/round", "pkg/history", "pkg/bus", "pkg/query", "pkg/process", "pkg/orchestration", "pkg/bus/natsbus", "github.com/robfig/cron/v3", "go.opentelemetry.io/otel/propagation"}},
	"pkg/telemetry": {imports: []string{
		"internal/program", "pkg/events", "pkg/round", "pkg/history", "pkg/bus", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/...", "go.opentelemetry.io/contrib/exporters/autoexport",
		"go.opentelemetry.io/contrib/bridges/otelslog", "go.opentelemetry.io/contrib/propagators/autoprop", "go.opentelemetry.io/contrib/instrumentation/runtime",
		"github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_golang/prometheus/collectors", "github.com/prometheus/client_golang/prometheus/promhttp",
	}},
	"services/orchestrator": {imports: []string{"internal/awake", "pkg/events", "pkg/round", "pkg/history", "pkg/bus", "pkg/outbox", "pkg/query", "pkg/process", "pkg/activity", "pkg/orchestration", "pkg/telemetry", "internal/health"}},
	"services/orchestrator/queues": {imports: []string{
		"pkg/queue", "pkg/history", "pkg/telemetry", "pkg/bus", "pkg/events", "golang.org/x/time/rate", "go.yaml.in/yaml/v3", "go.opentelemetry.io/otel/...", "golang.org/x/sync/semaphore",
	}},
	"services/worker": {imports: []string{"internal/awake", "pkg/events", "pkg/telemetry", "pkg/bus", "pkg/process", "pkg/activity", "pkg/orchestration", "internal/health", "golang.org/x/time/rate"}},
	"pkg/app": {imports: []string{
		"internal/columns", "internal/health", "internal/heap", "internal/program", "pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity", "pkg/history", "pkg/history/cockroach", "pkg/history/sqlite",
		"pkg/bus", "pkg/bus/natsbus", "pkg/bus/embedded", "pkg/outbox", "pkg/client", "pkg/query", "pkg/process", "pkg/queue", "pkg/queue/queuepush", "services/orchestrator", "services/orchestrator/queues", "services/worker", "pkg/telemetry",
		"go.yaml.in/yaml/v3",
	}},
	"internal/health":   {},
	"internal/awake":    {},
	"internal/heap":     {},
	"internal/natstest": {imports: []string{"internal/stall", "pkg/bus", "pkg/bus/natsbus", "pkg/bus/embedded"}},

	"internal/columns":  {pure: true},
	"internal/detector": {},
	"internal/stall":    {},
	"internal/sim":      {imports: []string{"pkg/events", "pkg/bus"}},
	"pkg/timeline":      {pure: true, imports: []string{"pkg/events"}},

	"internal/pgtest":  {imports: []string{"github.com/jackc/pgx/v5"}},
	"internal/pgfault": {imports: []string{"github.com/jackc/pgx/v5/pgproto3"}},

	"bench": {imports: []string{
		"internal/heap", "internal/pgtest", "pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity", "pkg/history", "pkg/bus", "pkg/bus/natsbus", "pkg/bus/embedded", "pkg/query", "pkg/client",
		"pkg/check", "pkg/app", "github.com/jackc/pgx/v5", "golang.org/x/sys/unix",
	}},

	"cmd/rondo": {imports: []string{
		"pkg/events", "pkg/round", "pkg/orchestration", "pkg/history", "pkg/bus", "pkg/bus/natsbus", "pkg/client", "pkg/query", "pkg/process", "pkg/timeline", "pkg/app",
		"pkg/check", "internal/columns", "examples/orders/shop", "github.com/mattn/go-isatty", "github.com/spf13/cobra", "github.com/spf13/pflag",
	}},

	"integration":                  {imports: []string{"integration/internal/hostile", "integration/internal/work", "services/orchestrator", "services/orchestrator/queues", "services/worker", "pkg/outbox", "pkg/query", "pkg/queue", "pkg/queue/queuepush", "pkg/client", "pkg/app"}},
	"integration/chaos":            {imports: []string{"integration/internal/hostile", "integration/internal/work", "services/orchestrator", "services/worker", "pkg/client"}},
	"integration/internal/hostile": {imports: []string{"pkg/events", "github.com/nats-io/nats.go"}},
	"integration/internal/work":    {imports: []string{"pkg/events", "pkg/orchestration", "pkg/activity"}},
	"integration/otlp": {imports: []string{
		"integration/internal/work", "pkg/client", "pkg/app", "examples/orders/...",
		"go.opentelemetry.io/collector/...", "go.opentelemetry.io/otel", "go.uber.org/zap",
	}},
	"integration/dashboards": {imports: []string{
		"pkg/telemetry", "pkg/app", "pkg/client", "pkg/bus/natsbus", "pkg/orchestration", "examples/orders/contract",
		"github.com/prometheus/prometheus/...", "github.com/prometheus/common/model", "go.yaml.in/yaml/v3",
	}},
	"integration/openapi": {imports: []string{"pkg/queue", "pkg/history", "pkg/history/sqlite", "services/orchestrator/queues", "github.com/getkin/kin-openapi/..."}},
	"deploy/images": {imports: []string{
		"github.com/google/go-containerregistry/...", "golang.org/x/crypto/x509roots/fallback/bundle", "golang.org/x/mod/modfile",
	}},
	"integration/helm": {imports: []string{
		"pkg/app", "helm.sh/helm/v4/pkg/...", "k8s.io/api/...", "k8s.io/apimachinery/pkg/...", "k8s.io/client-go/dynamic", "sigs.k8s.io/yaml", "golang.org/x/sys/unix",
		"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
	}},
	"integration/cluster/load": {imports: []string{"pkg/bus/natsbus", "pkg/client", "pkg/orchestration", "examples/orders/contract"}},
	"integration/simulation":   {imports: []string{"services/orchestrator", "services/worker"}},
	"examples/...":             {imports: []string{"pkg/...", "examples/..."}},
}

// outside is the part of the standard library that pure packages leave alone, each with what is below it.
var outside = []string{
	"context", "crypto/rand", "database", "embed", "expvar", "io/fs", "io/ioutil", "log", "math/rand", "net", "os", "path/filepath", "plugin",
	"runtime/pprof", "runtime/trace", "syscall", "testing", "unsafe",
}

// clock are the names of package time that ask what time it is, or wait.
var clock = strings.Fields("After AfterFunc NewTicker NewTimer Now Since Sleep Tick Until")

// testImports are what tests may import besides what their package may, and besides all of the standard library.
var testImports = []string{
	"internal/program", "pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity", "pkg/rondotest",
	"pkg/check", "pkg/process", "pkg/queue/queuetest", "pkg/history", "pkg/history/...", "internal/pgtest", "internal/pgfault",
	"pkg/bus", "pkg/bus/...", "internal/natstest", "internal/detector", "internal/stall", "internal/sim",
	"github.com/nats-io/nats.go", "github.com/nats-io/nats.go/...", "github.com/nats-io/nats-server/v2/server",
	"github.com/cockroachdb/cockroach-go/v2/...",
	"github.com/cockroachdb/datadriven",
	"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/...",
	"github.com/rogpeppe/go-internal/testscript",
	"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/...",
	"github.com/prometheus/client_golang/prometheus/testutil/promlint",
	"go.uber.org/goleak",
	"pkg/telemetry",
	"examples/orders/contract", "examples/orders/shop",
}

// emptyNames are names of packages that say nothing about what is in them.
var emptyNames = strings.Fields("common helper helpers interfaces misc mock mocks models types util utils")

const (
	maxFileLines     = 700
	maxFunctionLines = 120
)

// words are what must not be in Go and Markdown files, and what to do instead. Those in capitals are only meant in capitals. They are
// written in pieces, so that this file does not find itself.
var words = map[string]string{
	"TO" + "DO": unplanned, "FIX" + "ME": unplanned, "XX" + "X": unplanned,

	"age" + "nt": unnamed, "age" + "nts": unnamed, "subage" + "nt": unnamed, "subage" + "nts": unnamed, "sub-age" + "nt": unnamed, "sub-age" + "nts": unnamed,

	"bla" + "zing": boasted, "cutting-" + "edge": boasted, "effort" + "less": boasted, "effort" + "lessly": boasted, "next-" + "generation": boasted,
	"seam" + "less": boasted, "seam" + "lessly": boasted, "world-" + "class": boasted,
}

const (
	unplanned = "do it now, or leave it out; what is planned does not belong into the files"
	unnamed   = "name the thing by what it does: worker, client, process"
	boasted   = "say what it does, with a number if there is one"
)

var (
	// conversation finds references that only make sense to those who were there.
	conversation = regexp.MustCompile(`(?i)\b(issue|task|ticket|session|pull request) ?` + `#\d+`)
	// machinePath finds absolute paths of somebody's machine, in files of every kind; not when beforePath is before it.
	machinePath = regexp.MustCompile(`/(wo` + `rk|ro` + `ot|ho` + `me|Us` + `ers)/`)
)

// beforePath are the characters after which a path is no absolute one (letters and digits are, too).
const beforePath = "_./$})*-"

// ---- The checks.

func TestImports(t *testing.T) {
	eachFile(t, checkImports)
	eachFile(t, checkPackageName)
}

// TestPure checks that nothing that is replayed depends on when, where or how often it runs.
func TestPure(t *testing.T) { eachFile(t, checkPure) }

func TestTestsDoNotSleep(t *testing.T) { eachFile(t, checkSleep) }

func TestSizes(t *testing.T) { eachFile(t, checkSizes) }

func TestPackageComments(t *testing.T) {
	byDir := make(map[string][]*source)
	for _, f := range tree(t) {
		if !f.test {
			byDir[f.dir] = append(byDir[f.dir], f)
		}
	}
	for dir, files := range byDir {
		report(t, checkPackageComment(dir, files))
	}
}

func TestWords(t *testing.T) {
	err := walk(func(name string) error {
		data, err := os.ReadFile(filepath.FromSlash(name))
		if err == nil && utf8.Valid(data) {
			report(t, checkWords(name, string(data)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkImports(f *source) []string {
	r, ok := ruleFor(f.dir)
	if !ok {
		return []string{fmt.Sprintf("%s: nobody said what package directory %s may import: add it to the table of packages in tidy_test.go", f.path, f.dir)}
	}
	allowed := r.imports
	if f.test {
		allowed = slices.Concat(r.imports, testImports, []string{f.dir})
	}
	var bad []string
	for _, i := range f.file.Imports {
		imported := importPath(i)
		own, isOwn := strings.CutPrefix(imported, module+"/")
		switch {
		case imported == module:
			own, isOwn = ".", true
		case !isOwn:
			own = imported
		}
		if !isOwn && isStandard(imported) {
			if err := checkStandard(f, r, i); err != "" {
				bad = append(bad, err)
			}
			continue
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return within(own, a) }) {
			bad = append(bad, fmt.Sprintf("%s: %s may not import %s: move the code to where it may, or, if the arrow is right, add it to %s in tidy_test.go",
				f.at(i.Pos()), f.what(), own, f.table()))
		}
	}
	return bad
}

// checkStandard says what is wrong with an import of the standard library; "" if nothing.
func checkStandard(f *source, r rule, i *ast.ImportSpec) string {
	p := importPath(i)
	if f.test || !r.pure || !slices.ContainsFunc(outside, func(o string) bool { return within(p, o+"/...") || p == o }) {
		return ""
	}
	names, partly := r.partly[p]
	switch {
	case !partly:
		return fmt.Sprintf("%s: %s is pure and may not import %s: pass in what it needs as a parameter", f.at(i.Pos()), f.dir, p)
	case i.Name != nil && i.Name.Name == ".":
		return fmt.Sprintf("%s: import %s by its name, so that it can be seen what is used of it", f.at(i.Pos()), p)
	case names == "*":
		return ""
	}
	for _, m := range f.mentions {
		if m.pkg == p && !slices.Contains(strings.Fields(names), m.name) {
			return fmt.Sprintf("%s: %s is pure and may use only %s of package %s, not %s: pass in what it needs as a parameter",
				f.at(m.pos), f.dir, strings.Join(strings.Fields(names), ", "), p, m.name)
		}
	}
	return ""
}

func checkPackageName(f *source) []string {
	if base := path.Base(f.dir); slices.Contains(emptyNames, base) {
		return []string{fmt.Sprintf("%s: %q does not say what is in the package: name it after the thing it holds", f.path, base)}
	}
	return nil
}

func checkPure(f *source) []string {
	if r, _ := ruleFor(f.dir); f.test || !r.pure {
		return nil
	}
	var bad []string
	for _, m := range f.mentions {
		if m.pkg == "time" && slices.Contains(clock, m.name) {
			bad = append(bad, fmt.Sprintf("%s: time.%s in %s, which is pure: take the time as a parameter, leave the waiting to the caller", f.at(m.pos), m.name, f.dir))
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			bad = append(bad, fmt.Sprintf("%s: a goroutine in %s, which is pure: call the function, or leave the concurrency to the caller", f.at(g.Pos()), f.dir))
		}
		return true
	})
	return bad
}

func checkSleep(f *source) []string {
	var bad []string
	for _, m := range f.mentions {
		if f.test && m.pkg == "time" && m.name == "Sleep" {
			bad = append(bad, fmt.Sprintf("%s: a test sleeps: wait for the thing itself (a channel, a message), or pass in the time", f.at(m.pos)))
		}
	}
	return bad
}

func checkSizes(f *source) []string {
	if f.test {
		return nil
	}
	var bad []string
	if n := f.fset.File(f.file.FileStart).LineCount(); n > maxFileLines {
		bad = append(bad, fmt.Sprintf("%s:%d: the file has %d lines, at most %d are readable: find the second noun in it and give it a file", f.path, n, n, maxFileLines))
	}
	for _, d := range f.file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
		if n > maxFunctionLines {
			bad = append(bad, fmt.Sprintf("%s: function %s has %d lines, at most %d are readable: give its parts names", f.at(fn.Pos()), fn.Name.Name, n, maxFunctionLines))
		}
	}
	return bad
}

func checkPackageComment(dir string, files []*source) []string {
	var said []*source
	for _, f := range files {
		if f.file.Doc != nil {
			said = append(said, f)
		}
	}
	name := files[0].file.Name.Name
	want := "Package " + name + " "
	if name == "main" {
		want = "Command " + path.Base(dir) + " "
	}
	switch {
	case len(said) == 0:
		return []string{fmt.Sprintf("%s: package %s has no package comment: say in one sentence, beginning with %q, what it is, above the package line of the file that has its name", dir, name, want)}
	case len(said) > 1:
		return []string{fmt.Sprintf("%s: package %s has a package comment here and in %s: keep one", said[1].path, name, said[0].path)}
	case !strings.HasPrefix(said[0].file.Doc.Text(), want):
		return []string{fmt.Sprintf("%s: begin the package comment with %q", said[0].at(said[0].file.Doc.Pos()), want)}
	}
	return nil
}

func checkWords(name, text string) []string {
	prose := strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".md")
	var bad []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		at := name + ":" + strconv.Itoa(number)
		if m := findMachinePath(line); m != "" {
			bad = append(bad, fmt.Sprintf("%s: %q is a path of one machine only: write it relative to the repository, or make a temporary directory", at, m))
		}
		if !prose {
			continue
		}
		if m := findConversation(line); m != "" {
			bad = append(bad, fmt.Sprintf("%s: %q: say in the text itself what the reader must know; name a bug of somebody else's by its full address", at, m))
		}
		for w := range strings.FieldsFuncSeq(line, isBetweenWords) {
			w = strings.Trim(w, ".-")
			if cure := cmp.Or(words[w], words[strings.ToLower(w)]); cure != "" {
				bad = append(bad, fmt.Sprintf("%s: %q: %s", at, w, cure))
			}
		}
	}
	return bad
}

// isBetweenWords tells where a word ends. What is joined by a dot or a hyphen is one word.
func isBetweenWords(r rune) bool { return !unicode.IsLetter(r) && r != '.' && r != '-' }

// findConversation finds a number that a reader could not look up. Most lines are told apart by one character.
func findConversation(line string) string {
	if !strings.Contains(line, "#") {
		return ""
	}
	return conversation.FindString(line)
}

func findMachinePath(line string) string {
	if !strings.Contains(line, "/") {
		return ""
	}
	for _, m := range machinePath.FindAllStringIndex(line, -1) {
		before, _ := utf8.DecodeLastRuneInString(line[:m[0]])
		if m[0] == 0 || !unicode.IsLetter(before) && !unicode.IsDigit(before) && !strings.ContainsRune(beforePath, before) {
			return line[m[0]:m[1]]
		}
	}
	return ""
}

// TestChecksNotice makes sure that the checks find what they are there to find, and nothing else.
func TestChecksNotice(t *testing.T) {
	const round = "pkg/round/x.go"
	cases := []struct {
		name, path, src string
		check           func(*source) []string
		want            string // part of the problem; "" if there is none
	}{
		{"unknown package", "pkg/new/new.go", `package new`, checkImports, "add it to the table"},
		{"unknown package with tests only", "pkg/new/new_test.go", `package new`, checkImports, "add it to the table"},
		{"wrong arrow", "pkg/events/x.go", `package events; import "github.com/rondo-run/rondo/pkg/round"`, checkImports, "may not import pkg/round"},
		{"right arrow", round, `package round; import "github.com/rondo-run/rondo/pkg/events"`, checkImports, ""},
		{"wrong arrow in a test", "pkg/round/x_test.go", `package round; import "github.com/rondo-run/rondo/services/orchestrator"`, checkImports, "testImports"},
		{"own package in a test", "examples/a/x_test.go", `package a; import "github.com/rondo-run/rondo/examples/a"`, checkImports, ""},
		{"example of public packages", "examples/a/x.go", `package a; import "github.com/rondo-run/rondo/pkg/activity"`, checkImports, ""},
		{"example of an internal package", "examples/a/x.go", `package a; import "github.com/rondo-run/rondo/internal/program"`, checkImports, "may not import internal/program"},
		{"library", "pkg/events/x.go", `package events; import "example.com/uuid"`, checkImports, "may not import example.com/uuid"},
		{"standard library", "pkg/events/x.go", `package events; import "encoding/json"`, checkImports, ""},
		{"network", "pkg/events/x.go", `package events; import "net/http"`, checkImports, "is pure"},
		{"other package with the same beginning", "pkg/events/x.go", `package events; import "maps"; import "path"`, checkImports, ""},
		{"context", round, `package round; import "context"`, checkImports, "is pure"},
		{"part of a package", round, `package round; import "log/slog"; var r slog.Record`, checkImports, ""},
		{"other part of a package", round, `package round; import l "log/slog"; func f() { l.Info("") }`, checkImports, "not Info"},
		{"dot import", round, `package round; import . "log/slog"`, checkImports, "by its name"},
		{"chance without a source", "internal/program/x.go", `package program; import "math/rand/v2"; var n = rand.Int()`, checkImports, "not Int"},
		{"anything in a test", "pkg/events/x_test.go", `package events; import "os"`, checkImports, ""},
		{"no goroutine", round, `package round; func f() { f() }`, checkPure, ""},
		{"goroutine", round, `package round; func f() { go f() }`, checkPure, "a goroutine"},
		{"clock", round, `package round; import "time"; var now = time.Now`, checkPure, "time.Now"},
		{"clock under another name", round, `package round; import t "time"; func f() { <-t.After(1) }`, checkPure, "time.After"},
		{"time without a clock", round, `package round; import "time"; var t = time.Unix(0, 0)`, checkPure, ""},
		{"clock where it may be", "pkg/activity/x.go", `package activity; import "time"; var now = time.Now`, checkPure, ""},
		{"sleeping test", "pkg/round/x_test.go", `package round; import "time"; func f() { time.Sleep(1) }`, checkSleep, "a test sleeps"},
		{"long file", round, "package round" + strings.Repeat("\n", maxFileLines+1), checkSizes, "the file has 701 lines"},
		{"file that is just short enough", round, "package round" + strings.Repeat("\n", maxFileLines), checkSizes, ""},
		{"long function", round, "package round; func f() {" + strings.Repeat("\n", maxFunctionLines) + "}", checkSizes, "function f has 121 lines"},
		{"name that says nothing", "pkg/util" + "s/x.go", `package x`, checkPackageName, "does not say"},
		{"no comment", round, `package round`, commentOf, "has no package comment"},
		{"comment", round, "// Package round decides.\npackage round", commentOf, ""},
		{"other comment", round, "// This decides.\npackage round", commentOf, "begin the package comment"},
		{"comment of a command", "cmd/rondo/main.go", "// Command rondo is the command line.\npackage main", commentOf, ""},
		{"plan", round, "package round // TO" + "DO: more", wordsOf, "do it now"},
		{"name that looks like a plan", round, "package round // context.TO" + "DO()", wordsOf, ""},
		{"number of a conversation", round, "package round // see issue " + "#12", wordsOf, "say in the text itself"},
		{"header", round, "package round // the User-Age" + "nt header", wordsOf, ""},
		{"machine path", round, "package round // see /ro" + "ot/x", wordsOf, "one machine only"},
		{"address", round, "package round // see https://example.com/ho" + "me/x", wordsOf, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, err := parse(c.path, c.src)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(c.check(f), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}

func commentOf(f *source) []string { return checkPackageComment(f.dir, []*source{f}) }
func wordsOf(f *source) []string   { return checkWords(f.path, f.text) }

// ---- The files.

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
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		f, err := parse(name, string(text))
		files = append(files, f)
		return err
	})
	return files, err
})

// walk visits all files of the repository, by their paths from its root. What git ignores is left out.
func walk(visit func(name string) error) error {
	ignored := []string{".git", "bin"}
	return filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(ignored, name) || d.Name() == "node_modules" || d.Name() == ".rondo"):
			return filepath.SkipDir
		case slices.Contains(ignored, name) || !d.Type().IsRegular() || strings.HasSuffix(name, ".test") || strings.HasSuffix(name, ".out"):
			return nil
		}
		return visit(filepath.ToSlash(name))
	})
}

func parse(name, text string) (*source, error) {
	f := &source{path: name, dir: path.Dir(name), text: text, test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet()}
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

// ruleFor finds a directory's row in the table.
func ruleFor(dir string) (rule, bool) {
	if r, ok := packages[dir]; ok {
		return r, true
	}
	for pattern, r := range packages {
		if strings.HasSuffix(pattern, "/...") && within(dir, pattern) {
			return r, true
		}
	}
	return rule{}, false
}

// within tells whether a path is what a pattern says: the path itself, or "dir/..." for everything below dir.
func within(p, pattern string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	return p == pattern
}
