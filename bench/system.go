package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	databases "github.com/rondo-run/rondo/internal/database"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history"
)

// This file starts the system to measure: NATS, the database and the services, each as processes of
// their own.

// bench is the state that all measurements share.
type bench struct {
	o        options
	dir      string          // everything is below it
	postgres *pgtest.Cluster // nil unless it is wanted
	machine  machine
	systems  int // how many were started
}

// open prepares the state that all measurements share.
func open(o options) (*bench, error) {
	dir, err := os.MkdirTemp(o.dir, "rondo-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{o: o, dir: dir}
	if o.database == "postgres" {
		if b.postgres, err = pgtest.Open(o.postgres...); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	b.machine = describeMachine()
	return b, nil
}

func (b *bench) close() (err error) {
	if b.postgres != nil {
		err = b.postgres.Close()
	}
	if b.o.keep {
		fmt.Fprintln(os.Stderr, "kept:", b.dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// system is everything that one measurement needs.
type system struct {
	*bench
	dir      string
	natsConf string
	monitor  string // the address at which NATS tells about itself, "" if it does not
	natsURL  string

	database      database
	nats          *process // nil if it is elsewhere
	orchestrators []*process
	worker        *process
	extra         []string // more arguments for orchestrators
	extraWorker   []string // and for the worker

	store  history.Store
	driver *driver
}

// needs are the differences of a measurement from a default installation.
type needs struct {
	orchestrators    int      // 0 is one
	orchestratorArgs []string // more settings
	workerArgs       []string
	queues           bool // orchestrators serve queues
}

// start starts a system.
func (b *bench) start(ctx context.Context, workload string, n needs) (_ *system, err error) {
	b.systems++
	s := &system{
		bench: b, dir: filepath.Join(b.dir, fmt.Sprint(b.systems)), natsURL: b.o.nats, monitor: b.o.monitor,
		database:    database{drop: nothing},
		extra:       append(strings.Fields(b.o.orchestratorArgs), n.orchestratorArgs...),
		extraWorker: append(strings.Fields(b.o.workerArgs), n.workerArgs...),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if s.natsURL == "" {
		if err := s.startNATS(); err != nil {
			return nil, err
		}
	}
	if s.database, err = b.newDatabase(ctx, s.dir); err != nil {
		return nil, err
	}
	if n.queues {
		s.extra = append(s.extra, "--jobs-listen", "127.0.0.1:0")
	}
	for i := range max(1, n.orchestrators) {
		p, err := launch(s.dir, fmt.Sprint("orchestrator-", i), "orchestrator", s.orchestratorArgs(i)...)
		s.orchestrators = append(s.orchestrators, p)
		if err != nil {
			return nil, err
		}
	}
	if s.worker, err = launch(s.dir, "worker", "worker", s.workerArgs()...); err != nil {
		return nil, err
	}
	if s.store, err = databases.OpenReadOnly(ctx, s.database.address, quiet()); err != nil {
		return nil, err
	}
	s.driver, err = connect(ctx, s.natsURL, s.prefix(), workload, s.store)
	return s, err
}

// prefix is that of all subjects. Servers that are elsewhere may have been used before, so each
// system has its own there.
func (s *system) prefix() string {
	if s.o.nats == "" {
		return "rondo"
	}
	return fmt.Sprintf("bench%d-%d", os.Getpid(), s.systems)
}

func (s *system) orchestratorArgs(i int) []string {
	args := s.serviceArgs("--database", s.database.address, "--orchestrator-id", fmt.Sprint("o", i))
	return append(args, s.extra...)
}

func (s *system) workerArgs() []string {
	return append(s.serviceArgs("--worker-id", "w0"), s.extraWorker...)
}

func (s *system) serviceArgs(more ...string) (args []string) {
	if s.o.size == "tiny" {
		args = append(args, hasty)
	}
	return append(append(args, "--nats", s.natsURL, "--prefix", s.prefix(), "--listen", "127.0.0.1:0"), more...)
}

// startNATS starts a server with the settings that it has by itself, but for an address at which it
// tells about itself.
func (s *system) startNATS() error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	s.monitor = "http://" + ports[0]
	s.natsConf = filepath.Join(s.dir, "nats.conf")
	if err := os.WriteFile(s.natsConf, fmt.Appendf(nil, "http: %q\n", ports[0]), 0o644); err != nil {
		return err
	}
	// It keeps its address when it is started again.
	s.nats, err = launch(s.dir, "nats", "nats", "--dir", filepath.Join(s.dir, "jetstream"), "--listen", ports[1],
		"--conf", s.natsConf)
	s.natsURL = s.nats.found.NATS
	return err
}

// freePorts finds addresses without a listener.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// endServices ends the orchestrators and the worker in order, so that the database's counters of
// their connections are complete.
func (s *system) endServices() {
	for _, p := range s.orchestrators {
		p.end()
	}
	if s.worker != nil {
		s.worker.end()
	}
}

// stop ends everything.
func (s *system) stop() (err error) {
	if s.driver != nil {
		s.driver.close()
	}
	if s.store != nil {
		err = s.store.Close()
	}
	for _, p := range append(s.orchestrators, s.worker, s.nats) {
		if p != nil {
			p.kill()
		}
	}
	err = errors.Join(err, s.database.drop())
	if s.o.keep {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// services are all processes of this program that take orders.
func (s *system) services() map[string]*process {
	all := make(map[string]*process)
	if s.nats != nil {
		all["nats"] = s.nats
	}
	for i, p := range s.orchestrators {
		name := "orchestrator"
		if i > 0 {
			name += fmt.Sprint("-", i)
		}
		all[name] = p
	}
	if s.worker != nil {
		all["worker"] = s.worker
	}
	return all
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
