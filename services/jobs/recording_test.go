package jobserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// This file tests the spans, the metrics, and the log of a server.

// told is a server with its telemetry.
type told struct {
	*service
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
	log    *bytes.Buffer // read it only when the server has ended
	broken *atomic.Bool  // the database takes nothing
	end    func()
}

// brokenStore is a store that fails when it is told to.
type brokenStore struct {
	jobs.Store
	broken *atomic.Bool
}

var errDisk = errors.New("the disk is on fire")

func (s brokenStore) Do(ctx context.Context, name string, ops ...jobs.Operation) ([]jobs.Result, error) {
	if s.broken.Load() {
		return nil, errDisk
	}
	return s.Store.Do(ctx, name, ops...)
}

func telling(t *testing.T) *told {
	t.Helper()
	c := newClock()
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Now: c.now, Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	x := &told{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), log: new(bytes.Buffer),
		broken: new(atomic.Bool)}
	m, err := telemetry.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(x.reader)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Queues().Do(t.Context(), "before", jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1")},
		{Data: []byte("2")}}}, jobs.Pop{Count: 1, LockID: "12345678901"}); err != nil {
		t.Fatal(err)
	}
	c.move(7 * time.Second)
	x.service, x.end = serve(t, brokenStore{db.Queues(), x.broken}, jobserver.Config{
		Now: c.now, Tracer: telemetry.NewTracer(sdktrace.NewSimpleSpanProcessor(x.spans), nil, nil), Metrics: m,
		Logger: slog.New(slog.NewJSONHandler(x.log, nil)),
	})
	x.clock = c
	t.Cleanup(x.end)
	return x
}

// with sends a request with headers.
func (x *told) with(method, path, body string, header ...string) response {
	x.t.Helper()
	r, err := http.NewRequest(method, x.url+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	return x.send(r)
}

// over ends the server, so that everything is exported, and returns the spans in the order in which
// requests came.
func (x *told) over() tracetest.SpanStubs {
	x.end()
	all := x.spans.GetSpans()
	slices.SortStableFunc(all, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return all
}

// attributes of a span, as text.
func attributes(s tracetest.SpanStub) map[string]string {
	all := make(map[string]string)
	for _, kv := range s.Attributes {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

const (
	sampledTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentSpan   = "00f067aa0ba902b7"
)

// TestSpansOfPushAndPop: a push continues its caller's trace, the job carries it, and a pop has
// links to the pushes.
func TestSpansOfPushAndPop(t *testing.T) {
	x := telling(t)
	x.with("POST", "/queue/q/push", `{"item": 1}`, "traceparent", "00-"+sampledTrace+"-"+parentSpan+"-01",
		"X-Request-Id", "mine-1").is(200, nil)
	x.with("POST", "/queue/q/push", `{"item": 2}`).is(200, nil)
	// this one is not exported
	x.with("POST", "/queue/q/push", `{"item": 3}`, "traceparent", "00-"+sampledTrace+"-"+parentSpan+"-00").is(200, nil)
	r := x.with("POST", "/queue/q/pop?require_ack=true&count=3&details=true", "").is(200,
		map[string]any{"items": []int{1, 2, 3}})
	x.with("POST", "/queue/q/acknowledge", body("lock_id", r.string("lock_id"))).is(200, nil)
	all := x.over()
	if len(all) != 4 {
		t.Fatalf("%d spans, want 4: of two pushes, a pop and an acknowledgement", len(all))
	}
	first, second, pop, done := all[0], all[1], all[2], all[3]

	if first.Name != "POST /queue/{queue_id}/push" || first.SpanKind != trace.SpanKindServer ||
		first.SpanContext.TraceID().String() != sampledTrace || first.Parent.SpanID().String() != parentSpan ||
		!first.Parent.IsRemote() {
		t.Errorf("the push: %q, %v, in %v below %v", first.Name, first.SpanKind, first.SpanContext.TraceID(),
			first.Parent.SpanID())
	}
	want := map[string]string{
		"http.request.method": "POST", "http.route": "/queue/{queue_id}/push", "url.path": "/queue/q/push",
		"http.request.id": "mine-1", "http.response.status_code": "200",
		"messaging.destination.name": "q",
	}
	if got := attributes(first); !maps.Equal(got, want) {
		t.Errorf("the push has the attributes %v, want %v", got, want)
	}
	if second.Parent.IsValid() || second.SpanContext.TraceID() == first.SpanContext.TraceID() {
		t.Error("a push without a trace begins none of its own")
	}
	if pop.Name != "POST /queue/{queue_id}/pop" || pop.Parent.IsValid() ||
		done.Name != "POST /queue/{queue_id}/acknowledge" {
		t.Errorf("the pop: %q below %v; then %q", pop.Name, pop.Parent.SpanID(), done.Name)
	}
	var links []trace.SpanContext
	for _, l := range pop.Links {
		links = append(links, l.SpanContext.WithRemote(false))
	}
	pushes := []trace.SpanContext{first.SpanContext.WithRemote(false), second.SpanContext.WithRemote(false)}
	if !slices.EqualFunc(links, pushes, trace.SpanContext.Equal) || !pop.Links[0].SpanContext.IsRemote() {
		t.Errorf("the pop has links to %v, want %v", links, pushes)
	}
	if len(done.Links)+len(first.Links) != 0 {
		t.Error("others have links, too")
	}
	var details []any
	for _, d := range r.body["details"].([]any) {
		details = append(details, d.(map[string]any)["traceparent"])
	}
	parents := []any{
		"00-" + sampledTrace + "-" + first.SpanContext.SpanID().String() + "-01",
		"00-" + second.SpanContext.TraceID().String() + "-" + second.SpanContext.SpanID().String() + "-01", nil,
	}
	if !equal(details, parents) {
		t.Errorf("consumers are given the traces %v, want %v", details, parents)
	}
}

// TestLinksAreBounded: a pop of very many jobs has not as many links.
func TestLinksAreBounded(t *testing.T) {
	x := telling(t)
	for n := range 40 {
		x.push("q", 0, n)
	}
	x.post("/queue/q/pop?count=40", "").is(200, map[string]any{"count": 40})
	all := x.over()
	if pop := all[len(all)-1]; len(all) != 41 || len(pop.Links) != 32 {
		t.Errorf("%d spans, the last with %d links", len(all), len(pop.Links))
	}
}

// TestSpansOfRefusals: a refusal is not a failure of the service, and an error of the store is. The
// log has the request's id, and nothing of the job.
func TestSpansOfRefusals(t *testing.T) {
	x := telling(t)
	x.push("q", 0, 1, 2)
	x.lock("q", "", 1)
	x.post("/queue/q/pop", "").is(423, nil)
	x.ask("GET", "/nowhere/at/all", "").is(404, nil)
	x.broken.Store(true)
	failed := x.with("POST", "/queue/q/push", `{"item": "a secret"}`, "X-Request-Id", "mine-2").is(500,
		map[string]any{"request_id": "mine-2", "error_code": "INTERNAL"})
	if failed.header.Get("X-Request-Id") != "mine-2" {
		t.Errorf("the answer has the id %q", failed.header.Get("X-Request-Id"))
	}
	all := x.over()
	if len(all) != 5 {
		t.Fatalf("%d spans, want 5", len(all))
	}
	locked, nowhere, broken := all[2], all[3], all[4]
	for _, c := range []struct {
		span         tracetest.SpanStub
		name, status string
		code         codes.Code
	}{
		{locked, "POST /queue/{queue_id}/pop", "423", codes.Unset}, {nowhere, "GET (none)", "404", codes.Unset},
		{broken, "POST /queue/{queue_id}/push", "500", codes.Error},
	} {
		if c.span.Name != c.name || attributes(c.span)["http.response.status_code"] != c.status ||
			c.span.Status.Code != c.code {
			t.Errorf("%q with %s is %v; want %q with %s, %v", c.span.Name,
				attributes(c.span)["http.response.status_code"], c.span.Status.Code, c.name, c.status, c.code)
		}
	}
	if len(broken.Events) != 1 || !strings.Contains(broken.Events[0].Attributes[1].Value.String(), errDisk.Error()) {
		t.Errorf("the span that has failed has the events %v", broken.Events)
	}
	if name, there := attributes(nowhere)["messaging.destination.name"]; there {
		t.Errorf("a path of nobody's is about the queue %q", name)
	}
	lines := strings.Split(strings.TrimSpace(x.log.String()), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil || len(lines) != 1 {
		t.Fatalf("the log has %d lines, %v: %s", len(lines), err, x.log)
	}
	if line["msg"] != "a request to a queue has failed" || line["request_id"] != "mine-2" ||
		line["error"] != errDisk.Error() || strings.Contains(x.log.String(), "secret") {
		t.Errorf("the log says %s", x.log)
	}
}

// TestIdempotencyKeysAreClear: a push that seems to have a key, and has none or two, is refused.
// Nothing is pushed then: the caller would take a second push for a harmless one.
func TestIdempotencyKeysAreClear(t *testing.T) {
	x := telling(t)
	for _, keys := range [][]string{{""}, {"a", "b"}, {"a", "a"}, {"a", ""}} {
		r, err := http.NewRequest("POST", x.url+"/queue/q/push", strings.NewReader(`{"item": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Idempotency-Key"] = keys
		x.send(r).is(400, nil)
	}
	x.with("POST", "/queue/q/push", `{"item": 4}`, "Idempotency-Key", "a").is(200, map[string]any{"items_pushed": 1.0})
}

// TestMetricsOfQueues: requests by their statuses, jobs by their changes, and the states of
// queues.
func TestMetricsOfQueues(t *testing.T) {
	x := telling(t)
	// The states of queues are read in the background, at the beginning and every 15 s.
	x.measures(map[string]float64{
		"rondo.jobs.depth{queue=before}":      1,
		"rondo.jobs.locked{queue=before}":     1,
		"rondo.jobs.dead{queue=before}":       0,
		"rondo.jobs.oldest.age{queue=before}": 7,
	})
	x.push("q", 0, 1, 2, 3)
	x.with("POST", "/queue/q/push", `{"item": 4}`, "Idempotency-Key", "k").is(200, nil)
	// not counted
	x.with("POST", "/queue/q/push", `{"item": 4}`, "Idempotency-Key", "k").is(200, map[string]any{"duplicate": true})
	id := x.lock("q", "count=2", 1, 2)
	x.post("/queue/q/pop", "").is(423, nil)
	x.post("/queue/q/acknowledge", body("lock_id", id)).is(200, nil)
	x.lock("q", "", 3)
	x.clock.move(time.Minute)
	x.post("/queue/q/acknowledge", body("lock_id", id)).is(410, nil) // its job is back
	id = x.lock("q", "", 3)
	x.post("/queue/q/nack", body("lock_id", id)).is(200, nil)
	x.ask("GET", "/nowhere", "").is(404, nil)
	x.measures(map[string]float64{
		"rondo.jobs.requests{operation=push,status=200}": 3, "rondo.jobs.requests{operation=pop,status=200}": 3,
		"rondo.jobs.requests{operation=pop,status=423}":         1,
		"rondo.jobs.requests{operation=acknowledge,status=200}": 1,
		"rondo.jobs.requests{operation=acknowledge,status=410}": 1,
		"rondo.jobs.requests{operation=nack,status=200}":        1,
		"rondo.jobs.requests{operation=none,status=404}":        1,
		"rondo.jobs.request.duration{operation=pop}":            4,
		"rondo.jobs{change=pushed}":                             4,
		"rondo.jobs{change=popped}":                             4,
		"rondo.jobs{change=acknowledged}":                       2,
		"rondo.jobs{change=expired}":                            1,
		"rondo.jobs{change=returned}":                           1,
		"rondo.jobs{change=died}":                               0,
	})
}

// measures waits until the metrics have values.
func (x *told) measures(want map[string]float64) {
	x.t.Helper()
	var got map[string]float64
	if !slowtest.Until(10*time.Minute, func() bool {
		got = x.metrics()
		for series, n := range want {
			value, there := got[series]
			if value != n || !there && (n != 0 || strings.Contains(series, "{queue=")) {
				return false
			}
		}
		return true
	}) {
		x.t.Fatalf("the metrics are\n%v\nand not\n%v", got, want)
	}
}

// metrics are the values of series, of histograms how many there were.
func (x *told) metrics() map[string]float64 {
	var all metricdata.ResourceMetrics
	if err := x.reader.Collect(context.Background(), &all); err != nil {
		x.t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out[m.Name+"{"+p.Attributes.Encoded(attribute.DefaultEncoder())+"}"] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					out[m.Name+"{"+p.Attributes.Encoded(attribute.DefaultEncoder())+"}"] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[m.Name+"{"+p.Attributes.Encoded(attribute.DefaultEncoder())+"}"] = float64(p.Count)
				}
			}
		}
	}
	return out
}
