package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// module is the path of this module.
const module = "github.com/rondo-run/rondo"

// rule says what the files of a package may import, tests aside.
type rule struct {
	// imports are the packages of this module, by directory, and those of other modules, by their
	// whole path. "dir/..." stands for everything below dir.
	imports []string
	// pure packages give the same answer wherever and whenever they run: they may not import what
	// is in outside, ask the clock, or start goroutines.
	pure bool
	// partly are the exceptions from outside: the package, and the names of it that may be used
	// ("*" for all).
	partly map[string]string
}

// packages is the table of all packages. The arrows point one way: from what runs things to what
// decides, from there to what is said.
var packages = map[string]rule{
	"pkg/codec":   {pure: true, imports: []string{"internal/x/plural", "internal/x/jsonw"}},
	"pkg/failure": {pure: true, imports: []string{"pkg/codec"}},
	"pkg/events": {pure: true, imports: []string{"internal/x/plural", "internal/x/jsonw", "pkg/codec",
		"pkg/failure"}},
	"internal/x/jsonw":    {pure: true},
	"internal/x/smallmap": {pure: true},
	"internal/x/signal":   {pure: true},
	"internal/x/backoff":  {pure: true},
	"internal/x/plural":   {pure: true},
	"internal/coro": {
		pure:    true,
		imports: []string{"pkg/codec", "pkg/failure", "internal/x/smallmap", "pkg/events"},
		partly: map[string]string{"context": "Context", "log/slog": "Attr Record",
			"math/rand/v2": "New NewChaCha8 Rand"},
	},
	"pkg/round": {
		pure: true,
		imports: []string{"internal/x/plural", "internal/x/backoff", "pkg/codec",
			"pkg/failure", "internal/x/smallmap", "internal/coro", "pkg/events"},
		partly: map[string]string{"log/slog": "Attr Record"}, // to carry records and to print them, not to log
	},
	"pkg/orchestration": {
		pure: true,
		imports: []string{"pkg/codec", "pkg/failure", "internal/coro", "internal/x/datatype", "pkg/events",
			"golang.org/x/mod/semver"},
		partly: map[string]string{"context": "*", "log/slog": "*", "math/rand/v2": "Rand"},
	},
	"pkg/activity": {
		imports: []string{"pkg/codec", "pkg/failure", "internal/x/datatype", "pkg/events", "pkg/orchestration"},
	},
	"pkg/rondotest": {
		imports: []string{"pkg/codec", "pkg/failure", "internal/coro", "internal/check", "pkg/events", "pkg/round",
			"pkg/orchestration",
			"pkg/activity", "internal/jobs", "internal/jobpushed", "pkg/jobpush",
			"go.opentelemetry.io/otel/propagation"},
	},
	"internal/check": {imports: []string{"internal/x/plural", "pkg/codec", "pkg/failure", "pkg/events", "pkg/round",
		"pkg/history",
		"internal/broker"}},

	"internal/schedule": {pure: true, imports: []string{"internal/x/plural", "pkg/events",
		"github.com/robfig/cron/v3"}},

	"internal/jobs": {pure: true, imports: []string{"internal/x/plural"},
		partly: map[string]string{"context": "Context"}},
	"internal/jobpushed": {imports: []string{"pkg/codec", "pkg/failure", "pkg/activity", "pkg/events",
		"internal/jobs",
		"go.opentelemetry.io/otel/propagation"}},
	"pkg/jobpush": {imports: []string{"pkg/codec", "pkg/activity", "pkg/events", "pkg/orchestration", "internal/jobs",
		"internal/jobpushed"}},
	"internal/jobs/jobstest": {imports: []string{"internal/jobs", "internal/racetest"}},

	"pkg/history": {imports: []string{"pkg/codec", "pkg/failure", "pkg/events", "pkg/round"}},
	"pkg/history/internal/sqlrow": {imports: []string{"pkg/codec", "pkg/failure", "pkg/events", "pkg/round",
		"pkg/history"}},
	"pkg/history/internal/sqladmin": {imports: []string{"pkg/failure", "pkg/events", "pkg/round", "pkg/history",
		"pkg/history/internal/sqlrow"}},
	"pkg/history/internal/sqljobs": {imports: []string{"pkg/history", "pkg/history/internal/sqlrow",
		"internal/jobs"}},
	"pkg/history/cockroach": {imports: []string{
		"pkg/round", "pkg/history", "pkg/history/internal/sqlrow", "pkg/history/internal/sqladmin",
		"pkg/history/internal/sqljobs", "internal/jobs", "internal/x/bounded",
		"github.com/cockroachdb/cockroach-go/v2/...", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/...",
	}},
	"pkg/history/sqlite": {imports: []string{
		"pkg/round", "pkg/history", "pkg/history/internal/sqlrow", "pkg/history/internal/sqladmin",
		"pkg/history/internal/sqljobs", "internal/jobs",
		"modernc.org/sqlite", "modernc.org/sqlite/lib", "github.com/gofrs/flock",
	}},
	"pkg/history/historytest": {imports: []string{"pkg/codec", "pkg/failure", "internal/racetest", "internal/seedtest",
		"pkg/events",
		"pkg/round", "pkg/history",
		"internal/jobs", "internal/jobs/jobstest"}},

	"internal/broker": {imports: []string{"internal/x/plural", "internal/x/backoff", "pkg/events"}},
	"internal/broker/nats": {imports: []string{"internal/x/signal", "internal/x/backoff", "internal/x/bounded",
		"internal/x/last",
		"pkg/events", "internal/broker", "github.com/nats-io/nats.go", "github.com/nats-io/nats.go/...",
		"github.com/synadia-io/orbit.go/natscontext",
		"golang.org/x/mod/semver", "golang.org/x/sync/semaphore",
	}},
	"internal/broker/embedded": {imports: []string{"github.com/nats-io/nats-server/v2/server"}},
	"internal/broker/brokertest": {imports: []string{"internal/racetest", "internal/slowtest", "pkg/events",
		"internal/broker"}},

	"internal/identity":  {imports: []string{"internal/broker", "pkg/history"}},
	"internal/process":   {imports: []string{"internal/broker"}},
	"internal/busclient": {imports: []string{"pkg/codec", "internal/broker", "pkg/history"}},
	"pkg/outbox": {imports: []string{"internal/x/signal", "pkg/failure", "pkg/events", "pkg/round", "pkg/history",
		"internal/broker", "golang.org/x/time/rate"}},
	"internal/query": {imports: []string{"internal/x/plural", "internal/x/backoff", "pkg/codec", "pkg/failure",
		"internal/x/jsonw",
		"pkg/events", "pkg/round", "pkg/history",
		"internal/broker", "internal/schedule"}},
	"pkg/client": {imports: []string{"internal/x/signal", "internal/schedule",
		"pkg/codec", "pkg/failure", "internal/busclient", "pkg/events", "pkg/round",
		"pkg/history", "internal/broker",
		"internal/query", "internal/process",
		"pkg/orchestration", "internal/broker/nats", "github.com/nats-io/nats.go",
		"go.opentelemetry.io/otel/propagation"}},
	"internal/telemetry": {imports: []string{"internal/x/last", "pkg/codec", "pkg/failure",
		"internal/coro", "pkg/events", "pkg/round", "pkg/history", "internal/broker", "go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/...", "go.opentelemetry.io/contrib/exporters/autoexport",
		"go.opentelemetry.io/contrib/bridges/otelslog", "go.opentelemetry.io/contrib/propagators/autoprop",
		"go.opentelemetry.io/contrib/instrumentation/runtime",
		"github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_golang/prometheus/collectors",
		"github.com/prometheus/client_golang/prometheus/promhttp",
	}},
	"services/orchestrator": {imports: []string{"internal/identity", "internal/x/signal", "internal/x/backoff",
		"internal/x/last",
		"pkg/codec", "pkg/failure", "internal/awake", "pkg/events",
		"pkg/round", "pkg/history",
		"internal/broker", "pkg/outbox", "internal/query", "pkg/orchestration", "internal/telemetry",
		"services/orchestrator/maintenance", "services/orchestrator/ownership", "services/orchestrator/report",
		"services/orchestrator/schedules", "services/orchestrator/steps", "golang.org/x/time/rate",
		"golang.org/x/sync/semaphore",
	}},
	"services/orchestrator/maintenance": {imports: []string{"pkg/events", "pkg/round", "pkg/history",
		"internal/broker", "pkg/outbox", "internal/telemetry", "golang.org/x/time/rate"}},
	"services/orchestrator/ownership": {imports: []string{"pkg/events", "pkg/round", "internal/broker",
		"internal/telemetry"}},
	"services/orchestrator/report": {imports: []string{"pkg/events", "pkg/failure",
		"pkg/round", "pkg/history", "internal/broker",
		"internal/query", "internal/process", "internal/telemetry", "services/orchestrator/ownership"}},
	"services/orchestrator/schedules": {imports: []string{"internal/x/signal", "pkg/codec", "pkg/events", "pkg/failure",
		"pkg/history", "internal/broker", "pkg/outbox", "internal/query", "internal/schedule", "internal/settings",
		"internal/telemetry", "golang.org/x/time/rate"}},
	"services/orchestrator/steps": {imports: []string{"pkg/codec", "pkg/failure", "pkg/activity", "pkg/events",
		"pkg/round",
		"internal/telemetry"}},
	"services/jobs": {imports: []string{"internal/x/plural", "internal/x/signal", "internal/x/backoff",
		"internal/x/bounded",
		"pkg/codec",
		"internal/jobs", "pkg/history", "internal/telemetry", "internal/broker", "pkg/events",
		"golang.org/x/time/rate",
		"go.yaml.in/yaml/v3", "go.opentelemetry.io/otel/...",
	}},
	"services/worker": {imports: []string{"golang.org/x/time/rate", "golang.org/x/sync/semaphore",
		"internal/x/plural", "internal/x/signal", "internal/x/backoff",
		"internal/x/jsonw", "internal/x/last",
		"pkg/codec", "pkg/failure", "internal/awake", "pkg/events",
		"internal/telemetry", "internal/broker",
		"internal/process",
		"pkg/activity", "internal/health", "services/worker/scheduler"}},
	"services/worker/scheduler": {pure: true, imports: []string{"golang.org/x/time/rate"}},
	"pkg/app": {imports: []string{"pkg/codec",
		"internal/timeline", "internal/columns", "internal/health", "internal/x/gctune", "internal/x/redact",
		"internal/x/printable", "internal/x/signal", "internal/x/bounded",
		"internal/busclient", "internal/database", "internal/devdir", "internal/settings", "internal/version",
		"pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity", "pkg/history", "pkg/history/sqlite",
		"internal/broker", "internal/broker/nats", "internal/broker/embedded", "pkg/outbox", "pkg/client",
		"internal/query", "internal/process", "internal/identity",
		"internal/jobs", "internal/jobpushed", "pkg/jobpush", "services/orchestrator", "services/jobs",
		"services/worker",
		"internal/telemetry",
	}},
	"internal/settings": {imports: []string{"internal/columns", "internal/x/redact", "internal/broker/nats",
		"go.yaml.in/yaml/v3"}},
	"internal/database": {imports: []string{"internal/x/redact", "internal/jobs", "pkg/history",
		"pkg/history/cockroach", "pkg/history/sqlite"}},
	"internal/devdir":      {},
	"internal/version":     {imports: []string{"pkg/events"}},
	"internal/x/redact":    {pure: true},
	"internal/x/datatype":  {pure: true},
	"internal/x/printable": {},
	"internal/x/bounded":   {},
	"internal/x/last":      {},
	"internal/health":      {},
	"internal/tidy":        {},
	"internal/awake":       {},
	"internal/x/gctune":    {},
	"internal/natstest": {imports: []string{"github.com/nats-io/nats.go", "internal/slowtest", "internal/broker/nats",
		"internal/broker/embedded"}},

	"internal/columns":          {pure: true},
	"internal/racetest":         {},
	"internal/slowtest":         {},
	"internal/seedtest":         {},
	"internal/broker/brokersim": {imports: []string{"pkg/events", "internal/broker", "internal/x/signal"}},
	"internal/timeline": {imports: []string{"internal/x/printable", "pkg/codec", "pkg/failure",
		"pkg/events"}},

	"internal/pgtest":       {imports: []string{"github.com/jackc/pgx/v5"}},
	"internal/pgtest/share": {imports: []string{"internal/pgtest"}},
	"internal/pgfault":      {imports: []string{"github.com/jackc/pgx/v5/pgproto3"}},

	"bench": {imports: []string{"pkg/codec",
		"internal/x/gctune", "internal/pgtest", "pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity",
		"pkg/history", "internal/broker", "internal/broker/nats", "internal/broker/embedded",
		"internal/query", "pkg/client",
		"internal/check", "internal/database", "internal/settings", "pkg/app",
		"github.com/jackc/pgx/v5", "golang.org/x/sys/unix",
	}},

	"cmd/rondo": {imports: []string{"internal/x/plural", "internal/identity", "internal/x/printable", "pkg/codec",
		"pkg/failure",
		"pkg/events", "pkg/round", "pkg/orchestration", "pkg/history", "internal/broker",
		"internal/broker/nats", "internal/busclient", "pkg/client",
		"internal/timeline", "internal/database", "internal/devdir", "internal/settings", "internal/version",
		"pkg/app", "internal/query",
		"internal/check", "internal/columns", "examples/orders/shop", "github.com/mattn/go-isatty",
		"github.com/spf13/cobra",
		"github.com/spf13/pflag",
	}},

	"integration": {imports: []string{"internal/identity", "integration/internal/hostile", "integration/internal/work",
		"services/orchestrator", "services/jobs", "services/worker", "internal/query", "internal/schedule",
		"internal/jobs", "internal/jobpushed", "pkg/jobpush", "pkg/client"}},
	"integration/chaos": {imports: []string{"integration/internal/hostile", "integration/internal/work",
		"services/orchestrator", "services/worker", "pkg/client"}},
	"integration/internal/hostile": {imports: []string{"pkg/events", "github.com/nats-io/nats.go"}},
	"integration/internal/work": {imports: []string{"pkg/codec", "pkg/events", "pkg/orchestration",
		"pkg/activity"}},
	"internal/tools/gate": {},
	"internal/tools/lint": {imports: []string{
		"github.com/gostaticanalysis/nilerr", "github.com/kisielk/errcheck/errcheck",
		"github.com/nishanths/exhaustive/passes/exhaustive", "golang.org/x/tools/go/...",
	}},
	"integration/otlp": {imports: []string{
		"integration/internal/work", "pkg/client", "pkg/app",
		"go.opentelemetry.io/collector/...", "go.uber.org/zap",
	}},
	"integration/dashboards": {imports: []string{
		"pkg/client",
		"internal/columns", "internal/devdir",
		"github.com/prometheus/prometheus/...", "github.com/prometheus/common/model", "go.yaml.in/yaml/v3",
	}},
	"integration/openapi": {imports: []string{"internal/jobs",
		"services/jobs", "github.com/getkin/kin-openapi/..."}},
	"deploy/images": {imports: []string{
		"github.com/google/go-containerregistry/...", "golang.org/x/crypto/x509roots/fallback/bundle",
		"golang.org/x/mod/modfile",
	}},
	"integration/helm": {imports: []string{
		"pkg/app", "internal/settings", "helm.sh/helm/v4/pkg/...", "k8s.io/api/...", "k8s.io/apimachinery/pkg/...",
		"k8s.io/client-go/dynamic", "sigs.k8s.io/yaml", "golang.org/x/sys/unix",
		"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
	}},
	"integration/cluster/load": {imports: []string{"pkg/client", "pkg/orchestration",
		"examples/orders/contract"}},
	"integration/simulation": {imports: []string{"internal/identity", "internal/query", "internal/schedule",
		"services/orchestrator", "services/worker"}},
	"examples/...": {imports: []string{"pkg/...", "examples/..."}},
}

// outside is the part of the standard library that pure packages leave alone, each with what is
// below it.
var outside = []string{
	"context", "crypto/rand", "database", "embed", "expvar", "io/fs", "io/ioutil", "log", "math/rand", "net", "os",
	"path/filepath", "plugin",
	"runtime/pprof", "runtime/trace", "syscall", "testing", "unsafe",
}

// clock are the names of package time that ask what time it is, or wait.
var clock = strings.Fields("After AfterFunc NewTicker NewTimer Now Since Sleep Tick Until")

// testImports are what tests may import besides what their package may, and besides all of the
// standard library.
var testImports = []string{
	"pkg/codec", "pkg/failure", "pkg/events", "pkg/round", "pkg/orchestration", "pkg/activity", "pkg/rondotest",
	"internal/busclient", "internal/check", "internal/jobs/jobstest", "pkg/history", "pkg/history/...",
	"internal/pgtest", "internal/pgfault",
	"internal/broker", "internal/broker/...", "internal/natstest", "internal/racetest", "internal/seedtest",
	"internal/slowtest", "internal/process",
	"github.com/nats-io/nats.go", "github.com/nats-io/nats.go/...", "github.com/nats-io/nats-server/v2/server",
	"github.com/cockroachdb/datadriven",
	"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/...",
	"github.com/rogpeppe/go-internal/testscript",
	"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/...",
	"github.com/prometheus/client_golang/prometheus/testutil/promlint",
	"go.uber.org/goleak",
	"internal/telemetry", "pkg/outbox", "services/orchestrator/schedules",
	"examples/orders/contract", "examples/orders/shop",
}

// emptyNames are names of packages that say nothing about what is in them.
var emptyNames = strings.Fields("common helper helpers interfaces misc mock mocks models types util utils")

func TestImports(t *testing.T) {
	eachFile(t, checkImports)
	eachFile(t, checkPackageName)
}

// TestPure checks that nothing that is replayed depends on when, where or how often it runs.
func TestPure(t *testing.T) { eachFile(t, checkPure) }

func TestTestsDoNotSleep(t *testing.T) { eachFile(t, checkSleep) }

func checkImports(f *source) []string {
	r, ok := ruleFor(f.dir)
	if !ok {
		return []string{fmt.Sprintf(
			"%s: nobody said what package directory %s may import: add it to the table of packages in "+
				"internal/tidy/imports_test.go", f.path, f.dir)}
	}
	allowed := r.imports
	if f.test {
		allowed = slices.Concat(r.imports, testImports, []string{f.dir})
	}
	var bad []string
	for _, i := range f.file.Imports {
		own := ownPath(i)
		if own == importPath(i) && isStandard(own) {
			if err := checkStandard(f, r, i); err != "" {
				bad = append(bad, err)
			}
			continue
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return within(own, a) }) {
			bad = append(bad, fmt.Sprintf(
				"%s: %s may not import %s: move the code to where it may, or, if the arrow is right, add it to %s "+
					"in internal/tidy/imports_test.go",
				f.at(i.Pos()), f.what(), own, f.table()))
		}
	}
	return bad
}

// checkStandard says what is wrong with an import of the standard library; "" if nothing.
func checkStandard(f *source, r rule, i *ast.ImportSpec) string {
	p := importPath(i)
	if f.test || !r.pure || !slices.ContainsFunc(outside, func(o string) bool {
		return within(p, o+"/...") || p == o
	}) {
		return ""
	}
	names, partly := r.partly[p]
	switch {
	case !partly:
		return fmt.Sprintf("%s: %s is pure and may not import %s: pass in what it needs as a parameter",
			f.at(i.Pos()), f.dir, p)
	case i.Name != nil && i.Name.Name == ".":
		return fmt.Sprintf("%s: import %s by its name, so that it can be seen what is used of it", f.at(i.Pos()), p)
	case names == "*":
		return ""
	}
	for _, m := range f.mentions {
		if m.pkg == p && !slices.Contains(strings.Fields(names), m.name) {
			return fmt.Sprintf("%s: %s is pure and may use only %s of package %s, not %s: pass in what "+
				"it needs as a parameter",
				f.at(m.pos), f.dir, strings.Join(strings.Fields(names), ", "), p, m.name)
		}
	}
	return ""
}

func checkPackageName(f *source) []string {
	if base := path.Base(f.dir); slices.Contains(emptyNames, base) {
		return []string{fmt.Sprintf("%s: %q does not say what is in the package: name it after the thing it holds",
			f.path, base)}
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
			bad = append(bad, fmt.Sprintf(
				"%s: time.%s in %s, which is pure: take the time as a parameter, leave the waiting to the caller",
				f.at(m.pos), m.name, f.dir))
		}
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			bad = append(bad, fmt.Sprintf(
				"%s: a goroutine in %s, which is pure: call the function, or leave the concurrency to the caller",
				f.at(g.Pos()), f.dir))
		}
		return true
	})
	return bad
}

func checkSleep(f *source) []string {
	var bad []string
	for _, m := range f.mentions {
		if f.test && m.pkg == "time" && m.name == "Sleep" {
			bad = append(bad, fmt.Sprintf(
				"%s: a test sleeps: wait for the thing itself (a channel, a message), or pass in the time",
				f.at(m.pos)))
		}
	}
	return bad
}

// ownPath is what a file imports, as the tables write it: the directory of a package of this
// module, and the whole path of any other.
func ownPath(i *ast.ImportSpec) string {
	p := importPath(i)
	if p == module {
		return "."
	}
	return strings.TrimPrefix(p, module+"/")
}

// ruleFor finds a directory's row in the table.
func ruleFor(dir string) (rule, bool) {
	key, ok := rowOf(dir, packages)
	return packages[key], ok
}

// rowOf finds the key of a directory's row.
func rowOf(dir string, rows map[string]rule) (string, bool) {
	if _, ok := rows[dir]; ok {
		return dir, true
	}
	for pattern := range rows {
		if strings.HasSuffix(pattern, "/...") && within(dir, pattern) {
			return pattern, true
		}
	}
	return "", false
}

// within tells whether a path is what a pattern says: the path itself, or "dir/..." for everything
// below dir.
func within(p, pattern string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	return p == pattern
}
