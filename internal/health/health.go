// Package health is the small HTTP server of a process for its liveness, its readiness, and its
// version.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// DefaultAddress is the default of [Config.Address]: only for this machine.
const DefaultAddress = "127.0.0.1:8123"

// Config is the configuration of a server.
type Config struct {
	// Address is host:port; an empty host is all addresses of this machine, as for [net.Listen].
	// Port 0 is any that is free. Empty is [DefaultAddress].
	Address string
	// Live and Ready return the problem, or nil. They must not block for long.
	Live, Ready func() error
	// Metrics serves /metrics, if there are any.
	Metrics http.Handler
	// LogLevel serves /loglevel, if it can be changed.
	LogLevel http.Handler
	// Version is shown at /version. Default: the version of the build.
	Version string
	// Logger gets errors; nil is slog.Default.
	Logger *slog.Logger
}

// Server is a running server.
type Server struct {
	http   *http.Server
	listen net.Listener
	done   chan struct{}
}

const (
	requestTimeout = 5 * time.Second
	maxHeaderBytes = 16 << 10
)

// Serve starts to listen.
func Serve(c Config) (*Server, error) {
	if c.Address == "" {
		c.Address = DefaultAddress
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return nil, fmt.Errorf("health: address %q: want host:port: %w", c.Address, err)
	}
	listen, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("health: %w (another process may listen there)", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /livez", check(c.Live))
	mux.Handle("GET /readyz", check(c.Ready))
	if c.Metrics != nil {
		mux.Handle("GET /metrics", c.Metrics)
	}
	if c.LogLevel != nil {
		mux.Handle("/loglevel", c.LogLevel)
	}
	mux.Handle("GET /version", version(c.Version))
	s := &Server{listen: listen, done: make(chan struct{}), http: &http.Server{
		Handler: mux, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listen); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.Error("health: the server has ended", "error", err)
		}
	}()
	return s, nil
}

// Address is the address at which the server listens.
func (s *Server) Address() string { return s.listen.Addr().String() }

// Close stops the server, and waits a moment for answers in progress.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

// check answers "ok", or the problem.
func check(problem func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		var err error
		if problem != nil {
			err = problem()
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}

// about is the answer of /version.
type about struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Changed  bool   `json:"changed,omitempty"` // built from files that were not committed
	Built    string `json:"built,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version(name string) http.Handler {
	a := about{Version: name, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build, ok := debug.ReadBuildInfo(); ok {
		if a.Version == "" {
			a.Version = build.Main.Version
		}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				a.Revision = s.Value
			case "vcs.time":
				a.Built = s.Value
			case "vcs.modified":
				a.Changed = s.Value == "true"
			}
		}
	}
	if a.Version == "" {
		a.Version = "unknown"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // an error means that the client has gone
	})
}
