package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// scraping has histograms and the registry through which Prometheus reads them.
type scraping struct {
	of       *instruments
	registry *prometheus.Registry
}

func newScraping(t testing.TB, own *histograms) scraping {
	t.Helper()
	registry := prometheus.NewRegistry()
	form := []otelprometheus.Option{otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo()}
	if own != nil {
		form = append(form, otelprometheus.WithProducer(own))
	}
	reader, err := otelprometheus.New(form...)
	if err != nil {
		t.Fatal(err)
	}
	return scraping{newInstruments(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader),
		sdkmetric.WithCardinalityLimit(maxSeries)), own), registry}
}

func (s scraping) text(t testing.TB) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// Histograms of this package equal those of the SDK, line by line: on the bounds of buckets,
// between, below and above them, with all labels that there are.
func TestHistogramsAreThoseOfTheSDK(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	ours, theirs := newScraping(t, &histograms{since: time.Now()}), newScraping(t, nil)
	n := 0
	for _, d := range described {
		if d.Type != Histogram {
			continue
		}
		n++
		h, sdk, labelled := ours.of.histogram(d.Name), theirs.of.histogram(d.Name), newLabelled(d.Labels...)
		var values []float64
		for _, bound := range d.Buckets {
			values = append(values, bound, bound*0.75, bound*1.25)
		}
		for _, v := range append(values, 0, 1<<40) {
			s := none
			if k := (key{a: fmt.Sprint(chance.IntN(3)), b: "b\xff"}); len(d.Labels) > 0 {
				s = labelled.of(k)
			}
			for range 1 + chance.IntN(3) {
				record(h, v, s)
				record(sdk, v, s)
			}
		}
	}
	got, want := ours.text(t), theirs.text(t)
	if n == 0 || strings.Count(want, "# TYPE rondo_") != n {
		t.Fatalf("%d histograms are described, and the SDK tells %d", n, strings.Count(want, "# TYPE rondo_"))
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for n := range min(len(gotLines), len(wantLines)) {
		if !same(gotLines[n], wantLines[n]) {
			t.Fatalf("line %d: %q, want %q", n+1, gotLines[n], wantLines[n])
		}
	}
	if len(gotLines) != len(wantLines) {
		t.Errorf("%d lines, want %d", len(gotLines), len(wantLines))
	}
}

// same compares lines. A sum is rounded differently in another order.
func same(got, want string) bool {
	if got == want {
		return true
	}
	i, k := strings.LastIndexByte(got, ' ')+1, strings.LastIndexByte(want, ' ')+1
	a, err1 := strconv.ParseFloat(got[i:], 64)
	b, err2 := strconv.ParseFloat(want[k:], 64)
	return err1 == nil && err2 == nil && got[:i] == want[:k] && strings.Contains(got, "_sum") &&
		math.Abs(a-b) <= 1e-12*b
}

// Measurements beyond the limit of labels are recorded together, as the SDK does it.
func TestHistogramsHaveAnEnd(t *testing.T) {
	s := newScraping(t, &histograms{since: time.Now()})
	h, l := s.of.histogram(MetricRoundDuration), newLabelled(LabelPhase)
	const beyond = 10
	for i := range maxKept + beyond {
		record(h, 1, l.of(key{a: fmt.Sprint(i)}))
	}
	text := s.text(t)
	if n := strings.Count(text, "_count{"); n != maxKept+1 {
		t.Errorf("there are %d series, want %d", n, maxKept+1)
	}
	if want := fmt.Sprintf("_count{otel_metric_overflow=\"true\"} %d\n", beyond); !strings.Contains(text, want) {
		t.Errorf("%q is missing", want)
	}
}

// Concurrent measurements are all counted, and an export during them is consistent.
func TestHistogramsAreMeasuredAtTheSameTime(t *testing.T) {
	const many, each = 8, 2000
	own := &histograms{since: time.Now()}
	s := newScraping(t, own)
	h, l := s.of.histogram(MetricRoundDuration), newLabelled(LabelPhase)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for range each {
				record(h, 0.5, l.of(key{a: fmt.Sprint(i % 2)}))
			}
		})
	}
	for range 20 {
		if _, err := own.Produce(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	text := s.text(t)
	for _, phase := range []string{"0", "1"} {
		for _, want := range []string{
			fmt.Sprintf("_sum{phase=%q} %d\n", phase, many*each/4),
			fmt.Sprintf("_count{phase=%q} %d\n", phase, many*each/2),
			fmt.Sprintf("_bucket{phase=%q,le=\"+Inf\"} %d\n", phase, many*each/2),
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
	}
}

// If metrics are sent, the SDK measures, with its configuration; otherwise this package does. Both
// can be scraped.
func TestWhoMeasures(t *testing.T) {
	before := otel.GetMeterProvider()
	defer otel.SetMeterProvider(before)
	for name, exporter := range map[string]string{"here": "none", "the SDK": "otlp"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_METRICS_EXPORTER", exporter)
			t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			over, cancel := context.WithCancel(t.Context())
			cancel()
			log := &bytes.Buffer{}
			open, err := Start(t.Context(), Service{Name: "x", Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = open.End(over) }() // no collector listens there
			open.Metrics.Rounds().Commit("stored", 3, 7)
			if isOurs := open.Metrics.rounds.turnsInCommit.sdk == nil; isOurs != (exporter == "none") {
				t.Errorf("it is measured here: %v", isOurs)
			}
			w := httptest.NewRecorder()
			open.Scrape.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if got := regexp.MustCompile(`(?m)^rondo_commit_turns_(sum|count) .*$`).FindAllString(w.Body.String(),
				-1); fmt.Sprint(got) != "[rondo_commit_turns_sum 3 rondo_commit_turns_count 1]" {
				t.Errorf("%q, log:\n%s", got, log)
			}
		})
	}
}

// BenchmarkHistogram measures a value with two labels, here and by the SDK.
func BenchmarkHistogram(b *testing.B) {
	for name, own := range map[string]*histograms{"here": {}, "sdk": nil} {
		b.Run(name, func(b *testing.B) {
			h := newScraping(b, own).of.histogram(MetricRoundDuration)
			s := newSeries(attribute.String("phase", "commit"))
			b.ReportAllocs()
			for b.Loop() {
				record(h, 0.003, s)
			}
		})
	}
}
