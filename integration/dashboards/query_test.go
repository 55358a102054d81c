package dashboards_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-run/rondo/internal/telemetry"
)

// This file writes queries. The names of metrics and labels come from package telemetry. A query
// panics for a label that its metric does not have.

// targetLabels are those that Prometheus adds to scraped series.
var targetLabels = []string{"namespace", "job", "instance"}

// table has the descriptions of package telemetry, by the names of metrics in code.
var table = func() map[string]telemetry.Described {
	all := make(map[string]telemetry.Described)
	for _, d := range telemetry.Descriptions() {
		all[d.Name] = d
	}
	return all
}()

func described(metric string) telemetry.Described {
	d, ok := table[metric]
	if !ok {
		panic(metric + " is no metric")
	}
	return d
}

// name is the name of a metric in Prometheus.
func name(metric string) string { return described(metric).PrometheusName() }

// where is a condition on a label, as in a query: status="failed".
type where string

func is(label, value string) where  { return where(label + "=" + strconv.Quote(value)) }
func not(label, value string) where { return where(label + "!=" + strconv.Quote(value)) }
func anyOf(label string, values ...string) where {
	return where(label + "=~" + strconv.Quote(strings.Join(values, "|")))
}
func noneOf(label string, values ...string) where {
	return where(label + "!~" + strconv.Quote(strings.Join(values, "|")))
}

func (w where) label() string {
	return string(w[:strings.IndexAny(string(w), "=!")])
}

// by are labels to keep.
type by []string

func (b by) String() string { return strings.Join(b, ", ") }

// view is the scope of queries: the choices in a dashboard, or everything.
type view struct {
	// variables are labels that can be chosen.
	variables []string
	// window is the time of rates, and span that of increases.
	window, span string
}

// selector selects the series of a metric.
func (v view) selector(metric, suffix string, conditions ...where) string {
	d := described(metric)
	var all []string
	for _, l := range v.variables {
		if slices.Contains(targetLabels, l) || slices.Contains(d.Labels, l) {
			all = append(all, fmt.Sprintf(`%s=~"$%s"`, l, l))
		}
	}
	for _, w := range conditions {
		check(d, w.label())
		all = append(all, string(w))
	}
	if len(all) == 0 {
		return name(metric) + suffix
	}
	return name(metric) + suffix + "{" + strings.Join(all, ",") + "}"
}

func check(d telemetry.Described, label string) {
	if !slices.Contains(d.Labels, label) && !slices.Contains(targetLabels, label) {
		panic(d.Name + " has no label " + label)
	}
}

func aggregate(how string, keep by, metric, of string) string {
	for _, l := range keep {
		check(described(metric), l)
	}
	if len(keep) == 0 {
		return how + "(" + of + ")"
	}
	return fmt.Sprintf("%s by (%s) (%s)", how, keep, of)
}

// sum and most are of gauges.
func (v view) sum(metric string, keep by, conditions ...where) string {
	return aggregate("sum", keep, metric, v.selector(metric, "", conditions...))
}

func (v view) most(metric string, keep by, conditions ...where) string {
	return aggregate("max", keep, metric, v.selector(metric, "", conditions...))
}

// rate is how often something happens in a second.
func (v view) rate(metric string, keep by, conditions ...where) string {
	return aggregate("sum", keep, metric, "rate("+v.selector(metric, "", conditions...)+"["+v.window+"])")
}

// happened is how often something that is rare has happened within the span. A series that has
// begun since then counts as a whole: there is none before the first time, so increase alone does
// not see that.
func (v view) happened(metric string, keep by, conditions ...where) string {
	s := v.selector(metric, "", conditions...)
	return aggregate("sum", keep, metric,
		fmt.Sprintf("(%s unless %s offset %s) or increase(%s[%s])", s, s, v.span, s, v.span))
}

// quantile is of a histogram.
func (v view) quantile(q float64, metric string, keep by, conditions ...where) string {
	for _, l := range keep {
		check(described(metric), l)
	}
	return fmt.Sprintf("histogram_quantile(%v, sum by (%s) (rate(%s[%s])))", q, append(slices.Clone(keep), "le"),
		v.selector(metric, "_bucket", conditions...), v.window)
}

// mean is of a histogram.
func (v view) mean(metric string, keep by, conditions ...where) string {
	part := func(suffix string) string {
		return aggregate("sum", keep, metric, "rate("+v.selector(metric, suffix, conditions...)+"["+v.window+"])")
	}
	return part("_sum") + " / " + part("_count")
}

// orZero is 0 where there is no series: an event that has never happened has none.
func orZero(expr string) string { return "(" + expr + ") or vector(0)" }
