package jobserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rondo-run/rondo/internal/telemetry"
	jobserver "github.com/rondo-run/rondo/services/jobs"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// TestAttackSpans: no request takes the spans of others with it.
func TestAttackSpans(t *testing.T) {
	got := 0
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got += len(b)
	}))
	defer collector.Close()
	e, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(collector.URL))
	if err != nil {
		t.Fatal(err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e))
	s, end := serve(t, large(t), jobserver.Config{Tracer: &telemetry.Tracer{Provider: p}})
	defer end()
	for _, path := range []string{"/queue/a/depth", "/queue/%ff/depth"} {
		s.ask("GET", "/queue/a/depth", "")
		s.ask("GET", path, "")
		got = 0
		err := p.ForceFlush(context.Background())
		t.Logf("%s: %v, %d bytes", path, err, got)
		if err != nil || got == 0 {
			t.Errorf("the spans are lost")
		}
	}
}
