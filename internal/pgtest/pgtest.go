// Package pgtest is PostgreSQL for tests: private servers, started from the binaries that this
// machine has, gone when the tests are.
//
//	func TestStore(t *testing.T) {
//		if _, err := pgtest.Found(); err != nil {
//			t.Skip("POSTGRESQL IS NOT TESTED: ", err)
//		}
//		dsn := pgtest.Database(t) // a new, empty database
//		…
//	}
//
// All tests of a process share a server, which is started when the first of them wants a database;
// all processes that command share runs use one server. A test that crashes the server, or changes
// its settings, starts its own with [Start].
package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// BinVariable is the environment variable with the directory of the PostgreSQL binaries to use:
// initdb, pg_ctl and postgres.
const BinVariable = "RONDO_TEST_PG_BIN"

// patience is how long a server may take to start, to die, or to execute the statements of a
// cleanup. Only a machine in trouble takes that long.
const patience = 5 * time.Minute

// Option changes how a server runs.
type Option func(*options)

type options struct {
	fsync, archived, share bool
	settings               []string // names and values by turns
}

// Fsync sets whether the server waits for the disk at each commit. Without that, commits survive
// the death of the server's processes but not that of the machine, so tests lose nothing;
// benchmarks would measure a setting that no production system has.
func Fsync(on bool) Option { return func(o *options) { o.fsync = on } }

// Setting gives a server of a test's own a setting, as postgresql.conf has them.
func Setting(name, value string) Option {
	return func(o *options) { o.settings = append(o.settings, name, value) }
}

// Need skips a test or benchmark where PostgreSQL is not installed, and says so.
func Need(tb testing.TB) {
	tb.Helper()
	if _, err := Found(); err != nil {
		tb.Skip("POSTGRESQL IS NOT TESTED: ", err)
	}
}

// Found gives the directory of the PostgreSQL binaries, or says why there can be no server here.
//
// It looks into the directory that [BinVariable] names, and only there if it is set; else where
// PATH finds initdb; else into the newest version below /usr/lib/postgresql, which is where Debian
// keeps them, outside PATH.
func Found() (string, error) {
	if !supported {
		return "", fmt.Errorf("pgtest does not run PostgreSQL on %s", runtime.GOOS)
	}
	if _, err := serverUser(); err != nil {
		return "", err
	}
	if dir := os.Getenv(BinVariable); dir != "" {
		if err := complete(dir); err != nil {
			return "", fmt.Errorf("%s=%s: %w", BinVariable, dir, err)
		}
		return dir, nil
	}
	if initdb, err := exec.LookPath("initdb"); err == nil && complete(filepath.Dir(initdb)) == nil {
		return filepath.Dir(initdb), nil
	}
	newest, best := -1, ""
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	for _, dir := range dirs {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err == nil && version > newest && complete(dir) == nil {
			newest, best = version, dir
		}
	}
	if best == "" {
		return "", fmt.Errorf("no PostgreSQL server is installed here: install one, or set %s to the directory with "+
			"initdb, pg_ctl and postgres", BinVariable)
	}
	return best, nil
}

// complete checks that a directory has all binaries.
func complete(dir string) error {
	var errs []error
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Cluster is a PostgreSQL server with its data. Its methods may be called at the same time, but a
// caller that kills the server takes it from all others.
type Cluster struct {
	*server
}

// Start starts a server of the test's own, which ends with the test. It waits for the disk, unless
// [Fsync] says otherwise, because a test with its own server is about crashes or about speed.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c, err := Open(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Database creates an empty database on the server that all tests of this process share, and gives
// its DSN. The role in it may do everything. The database is dropped when the test ends, with all
// connections that are still open.
//
// The server waits for the disk in benchmarks and not in tests, unless [Fsync] says otherwise.
func Database(tb testing.TB, opts ...Option) string {
	tb.Helper()
	_, benchmark := tb.(*testing.B)
	o := options{fsync: benchmark}
	for _, opt := range opts {
		opt(&o)
	}
	start := sharedForTests
	if o.fsync {
		start = sharedForBenchmarks
	}
	s, err := start()
	if err != nil {
		tb.Fatal(err)
	}
	return (&Cluster{s}).Database(tb)
}

// The shared servers are never stopped by Go code, because nothing runs after the last test: their
// keepers do it when this process is gone. The one for tests may be that of a whole run: see
// [Share].
var (
	sharedForTests = sync.OnceValues(func() (*server, error) {
		if dir := os.Getenv(SharedVariable); dir != "" {
			return join(dir)
		}
		return startServer(options{fsync: false})
	})
	sharedForBenchmarks = sync.OnceValues(func() (*server, error) { return startServer(options{fsync: true}) })
)

// Database creates an empty database, and gives its DSN. The database is dropped when the test
// ends, with all connections that are still open; not if the server was killed and has not come
// back.
func (c *Cluster) Database(tb testing.TB) string {
	tb.Helper()
	dsn, drop, err := c.Create()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Error(err)
		}
	})
	return dsn
}

// DSN is how the superuser gets to the server's own database, postgres.
func (c *Cluster) DSN() string { return c.dsn("postgres") }

// Addr is the server's host and port.
func (c *Cluster) Addr() string { return c.addr() }

// Kill ends all processes of the server with SIGKILL, as the death of the machine would, except
// that writes not yet on the disk are kept. All commits are there after [Cluster.Restart].
func (c *Cluster) Kill(tb testing.TB) {
	tb.Helper()
	if err := c.kill(); err != nil {
		tb.Fatal(err)
	}
}

// Stop ends the server at once (pg_ctl stop -m immediate): the server notifies its clients, and
// skips the checkpoint. All commits are there after [Cluster.Restart].
func (c *Cluster) Stop(tb testing.TB) {
	tb.Helper()
	if err := c.stop(); err != nil {
		tb.Fatal(err)
	}
}

// Data is the directory of the server's data, which is removed with the server.
func (c *Cluster) Data() string { return filepath.Join(c.dir, "data") }

// Restart starts the server again, on the same port and with the same data, after killing it if it
// runs. It returns when the server takes connections.
func (c *Cluster) Restart(tb testing.TB) {
	tb.Helper()
	if c.running() {
		c.Kill(tb)
	}
	if err := c.restart(); err != nil {
		tb.Fatal(err)
	}
}

func (s *server) addr() string { return net.JoinHostPort(host, strconv.Itoa(s.port)) }

func (s *server) dsn(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, s.password), Host: s.addr(),
		Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}
