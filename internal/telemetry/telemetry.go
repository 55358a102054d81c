// Package telemetry exports traces and metrics of a process, and connects logs to them. It follows
// OpenTelemetry.
//
// # Destinations
//
// Traces are exported as the standard OTEL_* variables say, and not at all if none of them is set:
// OTEL_EXPORTER_OTLP_ENDPOINT is enough for a collector. Metrics are exported there, too, and can
// always be scraped from /metrics. OTEL_TRACES_SAMPLER decides about executions that are started
// without a trace; for the others, the client that started them has decided.
//
// # A trace
//
//	client
//	└─ orchestration <name>          one execution, from its start to its end
//	   ├─ round <name>               one decision of the code, with links to its messages
//	   ├─ activity <name>            from its scheduling until its result was taken
//	   │  └─ execute <name>          on a worker
//	   ├─ timer, event, queue        from the beginning of the wait until its end
//	   ├─ step <name>                inline
//	   └─ child <name>
//	      └─ orchestration <name>    the child's own
//
// # Ids
//
// The id of a span is made from its instance, its execution, and the event that opens it (see
// [events.SpanOf]). So the sender of a message knows the id of a span that another process exports
// later, and an operation that happens twice has one span. A span is exported once, at its end, by
// the process whose commit has ended it. If a process is killed, its unsent spans are lost; nothing
// waits for them.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	goruntime "go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/rondo-run/rondo/pkg/events"
)

// Service describes the process in its telemetry.
type Service struct {
	// Name is service.name, unless OTEL_SERVICE_NAME is set. Instance tells it from others of that
	// name.
	Name, Version, Instance string
	// Environment looks variables up; nil is [os.LookupEnv]. The SDK reads its own from the
	// process.
	Environment func(string) (string, bool)
	// Logger logs failures of the export, so it must not export them itself.
	Logger *slog.Logger
}

// Telemetry has the exporters of a process. Make it with [Start], and end it when everything else
// has ended.
type Telemetry struct {
	// Tracer exports spans; nil if no traces are exported.
	Tracer *Tracer
	// Metrics records the metrics.
	Metrics *Metrics
	// Meters are for metrics of others.
	Meters metric.MeterProvider
	// Scrape serves all metrics in the form of Prometheus.
	Scrape http.Handler
	// Logs exports records; nil unless the variables ask for that.
	Logs slog.Handler

	end []func(context.Context) error
}

// Start starts the exporters. It also sets the global providers of OpenTelemetry, so that
// instrumentation in activities finds them.
func Start(ctx context.Context, s Service) (t *Telemetry, err error) {
	if s.Environment == nil {
		s.Environment = os.LookupEnv
	}
	t = &Telemetry{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("telemetry: %w; the variables are those of "+
				"https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/", err)
			_ = t.End(ctx)
		}
	}()
	of, err := s.resource(ctx)
	if err != nil {
		return t, err
	}
	otel.SetErrorHandler(newWarnings(s.Logger))
	otel.SetTextMapPropagator(autoprop.NewTextMapPropagator())
	if err := t.startMetrics(ctx, s, of); err != nil {
		return t, err
	}
	if err := t.startLogs(ctx, s, of); err != nil {
		return t, err
	}
	return t, t.startTraces(ctx, s, of)
}

// resource returns the resource of OpenTelemetry: the description of the process.
func (s Service) resource(ctx context.Context) (*resource.Resource, error) {
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(semconv.ServiceName(s.Name), semconv.ServiceVersion(s.Version),
			semconv.ServiceInstanceID(s.Instance)),
		resource.WithFromEnv(), // wins over what stands before it
	)
	if errors.Is(err, resource.ErrPartialResource) || errors.Is(err, resource.ErrSchemaURLConflict) {
		s.Logger.Debug("what the process is could not be found out completely", "error", err)
		err = nil
	}
	return r, err
}

// startMetrics makes metrics available for scraping, and exports them if the variables say so.
func (t *Telemetry) startMetrics(ctx context.Context, s Service, of *resource.Resource) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	form, own := []otelprometheus.Option{otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo()},
		(*histograms)(nil)
	if !s.wants("METRICS") {
		own = &histograms{since: time.Now()}
		form = append(form, otelprometheus.WithProducer(own))
	}
	scraped, err := otelprometheus.New(form...)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(of), sdkmetric.WithReader(scraped),
		sdkmetric.WithCardinalityLimit(maxSeries), goroutines}
	if s.wants("METRICS") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.end = append(t.end, provider.Shutdown)
	otel.SetMeterProvider(provider)
	// A metric that cannot be exported must not prevent the export of the others.
	t.Meters, t.Scrape = provider, promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{s.Logger}})
	if t.Metrics, err = newMetrics(provider, own); err != nil {
		return err
	}
	t.Metrics.Logger = s.Logger
	t.Metrics.Watch(func(record Record) {
		record(MetricBuildInfo, 1, s.Version, strconv.Itoa(events.Engine), runtime.Version())
	})
	if err := goruntime.Start(goruntime.WithMeterProvider(provider)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// scrapeLog logs metrics that cannot be scraped.
type scrapeLog struct{ log *slog.Logger }

// Println implements [promhttp.Logger].
func (l scrapeLog) Println(v ...any) {
	l.log.Warn("some metrics could not be scraped", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}

// goroutines renames a metric whose name Prometheus takes for part of a histogram.
var goroutines = sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: "go.goroutine.count"},
	sdkmetric.Stream{Name: "go.goroutines"}))

// maxSeries bounds the series of one metric. Values beyond it are counted together, with the label
// otel_metric_overflow.
const maxSeries = 2000

// startTraces exports traces, if the variables say so.
func (t *Telemetry) startTraces(ctx context.Context, s Service, of *resource.Resource) error {
	if !s.wants("TRACES") {
		return nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	t.Tracer = NewTracer(sdktrace.NewBatchSpanProcessor(exporter), of, nil)
	t.end = append(t.end, t.Tracer.End)
	otel.SetTracerProvider(t.Tracer.Provider)
	return nil
}

// startLogs exports logs, if OTEL_LOGS_EXPORTER says so. An endpoint alone is not enough: many
// collectors take traces and metrics there, and answer logs with errors.
func (t *Telemetry) startLogs(ctx context.Context, s Service, of *resource.Resource) error {
	if to, _ := s.Environment("OTEL_LOGS_EXPORTER"); strings.TrimSpace(to) == "" || !s.wants("LOGS") {
		return nil
	}
	exporter, err := autoexport.NewLogExporter(ctx)
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(of),
		sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	t.Logs = otelslog.NewHandler(Scope, otelslog.WithLoggerProvider(provider))
	t.end = append(t.end, provider.Shutdown)
	return nil
}

// wants reports whether the variables ask for the export of a signal.
func (s Service) wants(signal string) bool {
	get := func(name string) string { v, _ := s.Environment(name); return strings.TrimSpace(v) }
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if to := get("OTEL_" + signal + "_EXPORTER"); to != "" {
		return to != "none"
	}
	return cmp.Or(get("OTEL_EXPORTER_OTLP_ENDPOINT"), get("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT")) != ""
}

// End exports the remaining telemetry, as long as the context allows.
func (t *Telemetry) End(ctx context.Context) error {
	var errs []error
	for _, end := range t.end {
		errs = append(errs, end(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("telemetry could not be sent before the end: %w", err)
	}
	return nil
}
