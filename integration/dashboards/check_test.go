package dashboards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
)

// This file tests the rules and queries as they are in the files.

// ---- Rules.

// loadedRules are the rules of the file, by name.
func loadedRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	file, errs := rulefmt.ParseFile(filepath.Join(root, filepath.FromSlash(rulesFile)), false, model.UTF8Validation,
		promqlParser, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := make(map[string]rulefmt.Rule)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice || r.Alert == "" {
				t.Errorf("rule %q %s: twice, or no alert", r.Alert, r.Expr)
			}
			all[r.Alert] = r
		}
	}
	return all
}

// TestAlerts has every alert fire on series that are bad, and be quiet on series that are just good
// enough.
func TestAlerts(t *testing.T) {
	engine, file := newEngine(), loadedRules(t)
	for _, a := range allAlerts() {
		t.Run(a.name, func(t *testing.T) {
			r, ok := file[a.name]
			if !ok || len(a.bad) == 0 || len(a.fine) == 0 {
				t.Fatal("it is not in the file, or there is nothing to try it on")
			}
			delete(file, a.name)
			bad, fine := newMemory(), newMemory()
			bad.load(t, a.bad...)
			fine.load(t, a.fine...)
			checkSeries(t, bad, fine)
			settled := start
			if r.For == 0 { // it counts events of a time that is over by then
				settled = start.Add(15 * minute)
			}
			for _, f := range fine.fires(t, engine, r.Expr, settled, time.Duration(r.For), minute) {
				t.Errorf("it fires on what is fine: %s", f.sample.Metric)
			}
			fired := bad.fires(t, engine, r.Expr, start, time.Duration(r.For), minute)
			if len(fired) != 1 {
				t.Fatalf("it fires for %d sets of labels, want 1: %v", len(fired), fired)
			}
			if f := fired[0]; f.since.Sub(start) < time.Duration(r.For) {
				t.Errorf("it fires after %v", f.since.Sub(start))
			}
			t.Logf("fires after %v: %s: %s", fired[0].since.Sub(start),
				said(t, r, r.Annotations["summary"], fired[0].sample), fired[0].sample.Metric)
			said(t, r, r.Annotations["description"], fired[0].sample)
		})
	}
	for name := range file {
		t.Errorf("%s is in the file, and nothing tries it", name)
	}
}

// said expands a text as Prometheus does.
func said(t *testing.T, r rulefmt.Rule, text string, s promql.Sample) string {
	t.Helper()
	known := s.Metric.Map()
	for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
		if _, ok := known[m[1]]; !ok && m[1] != tag {
			t.Errorf("%s: it has no label %s, only %v", text, m[1], known)
		}
	}
	const head = `{{$labels := .Labels}}{{$value := .Value}}`
	e := template.NewTemplateExpander(context.Background(), head+text, r.Alert,
		template.AlertTemplateData(known, nil, "", s), model.Time(s.T), nil, &url.URL{}, nil)
	out, err := e.Expand()
	if err != nil || strings.TrimSpace(out) == "" {
		t.Errorf("%s: %v", text, err)
	}
	return out
}

// neverHere are values of labels that a healthy demonstration does not have, as the code names
// them.
var neverHere = []string{
	history.Permanent.String(), history.Corrupt.String(), history.Ambiguous.String(), history.Conflict.String(),
	string(failure.Poison),
	telemetry.TaskPending, telemetry.TaskCancelled, telemetry.TaskReturned,
	// of job queues, to which the demonstration pushes nothing
	telemetry.JobsExpired, telemetry.JobsDied, telemetry.JobsPopped, "200", "500", "503",
	"failed", // of published messages: not in the code; TestRoundsAndMessages of package telemetry has it
}

// TestValuesOfLabels checks the values of labels that queries ask for: they are in the series of
// the demonstration, or in the code.
func TestValuesOfLabels(t *testing.T) {
	demo := demonstration(t)
	exprs := make(map[string]bool)
	for _, r := range loadedRules(t) {
		exprs[r.Expr] = true
	}
	for _, b := range boards {
		for _, p := range loadBoard(t, b).Panels {
			for _, q := range p.Targets {
				exprs[chosen(b, q.Expr, ".*")] = true
			}
		}
	}
	asked := 0
	for expr := range exprs {
		for _, s := range selectors(t, expr) {
			for _, m := range s.LabelMatchers {
				if m.Name == "__name__" || metricOf(s.Name) == "" || m.Value == ".*" {
					continue
				}
				for value := range strings.SplitSeq(m.Value, "|") {
					asked++
					is := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", s.Name),
						labels.MustNewMatcher(labels.MatchEqual, m.Name, value)}
					if !demo.has(is) && !slices.Contains(neverHere, value) {
						t.Errorf("%s: nobody tells %s with %s=%q", expr, s.Name, m.Name, value)
					}
				}
			}
		}
	}
	if asked < 20 {
		t.Errorf("%d values were looked at; are they still found?", asked)
	}
}

// TestHealthyDemonstration has no alert fire while all is well.
func TestHealthyDemonstration(t *testing.T) {
	m, engine := demonstration(t), newEngine()
	for name, r := range loadedRules(t) {
		for _, f := range m.fires(t, engine, r.Expr, start, time.Duration(r.For), scrapeAs) {
			t.Errorf("%s fires: %s", name, f.sample.Metric)
		}
	}
}

// TestRules checks the rest of the file: it is complete, and it and the document link to each
// other.
func TestRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(alertsFile)))
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
	}
	titles := make(map[string]bool)
	for _, b := range boards {
		for _, r := range b.rows {
			for _, p := range r.panels {
				titles[b.file+": "+p.title] = true
			}
		}
	}
	for name, r := range loadedRules(t) {
		if want := alertsFile + "#" + strings.ToLower(name); r.Annotations["runbook"] != want || !named[name] {
			t.Errorf("%s leads to %q, want %s; the document has it: %v", name, r.Annotations["runbook"],
				want, named[name])
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", name, s)
		}
		checkNames(t, r.Expr)
		delete(named, name)
	}
	for name := range named {
		t.Errorf("the document has %s, which is no alert", name)
	}
	for _, a := range allAlerts() {
		if len(a.do) == 0 || len(a.look) == 0 || a.means == "" || a.because == "" || a.summary == "" ||
			a.description == "" {
			t.Errorf("%s: something is not said", a.name)
		}
		for _, l := range a.look {
			if !titles[l] {
				t.Errorf("%s: there is no panel %q", a.name, l)
			}
		}
	}
}

func allAlerts() (all []alert) {
	for _, g := range groups {
		all = append(all, g.alerts...)
	}
	return all
}

// checkSeries checks that made-up series are possible: metrics, labels and the bounds of
// histograms.
func checkSeries(t *testing.T, all ...*memory) {
	t.Helper()
	for _, m := range all {
		for _, k := range m.series {
			metric := metricOf(k.labels.Get("__name__"))
			if metric == "" {
				if n := k.labels.Get("__name__"); n != "up" && n != "ALERTS" {
					t.Errorf("%s is no metric", n)
				}
				continue
			}
			d := described(metric)
			k.labels.Range(func(l labels.Label) {
				if l.Name != "__name__" && l.Name != "le" && !slices.Contains(d.Labels, l.Name) &&
					!slices.Contains(targetLabels, l.Name) {
					t.Errorf("%s has no label %s", metric, l.Name)
				}
			})
			for _, l := range d.Labels {
				if !k.labels.Has(l) && l != tag && l != telemetry.LabelVersion { // an empty label is none
					t.Errorf("%s needs the label %s", k.labels, l)
				}
			}
		}
	}
}

// ---- Dashboards.

// unmade are metrics that are on no dashboard, each with why.
var unmade = map[string]string{}

// checkNames checks that each name in a query is described, and returns the metrics.
func checkNames(t *testing.T, expr string) (metrics []string) {
	t.Helper()
	for _, s := range selectors(t, expr) {
		metric := metricOf(s.Name)
		if metric == "" {
			if s.Name != "up" && s.Name != "ALERTS" && !strings.HasPrefix(s.Name, "process_") {
				t.Errorf("%s: %s is no metric", expr, s.Name)
			}
			continue
		}
		metrics = append(metrics, metric)
		for _, m := range s.LabelMatchers {
			if l := m.Name; l != "__name__" && l != "le" && !slices.Contains(described(metric).Labels, l) &&
				!slices.Contains(targetLabels, l) {
				t.Errorf("%s: %s has no label %s", expr, metric, l)
			}
		}
	}
	return metrics
}

// chosen is a query as Grafana sends it.
func chosen(b board, expr, value string) string {
	for _, v := range b.view.variables {
		expr = strings.ReplaceAll(expr, "$"+v, value)
	}
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "15m").Replace(expr)
}

// loadedBoard is a file as Grafana reads it.
type loadedBoard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []loadedPanel
	Templating    struct {
		List []struct{ Name, Type, AllValue string }
	}
}

type loadedPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	DataSource               struct{ Type, UID string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
}

func loadBoard(t *testing.T, b board) (l loadedBoard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(boardFile(b))))
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestQueries evaluates every query of the dashboards: on the series of the demonstration, or, for
// events that the demonstration does not have, on made-up series.
func TestQueries(t *testing.T) {
	engine, demo := newEngine(), demonstration(t)
	trouble := demo.with(made(t))
	used := make(map[string]bool)
	for _, b := range boards {
		marked := make(map[string]bool)
		for _, r := range b.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					marked[q.expr] = q.rare
				}
			}
		}
		for _, p := range loadBoard(t, b).Panels {
			for _, q := range p.Targets {
				from, of := "demonstration", demo
				if marked[q.Expr] {
					from, of = "made up", trouble
				}
				t.Logf("%-13s %s: %s: %s", from, b.file, p.Title, q.Expr)
				expr := chosen(b, q.Expr, ".*")
				for _, m := range checkNames(t, expr) {
					used[m] = true
				}
				for _, s := range selectors(t, expr) {
					if !of.has(s.LabelMatchers) {
						t.Errorf("%s: %s: there are no series for %s (%s)", b.file, p.Title, s, from)
					}
				}
				if n := of.points(t, engine, expr, scrapeAs); n == 0 {
					t.Errorf("%s: %s: no answer (%s): %s", b.file, p.Title, from, expr)
				}
				if n := of.points(t, engine,
					chosen(b, strings.ReplaceAll(q.Expr, " or vector(0)", ""), "somebody else"), scrapeAs); n != 0 {
					t.Errorf("%s: %s: what is chosen makes no difference: %s", b.file, p.Title, q.Expr)
				}
				checkLegend(t, q.LegendFormat, expr)
			}
		}
		for _, c := range b.choices() {
			if s := selectors(t, chosen(b, c.selector, ".*")); !demo.has(s[0].LabelMatchers) &&
				(c.label != queue || !trouble.has(s[0].LabelMatchers)) {
				t.Errorf("%s: nothing can be chosen as %s", b.file, c.label)
			}
			if !slices.Contains(targetLabels, c.label) && !slices.Contains(described(c.from).Labels, c.label) {
				t.Errorf("%s: %s has no label %s", b.file, c.from, c.label)
			}
		}
	}
	for metric := range table {
		if used[metric] == (unmade[metric] != "") {
			t.Errorf("%s is on a dashboard: %v; why not: %q", metric, used[metric], unmade[metric])
		}
	}
}

// checkLegend checks that the labels of a legend exist.
func checkLegend(t *testing.T, legend, expr string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(legend, -1) {
		if !regexp.MustCompile(`by \([^)]*\b` + found[1] + `\b`).MatchString(expr) {
			t.Errorf("%s: the legend %q names %s, which is not kept", expr, legend, found[1])
		}
	}
}

// made has all series on which alerts fire, each at a place of its own, and those of events that
// the demonstration does not have.
func made(t *testing.T) *memory {
	all := newMemory()
	for _, a := range allAlerts() {
		m := newMemory()
		m.load(t, a.bad...)
		for _, k := range m.series {
			k.labels = labels.NewBuilder(k.labels).Set("instance", a.name).Labels()
			for _, s := range k.samples {
				all.add(k.labels, time.UnixMilli(s.T()), s.F())
			}
		}
	}
	m := newMemory()
	m.load(t, missing()...)
	checkSeries(t, m)
	return all.with(m)
}

// missing are the series of events that healthy orders do not have: children, steps, replays, and
// so on.
func missing() []string {
	count := func(metric, labels string) string { return counter(metric, labels, "0+60x60") }
	return slices.Concat([]string{
		`ALERTS{alertname="RondoSwept",alertstate="firing",severity="warning",namespace="shop"} 1x60`,
		count(telemetry.MetricOrchestrationFaults, `orchestration="fulfil",error_kind="nondeterminism"`),
		count(telemetry.MetricNearLimit, `orchestration="fulfil",reason="values"`),
		count(telemetry.MetricOrchestrationContinuations, `orchestration="fulfil"`),
		count(telemetry.MetricChildCalls, `orchestration="fulfil",child="pay"`),
		count(telemetry.MetricStepExecutions, `orchestration="fulfil",outcome="success"`),
		count(telemetry.MetricReplayedEvents, `orchestration="fulfil"`),
		count(telemetry.MetricLoads, `outcome="found"`),
		count(telemetry.MetricRedeliveries, `verb="start"`),
		count(telemetry.MetricQuarantined, `verb="start"`),
		count(telemetry.MetricHandovers, `outcome="accepted"`),
		count(telemetry.MetricActivityHeartbeats, `activity="train"`),
		count(telemetry.MetricActivityLimited, `activity="train"`),
		count(telemetry.MetricScheduleRuns, `reason="schedule"`),
		count(telemetry.MetricScheduleMissed, ""),
		count(telemetry.MetricScheduleSkipped, ""),
	}, took(telemetry.MetricScheduleDelay, "", 0.01), took(telemetry.MetricStepDuration, `orchestration="fulfil",outcome="success"`, 0.1),
		took(telemetry.MetricChildDuration, `orchestration="fulfil",child="pay",outcome="completed"`, 3), onQueues())
}

// TestNames checks that every metric of Rondo that is scraped is described, under the name that
// queries use.
func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range demonstration(t).series {
		if n := k.labels.Get("__name__"); strings.HasPrefix(n, "rondo_") {
			if metricOf(n) == "" {
				t.Errorf("%s is scraped, and described under no such name", n)
			}
			seen[metricOf(n)] = true
		}
	}
	for metric := range table {
		if !seen[metric] {
			t.Logf("the demonstration does not tell %s", metric)
		}
	}
}

// TestStructure checks the structure that Grafana demands of a dashboard.
func TestStructure(t *testing.T) {
	uids := make(map[string]bool)
	for _, b := range boards {
		l := loadBoard(t, b)
		if l.UID == "" || len(l.UID) > 40 || uids[l.UID] || l.Title == "" || l.SchemaVersion < 36 {
			t.Errorf("%s: %q, %q, %d", b.file, l.UID, l.Title, l.SchemaVersion)
		}
		uids[l.UID] = true
		if len(l.Templating.List) != len(b.view.variables)+1 || l.Templating.List[0].Name != "datasource" ||
			l.Templating.List[0].Type != "datasource" {
			t.Errorf("%s: the variables are %v", b.file, l.Templating.List)
		}
		for _, problem := range problems(l) {
			t.Errorf("%s: %s", b.file, problem)
		}
	}
}

// units are those of Grafana that are used.
var units = []string{inNumbers, inSeconds, inBytes, aSecond, bytesASecond, asShare}

// problems lists the faults in the panels of a dashboard.
func problems(l loadedBoard) (all []string) {
	say := func(p loadedPanel, format string, args ...any) {
		all = append(all, fmt.Sprintf("panel %d, %q: %s", p.ID, p.Title, fmt.Sprintf(format, args...)))
	}
	ids, titles, taken := make(map[int]bool), make(map[string]bool), make(map[[2]int]int)
	for _, p := range l.Panels {
		if p.ID == 0 || ids[p.ID] {
			say(p, "its id is that of another one")
		}
		if p.Title == "" || titles[p.Title] {
			say(p, "its title is that of another one")
		}
		ids[p.ID], titles[p.Title] = true, true
		g := p.GridPos
		if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > boardColumns {
			say(p, "it is outside: %v", g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != 0 {
					say(p, "it lies over panel %d", other)
				}
				taken[[2]int{x, y}] = p.ID
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.DataSource.Type != "prometheus" || p.DataSource.UID != "${datasource}" || p.Description == "" ||
			!slices.Contains(units, p.FieldConfig.Defaults.Unit) || len(p.Targets) == 0 {
			say(p, "its data source, description, unit or queries are missing")
		}
		refs := make(map[string]bool)
		for _, q := range p.Targets {
			if refs[q.RefID] || q.Expr == "" || len(p.Targets) > 1 && q.LegendFormat == "" {
				say(p, "query %s has the name of another one, or no legend", q.RefID)
			}
			refs[q.RefID] = true
		}
	}
	return all
}
