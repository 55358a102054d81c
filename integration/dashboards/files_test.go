package dashboards_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/rondo-run/rondo/internal/columns"
	"github.com/rondo-run/rondo/internal/telemetry"
)

// This file writes the tables as files for Grafana, Prometheus and readers.

var rewrite = flag.Bool("rewrite", false, "write the files anew")

const (
	rulesFile  = "deploy/prometheus/rules.yaml"
	alertsFile = "docs/alerts.md"
)

func boardFile(b board) string { return "deploy/grafana/" + b.file + ".json" }

// TestFiles compares the files with the tables. With -rewrite, it writes them.
func TestFiles(t *testing.T) {
	files := map[string][]byte{rulesFile: rules(t), alertsFile: []byte(document())}
	for _, b := range boards {
		files[boardFile(b)] = grafana(t, b)
	}
	for name, want := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if *rewrite {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the tables say (%v); run: go -C integration/dashboards test -run Files -rewrite .",
				name, err)
		}
	}
}

// ---- Grafana.

// object is one of JSON. Its keys are sorted when it is written, so files change only where
// something changes.
type object = map[string]any

var dataSource = object{"type": "prometheus", "uid": "${datasource}"}

const (
	boardColumns              = 24
	headHeight                = 1
	numberWidth, numberHeight = 4, 4
	graphHeight               = 8
)

func grafana(t testing.TB, b board) []byte {
	var panels []object
	id, y := 0, 0
	add := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, r := range b.rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}},
			0, boardColumns, headHeight)
		y += headHeight
		w, h := boardColumns/3, graphHeight
		switch {
		case r.panels[0].number:
			w, h = numberWidth, numberHeight
		case len(r.panels) == 4:
			w = boardColumns / 4
		}
		for i, p := range r.panels {
			x := i * w % boardColumns
			if i > 0 && x == 0 {
				y += h
			}
			add(p.grafana(), x, w, h)
		}
		y += h
	}
	text, err := json.MarshalIndent(object{
		"uid": "rondo-" + b.file, "title": b.title, "description": b.about, "tags": []string{"rondo"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
		"refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"annotations": object{"list": []object{}}, "panels": panels,
		"templating": object{"list": b.variables()},
		"links": []object{{"type": "dashboards", "tags": []string{"rondo"}, "title": "Rondo", "asDropdown": true,
			"includeVars": true, "keepTime": true}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func (p panel) grafana() object {
	var targets []object
	for i, q := range p.queries {
		target := object{"refId": string(rune('A' + i)), "datasource": dataSource, "expr": q.expr,
			"legendFormat": q.legend, "editorMode": "code"}
		target["instant"], target["range"] = p.number, !p.number
		targets = append(targets, target)
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.number {
		steps := []object{{"color": "green", "value": nil}}
		if p.bad > 0 {
			steps = append(steps, object{"color": "red", "value": p.bad})
		}
		defaults["thresholds"], defaults["color"] = object{"mode": "absolute", "steps": steps},
			object{"mode": "thresholds"}
		defaults["noValue"] = "0"
	} else {
		defaults["color"] = object{"mode": "palette-classic"}
		defaults["custom"] = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never",
			"spanNulls": false}
	}
	out := object{
		"type": "timeseries", "title": p.title, "description": p.about, "datasource": dataSource, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
		"options": object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"}},
	}
	if p.number {
		out["type"] = "stat"
		out["options"] = object{"colorMode": "value", "graphMode": "none", "textMode": "auto",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	}
	return out
}

// choice is a variable, and the query that finds its values.
type choice struct{ label, from, selector string }

// choices returns the choices of a dashboard. Each one's values depend on those before it.
func (b board) choices() (all []choice) {
	for i, l := range b.view.variables {
		from := map[string]string{orchestration: telemetry.MetricRounds, activity: telemetry.MetricActivityDeliveries,
			queue: telemetry.MetricJobsDepth}[l]
		if from == "" {
			from = telemetry.MetricBuildInfo
		}
		all = append(all, choice{l, from, view{variables: b.view.variables[:i]}.selector(from, "")})
	}
	return all
}

func (b board) variables() []object {
	all := []object{{"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus",
		"refresh": 1, "hide": 0, "current": object{}, "options": []object{}}}
	for _, c := range b.choices() {
		query := fmt.Sprintf("label_values(%s, %s)", c.selector, c.label)
		all = append(all, object{
			"name": c.label, "label": c.label, "type": "query", "datasource": dataSource, "definition": query,
			"query":   object{"query": query, "qryType": 1, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
			"refresh": 2, "sort": 1, "hide": 0, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}}, "options": []object{},
		})
	}
	return all
}

// ---- Prometheus.

func rules(t testing.TB) []byte {
	type rule struct {
		Alert       string            `yaml:"alert"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	type section struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	var file struct {
		Groups []section `yaml:"groups"`
	}
	for _, g := range groups {
		s := section{Name: g.name}
		for _, a := range g.alerts {
			s.Rules = append(s.Rules, rule{
				Alert: a.name, Expr: a.expr, For: model.Duration(a.hold).String(),
				Labels: map[string]string{"severity": a.severity()},
				Annotations: map[string]string{"summary": a.summary, "description": a.description,
					"runbook": alertsFile + "#" + a.anchor()},
			})
		}
		file.Groups = append(file.Groups, s)
	}
	var text bytes.Buffer
	text.WriteString("# Alerts about Rondo. " + alertsFile +
		" says what each means and what to do. integration/dashboards writes this file and tries it " +
		"out: change it there.\n")
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	if err := e.Encode(file); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// ---- The document.

const introduction = `# Alerts

[rules.yaml](../%s) has these alerts for Prometheus. Each has a link to its section here, and each section says what has happened, where to look and what to do.
[Dashboards](dashboards.md) says how to install them, and what the panels show that are named here.

critical is for what stops instances: somebody should look at once. warning is for what can wait until the morning. An alert waits for as long as it says here, with its
condition true all the time, before it fires. Where it says "at once", the condition looks back over 15 minutes, and that is how long it goes on firing. What has never happened has
no series, so those count a series that is new from its first value on; where Prometheus itself is new, it tells what has happened before, once.

The limits suit a system that does some work all the time. Where yours is different, change them in your copy of the file. Alerts are told apart by the
label ` + "`namespace`" + `, if your targets have one; two systems in one namespace are seen as one.

This page and the rules come from one table, integration/dashboards/alerts_test.go. ` + "`make dashboards`" + ` has Prometheus' own engine evaluate every rule: on series on which it must
fire, on series on which it must not yet, and on what a running demonstration tells.
`

func document() string {
	var text strings.Builder
	text.WriteString(columns.Paragraphs(fmt.Sprintf(introduction, rulesFile)))
	fmt.Fprintf(&text, "\n| alert | how bad | after | what has happened |\n| --- | --- | --- | --- |\n")
	for _, g := range groups {
		for _, a := range g.alerts {
			fmt.Fprintf(&text, "| [%s](#%s) | %s | %s | %s |\n", a.name, a.anchor(), a.severity(), a.waits(),
				firstSentence(a.means))
		}
	}
	for _, g := range groups {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n", g.title, columns.Wrap(g.about, "", 0))
		for _, a := range g.alerts {
			fmt.Fprintf(&text, "\n### %s\n\n%s, %s\n\n```promql\n%s\n```\n\n%s\n\nWhy these limits: %s\n\nLook at:\n\n",
				a.name, a.severity(), a.waits(), a.expr, columns.Wrap(a.means, "", 0),
				columns.Wrap(linked(lower(a.because)), "", len("Why these limits: ")))
			for _, l := range a.look {
				file, title, _ := strings.Cut(l, ": ")
				look := fmt.Sprintf("- [%s](../deploy/grafana/%s.json): %s", file, file, title)
				fmt.Fprintln(&text, columns.Wrap(look, "  ", 0))
			}
			text.WriteString("\nDo:\n\n")
			for _, d := range a.do {
				fmt.Fprintln(&text, columns.Wrap("- "+linked(d), "  ", 0))
			}
		}
	}
	return text.String()
}

var otherAlert = regexp.MustCompile(`\bRondo[A-Z]\w+`)

// linked makes links of the names of alerts.
func linked(s string) string {
	return otherAlert.ReplaceAllStringFunc(s, func(name string) string {
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	})
}

func firstSentence(s string) string {
	first, _, more := strings.Cut(s, ". ")
	if more {
		first += "."
	}
	return first
}

func (a alert) waits() string {
	switch a.hold {
	case 0:
		return "at once"
	default:
		return fmt.Sprintf("after %d minutes", a.hold/time.Minute)
	}
}

// lower begins a sentence that goes on after a colon. Names and numbers stay as they are.
func lower(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if strings.HasPrefix(first, "Rondo") || strings.ToUpper(first) == first && len(first) > 1 ||
		strings.HasSuffix(first, "DB") || strings.HasPrefix(first, "NATS") || strings.HasPrefix(first, "Prometheus") {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
