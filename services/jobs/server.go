// Package jobserver serves the job queues of [github.com/rondo-run/rondo/internal/jobs] over HTTP,
// for programs without a NATS client.
//
//	request ──► admit ──────────────► route ───► operation ──► queue's line ──► ONE transaction ──► answer
//	            access.go, limit.go   routes.go  handlers.go   gather.go        internal/jobs       problem.go
//
// Each orchestrator may serve them, and all serve the same queues: in memory, a server has only the
// requests that wait for an answer. /openapi.json describes every route, and docs/job-queues.md how
// to use them.
//
// A refused request is answered with application/problem+json (RFC 9457): title and status, and a
// detail with the remedy. The members of the document of the queues (success, message, error_code,
// lock_expires_at) stand beside them.
//
// A request that a client gives up before its turn is not done. One that is in flight is completed,
// even if the client has gone: a pop without a lock may then have removed jobs that no client got,
// which is what locks are for.
package jobserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
)

// DefaultAddress is the address of the job queues in dev: only for this machine.
const DefaultAddress = "127.0.0.1:8000"

// Config is the configuration of a server.
type Config struct {
	// Address is host:port; an empty host is all addresses of this machine, as for [net.Listen].
	// Port 0 is any that is free.
	Address string
	// TLS encrypts connections; nil: no encryption.
	TLS *tls.Config
	// Access is the access control. Nil: clients are not authenticated, which is only for addresses
	// of this machine.
	Access *Access
	// Rate is how many requests a second each caller may send, with two seconds' worth at once; 0
	// for no bound.
	Rate float64
	// MaxJob and MaxBody bound a job and a whole request, in bytes; 0: 256 KiB and 4 MiB.
	MaxJob, MaxBody int
	// Timeout bounds the work for a request; 0: 10 seconds.
	Timeout time.Duration
	// Parallel bounds the transactions that are in flight at once, so that the orchestrator's loop
	// has connections left; 0: 4.
	Parallel int
	// ShutdownTimeout is how long a shutdown may take: half of it for requests in progress, 10
	// seconds at most, and as long for their transactions. 0: 20 seconds.
	ShutdownTimeout time.Duration
	// Ready returns the reason why the queues may not be used now, or nil: then requests get 503.
	// nil: always ready.
	Ready func() error `json:"-"`
	// Tracer exports spans, Metrics records metrics; nil: no export.
	Tracer  *telemetry.Tracer
	Metrics *telemetry.Metrics `json:"-"`
	// Logger gets errors and warnings; nil is slog.Default.
	Logger *slog.Logger
	// Random is the source of ids of locks and requests, Now the clock of limits; nil: crypto/rand
	// and time.Now.
	Random io.Reader
	Now    func() time.Time
}

// The defaults, and fixed limits.
const (
	DefaultMaxJob  = 256 << 10
	DefaultMaxBody = 4 << 20
	maxAnswer      = 8 << 20
	maxHeaderBytes = 32 << 10
	headerTimeout  = 10 * time.Second
	endWithin      = 10 * time.Second
)

// Server serves queues. It admits requests, and has the handlers of their routes answer them.
type Server struct {
	config     Config
	operations *operations
	handlers   *handlers
	watcher    *watcher
	limits     *limits
	bodies     *bodies
	answers    *answers
	ids        idSource
	tracer     trace.Tracer
	texts      propagation.TextMapPropagator
	http       *http.Server
	listen     net.Listener
	end        context.CancelFunc // begins the shutdown
	endWithin  time.Duration

	unavailable sync.Map // *unavailable by the code of the problem
}

// New starts to listen. It answers no request before Run.
func New(store jobs.Store, c Config) (*Server, error) {
	orElse(&c.MaxJob, DefaultMaxJob)
	orElse(&c.MaxBody, DefaultMaxBody)
	orElse(&c.Timeout, 10*time.Second)
	orElse(&c.Parallel, 4)
	orElse(&c.ShutdownTimeout, 2*endWithin)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	ending, end := context.WithCancel(context.Background())
	within := min(endWithin, c.ShutdownTimeout/2)
	s := &Server{config: c, limits: newLimits(c.Now, c.Rate), bodies: newBodies(ending, c.MaxBody, within/4),
		answers: newAnswers(), end: end, endWithin: within,
		ids: idSource{c.Random}, texts: propagation.TraceContext{}, watcher: &watcher{store, c.Metrics, c.Logger}}
	s.operations = &operations{newGatherer(store, c.Timeout, c.Parallel), make(chan struct{}, listsAtOnce),
		c.Metrics.Jobs(), c.Now, c.Timeout}
	s.handlers = &handlers{
		items:  &jobHandlers{s.operations, s.bodies, s.ids, s.texts, c.MaxJob},
		queues: &queueHandlers{store, s.operations, s.bodies},
		dead:   &deadHandlers{store, s.operations, s.bodies},
	}
	s.tracer = noop.NewTracerProvider().Tracer("")
	if c.Tracer != nil {
		s.tracer = c.Tracer.Provider.Tracer(telemetry.Scope)
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return nil, fmt.Errorf("queues: address %q: want host:port: %w", c.Address, err)
	}
	if c.Access == nil && !Local(c.Address) {
		return nil, fmt.Errorf(
			"queues: %s can be reached from other machines: say who may do what there with an access file, or "+
				"listen at 127.0.0.1", c.Address)
	}
	var err error
	if s.listen, err = net.Listen("tcp", c.Address); err != nil {
		return nil, fmt.Errorf("queues: %w", err)
	}
	s.http = &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: c.Timeout + headerTimeout,
		WriteTimeout: c.Timeout + 2*headerTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		TLSConfig: c.TLS,
	}
	return s, nil
}

func orElse[T comparable](v *T, otherwise T) {
	var none T
	if *v == none {
		*v = otherwise
	}
}

// isLoopback reports whether a host is this machine only.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Address is the address at which the server listens.
func (s *Server) Address() string { return s.listen.Addr().String() }

// URL is the URL of the server.
func (s *Server) URL() string {
	if s.config.TLS != nil {
		return "https://" + s.Address()
	}
	return "http://" + s.Address()
}

// Do does an operation, together with others of the same queue that arrive at the same time. The
// error is the store's; the reason for a refusal is in the result.
func (s *Server) Do(ctx context.Context, queue string, op jobs.Operation) (jobs.Result, error) {
	return s.operations.gathered(ctx, queue, op, nil, nil)
}

// Run serves until the context ends. Requests in progress then get 10 seconds to complete, or half
// of the shutdown timeout if that is less, and incomplete bodies a quarter of that. Run ends the
// connections that are left, and logs so: clients that send or read too slowly are no error of the
// server.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() {
		if s.config.TLS != nil {
			served <- s.http.ServeTLS(s.listen, "", "")
			return
		}
		served <- s.http.Serve(s.listen)
	}()
	watching, unwatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watcher.run(watching)
	}()
	defer func() {
		unwatch()
		<-watched
	}()
	select {
	case err := <-served:
		return fmt.Errorf("queues: the server has ended: %w", err)
	case <-ctx.Done():
	}
	s.end()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.endWithin)
	defer cancel()
	err := s.http.Shutdown(within)
	if errors.Is(err, context.DeadlineExceeded) {
		s.config.Logger.WarnContext(ctx, "connections of the job queues ended during a request", "after", s.endWithin)
		err = s.http.Close()
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	if !s.operations.line.wait(s.endWithin) {
		s.config.Logger.WarnContext(ctx, "transactions of the job queues in flight at the end; each happens or not",
			"after", s.endWithin)
	}
	return err
}

// Close closes a server that was never run.
func (s *Server) Close() error {
	s.end()
	return s.listen.Close()
}
