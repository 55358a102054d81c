package integration_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/embedded"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file measures the cost of observability.

var (
	overheadRuns = flag.Int("overhead.runs", 0, "how often TestOverhead measures each way; 0 leaves it out")
	overheadWay  = flag.String("overhead.way", "",
		"measure only one way, for a profile: off, 1 %, 100 %, or nothing, which has no metrics either")
	overheadSize = flag.Int("overhead.size", 20_000, "how many orchestrations each measurement runs")
)

// watching is a way to be watched.
type watching struct {
	name    string
	counted bool    // there are metrics, as always unless a program leaves them out
	sampled float64 // the share of executions that are traced; negative: there is no tracer
	allowed float64 // how much may be lost, in percent
}

// The way to compare others with is that without traces.
var ways = []watching{{"off", true, -1, 0}, {"1 %", true, 0.01, 3}, {"100 %", true, 1, 15}, {"nothing", false, -1, 100}}

// TestOverhead compares how many orchestrations a second run in the ways to be watched: broker,
// database, orchestrator, worker and client on this machine, and the spans sent by OTLP to a server
// that discards them. The ways take turns, so that other load on the machine affects all of them.
func TestOverhead(t *testing.T) {
	if *overheadRuns == 0 {
		t.Skip("it measures only with -overhead.runs")
	}
	measured, processor := make(map[string][]float64), make(map[string][]float64)
	for n := range *overheadRuns + 1 {
		for i := range ways {
			w := ways[(n+i)%len(ways)]
			if *overheadWay != "" && w.name != *overheadWay {
				continue
			}
			before := processorTime()
			got, spans := throughput(t, w, *overheadSize)
			took := (processorTime() - before).Seconds() * 1e6 / float64(*overheadSize)
			if n == 0 {
				continue // the first ones warm up
			}
			measured[w.name] = append(measured[w.name], got)
			processor[w.name] = append(processor[w.name], took)
			t.Logf("%-5s %8.0f orchestrations/s %6.0f µs of a processor for each %9d spans", w.name, got, took, spans)
		}
	}
	if *overheadWay != "" {
		return
	}
	median := func(of []float64) float64 {
		all := slices.Sorted(slices.Values(of))
		return (all[len(all)/2] + all[(len(all)-1)/2]) / 2
	}
	base := median(measured["off"])
	for _, w := range ways {
		lost := 100 * (1 - median(measured[w.name])/base)
		t.Logf("traced %-7s median %.0f orchestrations/s on %d processors, %.1f %% less than with metrics alone; "+
			"%.0f µs of a processor for each, %.1f %% more", w.name, median(measured[w.name]),
			runtime.GOMAXPROCS(0), lost, median(processor[w.name]),
			100*(median(processor[w.name])/median(processor["off"])-1))
		if lost > w.allowed {
			t.Errorf("tracing %s takes %.1f %%; it may take %.0f %%", w.name, lost, w.allowed)
		}
	}
}

// processorTime is the CPU time that this process has used.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// throughput runs so many orchestrations of one activity. It returns how many ended in a second,
// and the number of spans sent.
func throughput(t *testing.T, way watching, n int) (perSecond float64, spans int64) {
	t.Helper()
	var sent atomic.Int64
	var tracer *telemetry.Tracer
	if way.sampled >= 0 {
		sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		defer sink.Close()
		exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(sink.URL))
		if err != nil {
			t.Fatal(err)
		}
		tracer = telemetry.NewTracer(sdktrace.NewBatchSpanProcessor(counted{exporter, &sent}), nil,
			sdktrace.ParentBased(sdktrace.TraceIDRatioBased(way.sampled)))
		defer func() { _ = tracer.End(context.Background()) }()
	}
	store, err := sqlite.Open(t.Context(), t.TempDir()+"/history.db", sqlite.Options{Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var metrics *telemetry.Metrics
	if way.counted {
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		defer func() { _ = provider.Shutdown(context.Background()) }()
		if metrics, err = telemetry.NewMetrics(provider); err != nil {
			t.Fatal(err)
		}
	}
	begun, ended := runMany(t, store, tracer, metrics, n)
	return float64(n) / ended.Sub(begun).Seconds(), sent.Load()
}

// counted counts the exported spans.
type counted struct {
	sdktrace.SpanExporter
	n *atomic.Int64
}

// ExportSpans implements sdktrace.SpanExporter.
func (c counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.n.Add(int64(len(spans)))
	return c.SpanExporter.ExportSpans(ctx, spans)
}

// runMany runs a whole system until so many orchestrations have ended.
func runMany(t *testing.T, store history.Store, tracer *telemetry.Tracer, metrics *telemetry.Metrics, n int) (begun,
	ended time.Time) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	connect := func() *natsbroker.Bus {
		b, err := natsbroker.Connect(t.Context(), natsbroker.Config{URLs: server.URL(), Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	code, err := orchestration.NewRegistry(basics...)
	if err != nil {
		t.Fatal(err)
	}
	deciding, working, starting := connect(), connect(), connect()
	defer deciding.Close()
	defer working.Close()
	defer starting.Close()
	o, err := orchestrator.New(deciding, store, code,
		orchestrator.Config{Logger: quiet(), Tracer: tracer, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	works, err := activity.NewRegistry(ping.Bind(func(_ context.Context, s string) (string, error) { return s, nil }))
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(working, works, worker.Config{Logger: quiet(), Tracer: tracer, Metrics: metrics, Slots: 256})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var services sync.WaitGroup
	services.Go(func() { _ = o.Run(ctx) })
	services.Go(func() { _ = w.Run(ctx) })
	defer services.Wait()
	defer stop()
	const flying = 512
	slots, all := make(chan struct{}, flying), make(chan struct{})
	var over atomic.Int64
	unlisten, err := query.Listen(ctx, starting, broker.Any, func(query.Notification) {
		<-slots
		if over.Add(1) == int64(n) {
			close(all)
		}
	}, query.TopicEnded)
	if err != nil {
		t.Fatal(err)
	}
	defer unlisten()
	begun = time.Now()
	var publishing sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		m, err := events.Encode(starting.Prefix(), events.Message{ID: fmt.Sprint("s", i), Instance: fmt.Sprint("i", i),
			Content: &events.Start{Orchestration: "once", Input: codec.Payload(`"a"`)}})
		if err != nil {
			t.Fatal(err)
		}
		publishing.Go(func() {
			if err := starting.Publish(ctx, m); err != nil {
				t.Error(err)
			}
		})
	}
	publishing.Wait()
	select {
	case <-all:
	case <-time.After(patience):
		t.Fatalf("%d of %d have ended within %v", over.Load(), n, patience)
	}
	return begun, time.Now()
}
