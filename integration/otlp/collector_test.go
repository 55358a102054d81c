package otlp_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

// This file is the collector: the receiver of the OpenTelemetry Collector, with a memory behind it.

// collector is a receiver that listens for both protocols, and the data that it has received.
type collector struct {
	grpc, http string // addresses

	mu      sync.Mutex
	spans   []span
	metrics []metric
	changed chan struct{} // closed when something arrives
}

// metric is one that has arrived, with the service that sent it.
type metric struct {
	Name, Unit string
	Service    string
	Resource   map[string]any
}

// nothing is the name of no metric: it stands for any data from a service.
const nothing = ""

// protocols are those of OTLP, as OTEL_EXPORTER_OTLP_PROTOCOL names them.
var protocols = []string{"grpc", "http/protobuf"}

// startCollector starts one on ports that are free.
func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{changed: make(chan struct{})}
	var err error
	for range 5 { // another process may take a port before it does
		if err = c.start(t); err == nil {
			return c
		}
	}
	t.Fatalf("the collector does not start: %v", err)
	return nil
}

func (c *collector) start(t *testing.T) error {
	c.grpc, c.http = freeAddress(t), freeAddress(t)
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = c.grpc
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = c.http
	traces, err := consumer.NewTraces(c.takeTraces)
	if err != nil {
		return err
	}
	metrics, err := consumer.NewMetrics(c.takeMetrics)
	if err != nil {
		return err
	}
	settings := receiver.Settings{ID: component.NewID(factory.Type()), BuildInfo: component.NewDefaultBuildInfo(),
		TelemetrySettings: component.TelemetrySettings{
			Logger: zap.NewNop(), TracerProvider: tracenoop.NewTracerProvider(),
			MeterProvider: metricnoop.NewMeterProvider(), Resource: pcommon.NewResource(),
		}}
	r, err := factory.CreateTraces(context.Background(), settings, config, traces)
	if err != nil {
		return err
	}
	if _, err := factory.CreateMetrics(context.Background(), settings, config, metrics); err != nil {
		// it is the same receiver
		return err
	}
	end := func() { _ = r.Shutdown(context.Background()) } // nothing is left to be lost
	if err := r.Start(context.Background(), alone{}); err != nil {
		end()
		return err
	}
	t.Cleanup(end)
	return nil
}

// alone is the host of a receiver that has no extensions.
type alone struct{}

func (alone) GetExtensions() map[component.ID]component.Component { return nil }

// freeAddress is one without a listener at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// endpoint is the value of OTEL_EXPORTER_OTLP_ENDPOINT for a protocol.
func (c *collector) endpoint(protocol string) string {
	if protocol == "grpc" {
		return "http://" + c.grpc
	}
	return "http://" + c.http
}

func (c *collector) takeTraces(_ context.Context, all ptrace.Traces) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range all.ResourceSpans().All() {
		for _, scope := range of.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				c.spans = append(c.spans, newSpan(of.Resource(), scope.Scope(), s))
			}
		}
	}
	c.stir()
	return nil
}

func (c *collector) takeMetrics(_ context.Context, all pmetric.Metrics) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range all.ResourceMetrics().All() {
		from := metric{Name: nothing, Resource: of.Resource().Attributes().AsRaw()}
		from.Service, _ = from.Resource["service.name"].(string)
		c.metrics = append(c.metrics, from)
		for _, scope := range of.ScopeMetrics().All() {
			for _, m := range scope.Metrics().All() {
				from.Name, from.Unit = m.Name(), m.Unit()
				c.metrics = append(c.metrics, from)
			}
		}
	}
	c.stir()
	return nil
}

// stir wakes the waiters. The lock is held.
func (c *collector) stir() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// received returns the spans that have arrived by now.
func (c *collector) received() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// metricsOf are the names of the metrics that a service has sent, and its resource; false if it has
// sent nothing at all.
func (c *collector) metricsOf(service string) (names []string, resource map[string]any, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.metrics {
		if m.Service != service {
			continue
		}
		resource, ok = m.Resource, true
		if m.Name != nothing && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names, resource, ok
}

// await waits until enough spans have arrived.
func (c *collector) await(t *testing.T, what string, enough func([]span) bool) {
	t.Helper()
	late := time.After(patience)
	for {
		c.mu.Lock()
		changed, spans := c.changed, slices.Clone(c.spans)
		c.mu.Unlock()
		if enough(spans) {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s has not come; what has: %s", what, counts(spans))
		}
	}
}

// counts lists the names of spans, and their numbers.
func counts(spans []span) string {
	n := make(map[string]int)
	for _, s := range spans {
		n[s.Name]++
	}
	return fmt.Sprint(n)
}
