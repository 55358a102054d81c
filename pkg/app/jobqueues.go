package app

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/settings"
	"github.com/rondo-run/rondo/internal/telemetry"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// queuesListen is the address of the job queues, "off" for none, and whether it was set.
func (c *Config) queuesListen() (address string, said bool) {
	switch {
	case c.JobQueues.Listen != "":
		return c.JobQueues.Listen, true
	case c.Command == Dev:
		return jobserver.DefaultAddress, false
	}
	return settings.Off, false
}

// problems lists contradictions in the settings of queues.
func (q *JobQueues) problems(command Command) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	at := q.Listen
	if at != "" && at != settings.Off && settings.CheckAddress(at) == nil && !jobserver.Local(at) && q.Access == "" {
		bad("--jobs-listen: %s can be reached from other machines: say who may do what there with --jobs-access "+
			"FILE, or listen at 127.0.0.1", at)
	}
	if (q.Certificate == "") != (q.Key == "") {
		bad("--jobs-tls-cert and --jobs-tls-key: a certificate needs its key, and a key its certificate")
	}
	if q.ClientCA != "" && q.Certificate == "" {
		bad("--jobs-client-ca: clients show certificates only where there is TLS: say --jobs-tls-cert and " +
			"--jobs-tls-key, too")
	}
	if q.ClientCA != "" && q.Access == "" {
		bad("--jobs-client-ca: say with --jobs-access FILE who may do what with which certificate, too")
	}
	if q.MaxBody > 0 && q.MaxJob > q.MaxBody {
		bad("--jobs-max-body: %s are less than the %s that one item may have (--jobs-max-size)",
			settings.FormatSize(int64(q.MaxBody)), settings.FormatSize(int64(q.MaxJob)))
	}
	if command == Orchestrator && q.Listen == "" && (q.Access != "" || q.Certificate != "") {
		bad("--jobs-listen: where are the queues served? Say it, like 0.0.0.0:8000, or off")
	}
	return errs
}

// openQueues reads the files that the server of queues needs; nil if there is none.
func openQueues(config *Config, t *telemetry.Telemetry, log *slog.Logger) (*jobserver.Config, error) {
	q := config.JobQueues
	address, _ := config.queuesListen()
	if address == settings.Off {
		return nil, nil
	}
	c := &jobserver.Config{
		Address: address, Rate: q.Rate, MaxJob: q.MaxJob, MaxBody: q.MaxBody,
		ShutdownTimeout: config.ShutdownTimeout, Tracer: t.Tracer,
		Metrics: t.Metrics, Logger: log,
	}
	var err error
	if q.Access != "" {
		if c.Access, err = jobserver.OpenAccess(q.Access, log); err != nil {
			return nil, fmt.Errorf("--jobs-access: %w", err)
		}
		if c.Access.Certificates() && q.ClientCA == "" {
			return nil, errors.New(
				"--jobs-access: the access file has client certificates, and nobody could show one: say with " +
					"--jobs-client-ca who issues them")
		}
	}
	if q.Certificate != "" {
		if c.TLS, err = jobserver.NewTLS(jobserver.TLSFiles{Certificate: q.Certificate, Key: q.Key,
			ClientCA: q.ClientCA},
			c.Access, log); err != nil {
			return nil, fmt.Errorf("--jobs-tls-cert: %w", err)
		}
	} else if !jobserver.Local(address) {
		log.Warn("tokens of those who use queues go over the network as they are, unless something in front of "+
			"this encrypts; --jobs-tls-cert does it here", "address", address)
	}
	return c, nil
}

// errNoQueues says that the database has a [Store] without job queues.
var errNoQueues = errors.New("the store of this database has no job queues; use CockroachDB, PostgreSQL or SQLite")

// newQueues listens for clients of job queues. The config is nil if none are served.
func (a *App) newQueues(c *jobserver.Config, queues jobs.Store) (group, error) {
	if c == nil {
		return nil, nil
	}
	if queues == nil {
		if _, said := a.config.queuesListen(); said {
			return nil, fmt.Errorf("--jobs-listen: %w; or set it to off", errNoQueues)
		}
		a.log.Info("the database has no job queues; none are served")
		return nil, nil
	}
	s, err := jobserver.New(queues, *c)
	if _, said := a.config.queuesListen(); err != nil && !said {
		// without a configured address, any port will do
		usual := c.Address
		c.Address = "127.0.0.1:0"
		if s, err = jobserver.New(queues, *c); err == nil {
			a.log.Warn("the usual address of queues is taken; serving them at another one", "usual", usual,
				"address", s.Address())
		}
	}
	if err != nil {
		return nil, fmt.Errorf(
			"serve queues: %w: choose it with --jobs-listen, or leave it out with --jobs-listen off", err)
	}
	a.places.set(func(w *Addresses) { w.JobQueues = s.URL() })
	return group{{name: "queues", run: s.Run, live: alive, ready: readyAnyway}}, nil
}
