//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file is the fleet: three NATS servers, PostgreSQL, two orchestrators and two workers, with a
// link between each service and each server.

const (
	partitions = 4
	replicas   = 3
)

// settings are those of the services that decide how long recovery takes.
type settings struct {
	name   string
	lease  time.Duration // the longest of all: a process that freezes for longer has lost everything that it held
	broker natsbroker.Config
	step   time.Duration // see cockroach.Options.WakeStep
	orch   orchestrator.Config
	worker worker.Config
}

// leases are the choices. With the short ones, more fits into the same time.
var leases = map[string]settings{
	"short": {
		name: "short", lease: 5 * time.Second,
		broker: natsbroker.Config{InboxAckWait: 2 * time.Second, TaskAckWait: 5 * time.Second,
			MemberLease: 1500 * time.Millisecond, SessionLease: 5 * time.Second},
		step: time.Second,
		orch: orchestrator.Config{
			Sweep: orchestrator.Sweep{Every: 500 * time.Millisecond, OverdueGrace: 500 * time.Millisecond,
				OutboxAfter: 2 * time.Second},
			ShutdownTimeout: 5 * time.Second,
			Round:           round.Config{Patience: 5 * time.Second, StepPatience: 2 * time.Second},
		},
		worker: worker.Config{CancelGrace: time.Second, ShutdownTimeout: 5 * time.Second},
	},
	"default": {name: "default", lease: 30 * time.Second},
}

// fleet is everything that runs.
type fleet struct {
	t        testing.TB
	dir      string
	settings settings

	nodes         []*process // NATS
	orchestrators []*process
	workers       []*process

	toNATS     map[string][]*link // by the name of the service, one for each node
	toDatabase map[string]*link   // by the name of the orchestrator
	proxies    []*pgfault.Proxy   // one for each orchestrator
	postgres   *pgtest.Cluster
	database   string // the address, past all links and proxies

	connection *nats.Conn // for questions to the servers
	jetstream  jetstream.JetStream
}

// newFleet starts the servers. The services are started by [fleet.employ].
func newFleet(t testing.TB, dir string, s settings) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: dir, settings: s, toNATS: make(map[string][]*link), toDatabase: make(map[string]*link)}
	for _, d := range []string{"logs", "ledgers", "nats"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.settings.orch.Round.FailUnregistered = 30 * time.Second // so that the unregistered starts of a flood end
	f.postgres = pgtest.Start(t)
	f.database = f.postgres.Database(t)
	f.startServers()
	f.connect()
	return f
}

// startServers starts the cluster. Its users are those of the shipped configuration; a service
// connects without a name and has all permissions, because a service that finds no streams must
// create them. The servers do not advertise each other to clients, so that all connections go
// through the links.
func (f *fleet) startServers() {
	f.t.Helper()
	const n = replicas
	addresses := freeAddresses(f.t, 2*n)
	routes := addresses[n:]
	users, err := os.ReadFile("../../deploy/nats/one-circle-of-trust.conf")
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		conf := filepath.Join(f.dir, "nats", id+".conf")
		text := fmt.Sprintf("%sno_auth_user: setup\nserver_name: %s\ncluster {\n\tname: chaos\n\tlisten: "+
			"%q\n\tno_advertise: true\n\troutes: [\n", users, id, routes[i])
		for _, r := range routes {
			text += fmt.Sprintf("\t\t\"nats-route://%s\"\n", r)
		}
		if err := os.WriteFile(conf, []byte(text+"\t]\n}\n"), 0o644); err != nil {
			f.t.Fatal(err)
		}
		f.nodes = append(f.nodes, launch(f.t, role{Kind: "nats", ID: id, Dir: filepath.Join(f.dir, "nats", id),
			Listen: addresses[i], Conf: conf}, f.logs()))
	}
}

// freeAddresses finds addresses without a listener, below the ports that systems give to outgoing
// connections: one of these could take a port while its server is away.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var found []string
	for attempts := 0; len(found) < n; attempts++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000)))
		if err != nil && attempts < 100 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // not before all are found
		found = append(found, l.Addr().String())
	}
	return found
}

func (f *fleet) logs() string { return filepath.Join(f.dir, "logs") }

// brokers are the addresses of all NATS servers, past the links.
func (f *fleet) brokers() string {
	var urls []string
	for _, n := range f.nodes {
		urls = append(urls, "nats://"+n.role.Listen)
	}
	return strings.Join(urls, ",")
}

// connect connects the test itself, and waits until the cluster works.
func (f *fleet) connect() {
	f.t.Helper()
	var err error
	f.within(time.Minute, "NATS takes connections", func() error {
		f.connection, err = nats.Connect(f.brokers(), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond),
			nats.IgnoreDiscoveredServers())
		return err
	})
	f.t.Cleanup(f.connection.Close)
	if f.jetstream, err = jetstream.New(f.connection, jetstream.WithDefaultTimeout(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	f.within(5*time.Minute, "JetStream has a leader and all its servers", func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
		defer cancel()
		_, err := f.jetstream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "READY", Replicas: replicas})
		return err
	})
	if err := f.jetstream.DeleteStream(f.t.Context(), "READY"); err != nil {
		f.t.Fatal(err)
	}
}

// bus connects as a client does.
func (f *fleet) bus() *natsbroker.Bus {
	f.t.Helper()
	b, err := natsbroker.Connect(f.t.Context(),
		f.brokerConfig("clients", f.brokers(), slog.New(slog.NewTextHandler(f.logFile("clients"), nil))))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { b.Close() })
	return b
}

func (f *fleet) logFile(name string) io.Writer {
	f.t.Helper()
	w, err := os.Create(filepath.Join(f.logs(), name+".log"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { w.Close() })
	return w
}

func (f *fleet) brokerConfig(name, urls string, log *slog.Logger) natsbroker.Config {
	c := f.settings.broker
	c.Name, c.URLs, c.Partitions, c.Replicas, c.Logger = name, urls, partitions, replicas, log
	return c
}

// store is the test's own connection to the database.
func (f *fleet) store() *cockroach.Store {
	f.t.Helper()
	s, err := cockroach.Open(f.t.Context(), f.database,
		cockroach.Options{WakeStep: f.settings.step, MaxConns: 4, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

// employ starts the services.
func (f *fleet) employ() {
	f.t.Helper()
	for i := range 2 {
		id := fmt.Sprintf("o%d", i+1)
		proxy := pgfault.Start(f.t, f.postgres.Addr())
		f.proxies = append(f.proxies, proxy)
		f.toDatabase[id] = newLink(f.t, proxy.Addr())
		r := role{Kind: "orchestrator", ID: id, Database: f.through(f.toDatabase[id]), WakeStep: f.settings.step,
			Orchestrator: f.settings.orch}
		r.Orchestrator.ID = id
		f.orchestrators = append(f.orchestrators, f.serve(r))
	}
	for i := range 2 {
		r := role{Kind: "worker", ID: fmt.Sprintf("w%d", i+1), Worker: f.settings.worker}
		r.Worker.ID = r.ID
		f.workers = append(f.workers, f.serve(r))
	}
}

// serve starts a service behind links of its own.
func (f *fleet) serve(r role) *process {
	f.t.Helper()
	var urls []string
	for _, n := range f.nodes {
		l := newLink(f.t, n.role.Listen)
		f.toNATS[r.ID] = append(f.toNATS[r.ID], l)
		urls = append(urls, "nats://"+l.address())
	}
	r.Broker = f.brokerConfig(r.ID, strings.Join(urls, ","), nil)
	r.Ledger = filepath.Join(f.dir, "ledgers", r.ID)
	return launch(f.t, r, f.logs())
}

// through is the address of the database behind a link.
func (f *fleet) through(l *link) string {
	f.t.Helper()
	u, err := url.Parse(f.database)
	if err != nil {
		f.t.Fatal(err)
	}
	u.Host = l.address()
	return u.String()
}

func (f *fleet) services() []*process { return append(f.orchestrators[:2:2], f.workers...) }

func (f *fleet) processes() []*process { return append(f.services(), f.nodes...) }

// leader finds the server that leads a stream, as its place in nodes; -1 if none answers in time.
func (f *fleet) leader(stream string) int {
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	s, err := f.jetstream.Stream(ctx, stream)
	if err != nil {
		return -1
	}
	if c := s.CachedInfo().Cluster; c != nil {
		for i, n := range f.nodes {
			if n.role.ID == c.Leader {
				return i
			}
		}
	}
	return -1
}

// caughtUp reports whether each server has everything that the streams have. Before that, no
// further fault may hit a server: data on one of them alone would be lost with it.
func (f *fleet) caughtUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	streams := f.jetstream.ListStreams(ctx)
	seen := 0
	var errs []error
	for s := range streams.Info() {
		seen++
		if s.Cluster == nil || s.Cluster.Leader == "" || len(s.Cluster.Replicas) < replicas-1 {
			errs = append(errs, fmt.Errorf("stream %s has no leader, or not all replicas", s.Config.Name))
			continue
		}
		for _, r := range s.Cluster.Replicas {
			if !r.Current || r.Offline {
				errs = append(errs, fmt.Errorf("stream %s is %d behind on %s (offline: %v)", s.Config.Name, r.Lag,
					r.Name, r.Offline))
			}
		}
	}
	if err := streams.Err(); err != nil {
		errs = append(errs, err)
	}
	if seen == 0 {
		errs = append(errs, errors.New("there are no streams"))
	}
	return errors.Join(errs...)
}

// partitionOf is where the broker puts the messages of an instance. [TestChaos] checks that it
// does.
func partitionOf(instance string) int {
	h := fnv.New32a()
	h.Write([]byte(events.EncodeToken(instance)))
	return int(h.Sum32() % partitions)
}

// within waits until something holds, and ends the test if it does not in time.
func (f *fleet) within(most time.Duration, what string, check func() error) {
	f.t.Helper()
	if err := eventually(f.t.Context(), most, check); err != nil {
		f.t.Fatalf("%s: not within %v: %v", what, most, err)
	}
}

// eventually polls until a check passes. Other processes have no signals for the test.
func eventually(ctx context.Context, most time.Duration, check func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	until := time.Now().Add(most)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
