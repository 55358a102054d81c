package otlp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/broker/embedded"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// This file is the system: a NATS server, a database, an orchestrator and a worker as processes,
// and a client that is traced itself.

// patience bounds each wait. It is only used up when something is wrong.
const patience = 2 * time.Minute

// root is the module of the product.
const root = "../.."

// programVariable makes this test binary the program of journey_test.go.
const programVariable = "RONDO_OTLP_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		app.Main(parts()...)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rondo-otlp-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		built = dir
		return m.Run()
	}())
}

// built is where programs are built.
var built string

// program is a binary, with the variables that select its role.
type program struct {
	path string
	env  []string
	name string // the service name of its services
}

// orders builds examples/orders, as its users would.
var orders = sync.OnceValues(func() (program, error) {
	p := program{path: filepath.Join(built, "orders"), name: "orders"}
	out, err := exec.Command("go", "build", "-C", root, "-o", p.path, "./examples/orders").CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("%w: %s", err, out)
	}
	return p, nil
})

func ordersProgram(t *testing.T) program {
	t.Helper()
	p, err := orders()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// system has the processes, servers and clients of a test.
type system struct {
	t        *testing.T
	program  program
	env      []string // of the services
	server   *embedded.Server
	database string
	client   *client.Client
	nats     jetstream.JetStream
	seen     *collector
	web      *web
}

// newSystem starts the servers that services need. The variables are for the services.
func newSystem(t *testing.T, p program, c *collector, env ...string) *system {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return &system{t: t, program: p, env: env, server: server,
		database: filepath.Join(t.TempDir(), "rondo.db"), seen: c}
}

// run starts an orchestrator and a worker, and connects the client.
func (s *system) run() (orchestrator, worker *process) {
	s.t.Helper()
	orchestrator = s.start("orchestrator", "--database", s.database)
	worker = s.start("worker")
	conn, err := nats.Connect(s.server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	if s.nats, err = jetstream.New(conn); err != nil {
		s.t.Fatal(err)
	}
	if s.client, err = client.Connect(s.t.Context(), s.server.URL()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.client.Close() })
	s.web = newWeb(s.t, s.seen)
	return orchestrator, worker
}

// say publishes a message with a plain NATS client, with the trace and the baggage of a context.
func (s *system) say(ctx context.Context, subject string, body any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	m := nats.NewMsg(subject)
	m.Data = text
	carrier := make(propagation.MapCarrier)
	propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}).Inject(ctx, carrier)
	for k, v := range carrier {
		m.Header.Set(k, v)
	}
	if _, err := s.nats.PublishMsg(ctx, m); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits until an instance has ended well.
func (s *system) wait(instance string) orchestration.Outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	out, err := s.client.Wait(ctx, instance)
	if err != nil {
		s.t.Fatalf("%s: %v", instance, err)
	}
	return out
}

// completed waits until instances have completed.
func (s *system) completed(instances ...string) {
	s.t.Helper()
	for _, id := range instances {
		if out := s.wait(id); out.Error != nil {
			s.t.Fatalf("%s has failed: %v", id, out.Error)
		}
	}
}

// waitStatus waits until an instance has this custom status.
func (s *system) waitStatus(instance, want string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for status, err := range s.client.WatchStatus(ctx, instance) {
		if err != nil {
			s.t.Fatalf("%s: %v", instance, err)
		}
		if status.Data.String() == fmt.Sprintf("%q", want) {
			return
		}
	}
	s.t.Fatalf("%s has ended before it was %q", instance, want)
}

// ---- Processes.

// process is a service.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	said *lines
	done chan struct{}
	err  error
}

// start starts a service, and waits until it works.
func (s *system) start(command string, args ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, name: command, said: &lines{grown: make(chan struct{})}, done: make(chan struct{})}
	args = append([]string{command, "--nats", s.server.URL(), "--listen", "127.0.0.1:0", "--log-format", "json",
		"--log-level", "info"}, args...)
	p.cmd = exec.Command(s.program.path, args...)
	p.cmd.Args[0] = s.program.name
	p.cmd.Env = slices.Concat(ownEnvironment(), s.program.env, s.env)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	s.t.Cleanup(func() {
		p.kill()
		if s.t.Failed() {
			s.t.Logf("the %s said:\n%s", p.name, p.said)
		}
	})
	p.await(`"msg":"ready"`)
	return p
}

// ownEnvironment is that of the test, without the settings of services.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "OTEL_") || strings.HasPrefix(v, "RONDO_")
	})
}

// await waits until the process has printed a text.
func (p *process) await(want string) {
	p.t.Helper()
	late := time.After(patience)
	for {
		text, grown := p.said.now()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-grown:
		case <-p.done:
			p.t.Fatalf("the %s has ended (%v) and has not said %s:\n%s", p.name, p.err, want, p.said)
		case <-late:
			p.t.Fatalf("the %s has not said %s:\n%s", p.name, want, p.said)
		}
	}
}

// kill kills the process: it has no chance to send anything.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it fails only if it has ended
	<-p.done
}

// end asks the process to end, and returns how long that took.
func (p *process) end() time.Duration {
	p.t.Helper()
	begun := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("the %s ended with %v:\n%s", p.name, p.err, p.said)
		}
	case <-time.After(patience):
		p.t.Errorf("the %s does not end:\n%s", p.name, p.said)
	}
	return time.Since(begun)
}

// warnings are the lines that the process has logged which are more than information.
func (p *process) warnings() (out []string) {
	for line := range strings.Lines(p.said.String()) {
		var said struct{ Level string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Level != "INFO" && said.Level != "DEBUG" {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// lines collects the output of a process.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed when there is more
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(p)
}

func (l *lines) now() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String(), l.grown
}

func (l *lines) String() string {
	text, _ := l.now()
	return text
}

// ---- The client.

// web is the client: a program that knows nothing of Rondo but its protocol, and is traced itself.
type web struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// webService is its service name.
const webService = "web"

func newWeb(t *testing.T, c *collector) *web {
	t.Helper()
	var options []sdktrace.TracerProviderOption
	if c != nil {
		exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(c.grpc),
			otlptracegrpc.WithInsecure())
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	of := resource.NewSchemaless(semconv.ServiceName(webService), semconv.ServiceInstanceID("web-1"),
		semconv.ServiceVersion("1"))
	p := sdktrace.NewTracerProvider(append(options, sdktrace.WithResource(of),
		sdktrace.WithSampler(sdktrace.AlwaysSample()))...)
	w := &web{provider: p, tracer: p.Tracer("web")}
	t.Cleanup(func() { w.end(t) })
	return w
}

// request runs do within the span of an incoming request.
func (w *web) request(ctx context.Context, name string, do func(context.Context)) trace.SpanContext {
	ctx, span := w.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	do(ctx)
	return span.SpanContext()
}

// unsample returns a context whose trace is not sampled from here on.
func unsample(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(ctx).WithTraceFlags(0))
}

// end exports the remaining spans.
func (w *web) end(t *testing.T) {
	t.Helper()
	if err := w.provider.Shutdown(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
