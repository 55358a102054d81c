package dashboards_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// This file makes sure that the checks find each planted fault, and nothing else.

func TestStructureIsChecked(t *testing.T) {
	good := func() (l loadedBoard) {
		if err := json.Unmarshal(grafana(t, boards[0]), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if p := problems(good()); len(p) > 0 {
		t.Fatalf("there is nothing to be found: %q", p)
	}
	for _, c := range []struct {
		name, want string
		change     func(p []loadedPanel)
	}{
		{"an id twice", "its id is that of another", func(p []loadedPanel) { p[2].ID = p[1].ID }},
		{"a title twice", "its title is that of another", func(p []loadedPanel) { p[2].Title = p[1].Title }},
		{"one over another", "it lies over panel 2", func(p []loadedPanel) { p[2].GridPos = p[1].GridPos }},
		{"outside", "it is outside", func(p []loadedPanel) { p[2].GridPos.W = boardColumns }},
		{"no explanation", "description, unit", func(p []loadedPanel) { p[2].Description = "" }},
		{"an unknown unit", "description, unit", func(p []loadedPanel) { p[2].FieldConfig.Defaults.Unit = "furlong" }},
		{"another data source", "its data source", func(p []loadedPanel) { p[2].DataSource.UID = "mine" }},
		{"no queries", "or queries are missing", func(p []loadedPanel) { p[2].Targets = nil }},
		{"a query twice", "has the name of another", func(p []loadedPanel) {
			p[2].Targets = append(p[2].Targets, p[2].Targets[0])
		}},
	} {
		l := good()
		c.change(l.Panels)
		if got := strings.Join(problems(l), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", c.name, got, c.want)
		}
	}
}

func TestAnswersAreCounted(t *testing.T) {
	m, engine := newMemory(), newEngine()
	m.load(t, `a{l="x"} 1x9`, `b{l="x"} 0x9`)
	for expr, want := range map[string]int{
		"a": 10, `a{l="x"}`: 10, `a{l="y"}`: 0, "c": 0, "b / b": 0, "a / b": 0, "a > 1": 0, "rate(a[1m])": 0,
		"rate(a[3m])": 9, "sum(c) or vector(0)": 10,
	} {
		if got := m.points(t, engine, expr, minute); got != want {
			t.Errorf("%s: %d, want %d", expr, got, want)
		}
	}
	for expr, want := range map[string]bool{"a": true, `a{l=~".*"}`: true, `a{m=~".*"}`: true, `a{l="y"}`: false,
		"c": false, `sum(c) or vector(0)`: false} {
		if got := !slices.ContainsFunc(selectors(t, expr), func(s *parser.VectorSelector) bool {
			return !m.has(s.LabelMatchers)
		}); got != want {
			t.Errorf("%s: there are series: %v, want %v", expr, got, want)
		}
	}
}

func TestAlertsWait(t *testing.T) {
	engine := newEngine()
	for _, c := range []struct {
		values string
		want   []time.Duration // after which it fires
	}{
		{"0x20", nil},
		{"1x20", []time.Duration{3 * minute}},
		{"0x5 1x20", []time.Duration{9 * minute}},
		{"1x2 0 1x2 0 1x2 0", nil},
		{"1x3 0 1x3 0", []time.Duration{3 * minute, 8 * minute}},
	} {
		m := newMemory()
		m.load(t, "a "+c.values)
		var got []time.Duration
		for _, f := range m.fires(t, engine, "a > 0", start, 3*minute, minute) {
			got = append(got, f.since.Sub(start))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: it fires after %v, want %v", c.values, got, c.want)
		}
	}
}

func TestNamesAreFound(t *testing.T) {
	for series, want := range map[string]string{
		"rondo_rounds_total": "rondo.rounds", "rondo_round_duration_seconds_bucket": "rondo.round.duration",
		"rondo_round_duration_seconds_count": "rondo.round.duration",
		"rondo_rounds":                       "", "rondo_rounds_total_bucket": "",
		"rondo_round_duration_seconds_mean": "", "up": "",
		"rondo_outbox_age_seconds": "rondo.outbox.age",
	} {
		if got := metricOf(series); got != want {
			t.Errorf("%s: %q, want %q", series, got, want)
		}
	}
}
