// Package jobserver serves the queues of [github.com/rondo-run/rondo/internal/jobs] over HTTP, for
// whoever speaks nothing else.
//
//	request ──► who is it, may it? ──► route ──► operation ──► line of the queue ──► ONE transaction ──► answer
//	            access.go, limit.go    routes.go  handlers.go   gather.go             internal/jobs       problem.go
//
// Each orchestrator may serve them, and all serve the same queues: what is in memory here is only
// who waits for an answer. /openapi.json describes every route, and docs/queues.md tells how to use
// them.
//
// What is refused is told as application/problem+json (RFC 9457): title and status, and a detail
// that says what to do. The members that clients of the former service know (success, message,
// error_code, lock_expires_at) stand beside them.
//
// A request that a client has given up before its turn came is not done. One that is under way is
// done to its end, whoever still waits: a pop without a lock may then have removed items that
// nobody got, which is what locks are for.
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
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/semaphore"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/telemetry"
)

// DefaultAddress is where the queues are served in dev: only for this machine.
const DefaultAddress = "127.0.0.1:8000"

// Config says what is served, and where.
type Config struct {
	// Address is host:port; an empty host is all addresses of this machine, as for [net.Listen].
	// Port 0 is any that is free.
	Address string
	// TLS encrypts; nil: nothing does.
	TLS *tls.Config
	// Access says who may do what. Nil: nobody is asked who they are, which is only for addresses
	// of this machine.
	Access *Access
	// Rate is how many requests a second each caller may send, with two seconds' worth at once; 0
	// for no bound.
	Rate float64
	// MaxItem and MaxBody bound an item and a whole request, in bytes; 0: 256 KiB and 4 MiB.
	MaxItem, MaxBody int
	// Timeout bounds what is done for a request; 0: 10 seconds.
	Timeout time.Duration
	// Parallel bounds the transactions that are under way at once, so that the orchestrator's loop
	// has connections left; 0: 4.
	Parallel int
	// Tracer tells spans, Metrics counts; nil: nobody does.
	Tracer  *telemetry.Tracer
	Metrics *telemetry.Metrics `json:"-"`
	// Logger gets what goes wrong; nil is slog.Default.
	Logger *slog.Logger
	// Random is where ids of locks and requests come from, Now the clock of limits; nil:
	// crypto/rand and time.Now.
	Random io.Reader
	Now    func() time.Time
}

// The defaults, and what is never longer.
const (
	DefaultMaxItem = 256 << 10
	DefaultMaxBody = 4 << 20
	maxAnswer      = 8 << 20
	maxBodies      = 64 << 20 // of all requests that are under way
	maxHeaderBytes = 32 << 10
	headerTimeout  = 10 * time.Second
	endWithin      = 10 * time.Second
)

// Server serves queues.
type Server struct {
	config Config
	store  jobs.Store
	line   *gatherer
	limits *limits
	bodies *semaphore.Weighted // of bytes
	tracer trace.Tracer
	texts  propagation.TextMapPropagator
	http   *http.Server
	listen net.Listener
}

// New begins to listen. Nobody is answered before Run.
func New(store jobs.Store, c Config) (*Server, error) {
	orElse(&c.MaxItem, DefaultMaxItem)
	orElse(&c.MaxBody, DefaultMaxBody)
	orElse(&c.Timeout, 10*time.Second)
	orElse(&c.Parallel, 4)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{config: c, store: store, line: newGatherer(store, c.Timeout, c.Parallel),
		limits: newLimits(c.Now, c.Rate), texts: propagation.TraceContext{}}
	s.bodies = semaphore.NewWeighted(max(maxBodies, int64(c.MaxBody)))
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
		return nil, fmt.Errorf("queues: %w (choose another address)", err)
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

// Address is where it listens.
func (s *Server) Address() string { return s.listen.Addr().String() }

// URL is how it is reached.
func (s *Server) URL() string {
	if s.config.TLS != nil {
		return "https://" + s.Address()
	}
	return "http://" + s.Address()
}

// Do does an operation, together with others of the same queue that come at the same time. The
// error is the store's; why an operation was refused is in the result.
func (s *Server) Do(ctx context.Context, queue string, op jobs.Operation) (jobs.Result, error) {
	r, err := s.line.do(ctx, queue, op)
	if err == nil {
		s.count(op, r)
	}
	return r, err
}

// Run serves until the context ends. Requests that are under way get a moment to end.
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
		s.watch(watching)
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
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	err := s.http.Shutdown(ending)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-served
	s.line.wait()
	return err
}

// Close ends a server that was never run.
func (s *Server) Close() error { return s.listen.Close() }
