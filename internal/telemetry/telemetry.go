// Package telemetry is how a process tells what it does: traces, metrics, and what belongs to them
// in logs. It keeps to OpenTelemetry.
//
// # Where it goes
//
// Traces go to where the standard OTEL_* variables say, and nowhere if none of them is set:
// OTEL_EXPORTER_OTLP_ENDPOINT is enough for a collector. Metrics go there, too, and can always be
// scraped from /metrics. Which executions are traced is what OTEL_TRACES_SAMPLER says of those that
// come without a trace; the others are as whoever started them has decided.
//
// # A trace
//
//	whoever started it
//	└─ orchestration <name>          one execution, from its start to its end
//	   ├─ round <name>               what the code decided in one go, with links to the messages that caused it
//	   ├─ activity <name>            from when it was asked for until its result was taken
//	   │  └─ execute <name>          on a worker
//	   ├─ timer, event, queue        from when the code waited until it went on
//	   ├─ step <name>                inline
//	   └─ child <name>
//	      └─ orchestration <name>    the child's own
//
// # Ids
//
// The id of a span is made of what it is about: the instance, the execution, the event that opens
// it (see [events.SpanOf]). So whoever sends a message knows the id of a span that another process
// tells later, and nothing that happens twice is a second span. Each is told once, when it has
// ended, by the one whose commit has ended it. What a process that is killed has told and not sent
// is lost; nothing waits for that.
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

// Service says who tells.
type Service struct {
	// Name is service.name, unless OTEL_SERVICE_NAME says another one. Instance tells it from
	// others of that name.
	Name, Version, Instance string
	// Environment looks variables up; nil is [os.LookupEnv]. The SDK reads its own from the
	// process.
	Environment func(string) (string, bool)
	// Logger is told what cannot be sent, so it must not send it itself.
	Logger *slog.Logger
}

// Telemetry is what a process tells with. Make it with [Start], and end it when everything else has
// ended.
type Telemetry struct {
	// Tracer tells spans; nil if nobody is told.
	Tracer *Tracer
	// Metrics counts and measures.
	Metrics *Metrics
	// Meters are for metrics of others.
	Meters metric.MeterProvider
	// Scrape serves all metrics in the form of Prometheus.
	Scrape http.Handler
	// Logs sends records; nil if nobody has asked for that.
	Logs slog.Handler

	end []func(context.Context) error
}

// Start begins to tell. The global providers of OpenTelemetry are set, too, so that instrumentation
// in activities finds them.
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

// resource says what OpenTelemetry calls the resource: who tells.
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

// startMetrics has metrics scraped, and sent if the variables say so.
func (t *Telemetry) startMetrics(ctx context.Context, s Service, of *resource.Resource) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	form, own := []otelprometheus.Option{otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo()},
		(*histograms)(nil)
	if !s.told("METRICS") {
		own = &histograms{since: time.Now()}
		form = append(form, otelprometheus.WithProducer(own))
	}
	scraped, err := otelprometheus.New(form...)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(of), sdkmetric.WithReader(scraped),
		sdkmetric.WithCardinalityLimit(maxSeries), goroutines}
	if s.told("METRICS") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.end = append(t.end, provider.Shutdown)
	otel.SetMeterProvider(provider)
	// One metric that cannot be told must not be why the others are not.
	t.Meters, t.Scrape = provider, promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: scrapeLog{s.Logger}})
	if t.Metrics, err = newMetrics(provider, own); err != nil {
		return err
	}
	t.Metrics.Logger = s.Logger
	t.Metrics.Watch(func(tell Tell) {
		tell(MetricBuildInfo, 1, s.Version, strconv.Itoa(events.Engine), runtime.Version())
	})
	if err := goruntime.Start(goruntime.WithMeterProvider(provider)); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// scrapeLog is told what cannot be scraped.
type scrapeLog struct{ log *slog.Logger }

// Println implements [promhttp.Logger].
func (l scrapeLog) Println(v ...any) {
	l.log.Warn("some metrics could not be scraped", "error", strings.TrimSpace(fmt.Sprintln(v...)))
}

// goroutines has their number go by a name that Prometheus does not take for part of a histogram.
var goroutines = sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: "go.goroutine.count"},
	sdkmetric.Stream{Name: "go.goroutines"}))

// maxSeries bounds the series of one metric. What is beyond it is counted together, with the label
// otel_metric_overflow.
const maxSeries = 2000

// startTraces has traces sent, if the variables say so.
func (t *Telemetry) startTraces(ctx context.Context, s Service, of *resource.Resource) error {
	if !s.told("TRACES") {
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

// startLogs has logs sent, if OTEL_LOGS_EXPORTER says so. An endpoint alone is not enough: many
// collectors take traces and metrics there, and answer logs with errors.
func (t *Telemetry) startLogs(ctx context.Context, s Service, of *resource.Resource) error {
	if to, _ := s.Environment("OTEL_LOGS_EXPORTER"); strings.TrimSpace(to) == "" || !s.told("LOGS") {
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

// told tells whether the variables want a signal sent anywhere.
func (s Service) told(signal string) bool {
	get := func(name string) string { v, _ := s.Environment(name); return strings.TrimSpace(v) }
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if to := get("OTEL_" + signal + "_EXPORTER"); to != "" {
		return to != "none"
	}
	return cmp.Or(get("OTEL_EXPORTER_OTLP_ENDPOINT"), get("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT")) != ""
}

// End sends what has not been sent, as long as the context allows.
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
