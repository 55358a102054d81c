// Package embedded runs a NATS server in this process: for tests, and for development without an
// installed server.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Options configure the server. The zero value stores everything in a temporary directory and
// listens on no port.
type Options struct {
	// Dir is the directory of the streams. Two servers must not use it at the same time.
	Dir string
	// Listen is an address such as 127.0.0.1:4222; port 0 selects a free one. If it is empty, only
	// this process can connect.
	Listen string
	// SyncAlways makes the server sync each message to the disk before it acknowledges it.
	SyncAlways bool
	// Cluster makes it one of several servers.
	Cluster *Cluster
	// Config is a configuration file that is read first: for users and permissions.
	Config string
	// MaxPayload is the maximum size of a message. Default: 1 MiB.
	MaxPayload int32
	// NoJetStream disables JetStream.
	NoJetStream bool
	// Heal is how often to look whether the server has failed to write, and to restart it once the
	// directory has room again. 0: never. See heal.go.
	Heal time.Duration
	// Logger receives the server's warnings and errors; nil drops them.
	Logger *slog.Logger

	room func(dir string) error // tries whether there is room; nil: [tryRoom]
}

// Cluster makes a server one of several.
type Cluster struct {
	// Name is the name of the server, which must be the same when the server starts again.
	Name string
	// Listen is where the other servers connect to, Routes are the addresses of all of them.
	Listen string
	Routes []string
}

// Server is a running server.
type Server struct {
	mu        sync.Mutex
	s         *server.Server
	options   Options
	temporary bool // the directory goes with the server
	closed    bool
	log       *logger
	ended     chan struct{} // closed when this run ends
}

// ready is the maximum time until a started server responds.
const ready = 20 * time.Second

// loginWithin is the minimum of the time limit for a login. The server's own limit, 2 s, is for
// strangers, and too short for the clients of this process on a machine that hardly gets on.
const loginWithin = time.Minute

// Start starts a server and returns when it can be used.
func Start(o Options) (*Server, error) {
	s := &Server{options: o}
	if o.Dir == "" && !o.NoJetStream { // the server's own default would be shared by all that are started without one
		dir, err := os.MkdirTemp("", "rondo-nats-")
		if err != nil {
			return nil, fmt.Errorf("embedded NATS server: %w", err)
		}
		s.options.Dir, s.temporary = dir, true
	}
	if err := s.run(); err != nil {
		s.removeTemporary()
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	return s, nil
}

func (s *Server) run() error {
	o := s.options
	opts, err := o.server()
	if err != nil {
		return err
	}
	run, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	log := &logger{out: o.Logger, fatal: make(chan string, 1)}
	run.SetLoggerV2(log, false, false, false)
	run.Start()
	stop := func(why error) error {
		run.Shutdown()
		run.WaitForShutdown()
		return why
	}
	for began := time.Now(); !run.ReadyForConnections(ready / 100); {
		select {
		case why := <-log.fatal:
			return stop(errors.New(why))
		default:
		}
		if time.Since(began) > ready {
			return stop(errors.New("it does not answer; is its directory used by another one, or its port taken?"))
		}
	}
	if !o.NoJetStream && !run.JetStreamEnabled() {
		return stop(fmt.Errorf("it cannot keep streams in %q; is the directory writable?", opts.StoreDir))
	}
	s.s, s.log, s.ended = run, log, make(chan struct{})
	if o.Heal > 0 {
		go s.heal(s.ended, log)
	}
	if n := s.Recovered(); n > 0 && o.Logger != nil {
		o.Logger.Info("NATS server: streams recovered after an unclean shutdown", "streams", n)
	}
	if o.Listen != "" { // keep a port that was free, so that clients find the server when it starts again
		if a, ok := run.Addr().(*net.TCPAddr); ok {
			host, _, _ := net.SplitHostPort(o.Listen)
			s.options.Listen = net.JoinHostPort(host, strconv.Itoa(a.Port))
		}
	}
	return nil
}

// Restart starts the server again with its streams and its address, after Close or instead of it.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
	return s.restart()
}

func (s *Server) restart() error {
	s.end()
	if err := s.run(); err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	return nil
}

// end stops the server, if it runs.
func (s *Server) end() {
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

func (s *Server) removeTemporary() {
	if s.temporary {
		_ = os.RemoveAll(s.options.Dir) // the rest is in a temporary directory
	}
}

// server makes the server's own options.
func (o Options) server() (*server.Options, error) {
	opts := &server.Options{}
	if o.Config != "" {
		var err error
		if opts, err = server.ProcessConfigFile(o.Config); err != nil {
			return nil, err
		}
	}
	if opts.ServerName == "" {
		opts.ServerName = "rondo"
	}
	if o.Dir != "" {
		opts.StoreDir = o.Dir
	}
	if o.MaxPayload > 0 {
		opts.MaxPayload = o.MaxPayload
	}
	opts.DontListen, opts.JetStream, opts.NoSigs, opts.NoLog, opts.DisableShortFirstPing = o.Listen == "",
		!o.NoJetStream, true, o.Logger == nil, true
	opts.SyncAlways = opts.SyncAlways || o.SyncAlways
	opts.AuthTimeout = max(opts.AuthTimeout, loginWithin.Seconds())
	opts.TLSTimeout = max(opts.TLSTimeout, loginWithin.Seconds())
	if o.Listen != "" {
		var err error
		if opts.Host, opts.Port, err = splitAddress(o.Listen); err != nil {
			return nil, err
		}
	}
	if c := o.Cluster; c != nil {
		host, port, err := splitAddress(c.Listen)
		if err != nil {
			return nil, err
		}
		opts.ServerName = c.Name
		opts.Cluster = server.ClusterOpts{Name: "rondo", Host: host, Port: port}
		for _, r := range c.Routes {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: r})
		}
	}
	return opts, nil
}

// splitAddress reads host:port, where port 0 stands for any that is free.
func splitAddress(address string) (string, int, error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.s
}

// InProcessConn connects from this process.
func (s *Server) InProcessConn() (net.Conn, error) {
	run := s.running()
	if !run.Running() { // the server itself would take the connection, and never answer
		return nil, errors.New("embedded NATS server: it does not run")
	}
	return run.InProcessConn()
}

// URL returns the address on which the server listens, "" if it listens on none.
func (s *Server) URL() string {
	if s.options.Listen == "" {
		return ""
	}
	return s.running().ClientURL()
}

// Recovered counts the streams whose messages the server read again at its start, because the
// previous process was killed. The server loses nothing by that.
func (s *Server) Recovered() int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return len(s.log.recovered)
}

// Name is the name of the server.
func (s *Server) Name() string { return s.running().Name() }

// LeadsStream reports whether the server leads a stream of the account that needs no login. A
// single server leads all streams.
func (s *Server) LeadsStream(stream string) bool {
	run := s.running()
	if !run.Running() {
		return false
	}
	return s.options.Cluster == nil || run.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}

// LeadsCluster reports whether the server leads the cluster, and how many servers of the cluster it
// knows.
func (s *Server) LeadsCluster() (leads bool, servers int) {
	run := s.running()
	if !run.Running() {
		return false, 0
	}
	if s.options.Cluster == nil {
		return true, 1
	}
	return run.JetStreamIsLeader(), len(run.JetStreamClusterPeers())
}

// Close stops the server and waits until it has stopped.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.closed = true
	s.removeTemporary()
	return nil
}

// logger forwards the server's log to out, and keeps the reason why the server cannot run.
type logger struct {
	out   *slog.Logger // may be nil
	fatal chan string

	mu        sync.Mutex
	recovered map[string]bool // streams, in the words of the server
	unwritten bool            // the server has failed to write
}

// recovery are parts of the warnings with which a killed server reads its streams again. After each
// kill the server logs some of them for each stream, and none of them is a problem. Other warnings
// about the state of a stream may be.
var recovery = []string{
	"Stream state outdated, ", "Stream state detected prior state",
	"Recovering stream state from index errored: prior state file",
	" state is outdated; attempting to recover using ",
}

// isRecovery notes a warning that belongs to a recovery.
func (l *logger) isRecovery(text string) bool {
	if !slices.ContainsFunc(recovery, func(part string) bool { return strings.Contains(text, part) }) {
		return false
	}
	_, of, _ := strings.Cut(text, "[")
	stream, _, _ := strings.Cut(of, "]")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recovered == nil {
		l.recovered = make(map[string]bool)
	}
	l.recovered[stream] = true
	return true
}

func (l *logger) say(level slog.Level, format string, v []any) {
	if l.out != nil {
		l.out.Log(context.Background(), level, "NATS server: "+fmt.Sprintf(format, v...))
	}
}

// Noticef and the others implement server.Logger.
func (l *logger) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, v ...any) {
	l.noteUnwritten(fmt.Sprintf(format, v...))
	l.say(slog.LevelError, format, v)
}

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	if l.isRecovery(fmt.Sprintf(format, v...)) {
		level = slog.LevelDebug
	}
	l.say(level, format, v)
}

// Fatalf implements server.Logger.
func (l *logger) Fatalf(format string, v ...any) {
	l.say(slog.LevelError, format, v)
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}
