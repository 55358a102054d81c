package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// Queues says where queues are served over HTTP, and to whom.
type Queues struct {
	// Listen is the address, "off" for nowhere. Empty: nowhere; for dev, 127.0.0.1:8000, or another
	// port if that is taken.
	Listen string
	// Access is a file that says who may do what. Empty: everybody on this machine may do
	// everything, and nobody else can come.
	Access string
	// Certificate and Key are files for TLS, ClientCA one with the authorities of clients'
	// certificates.
	Certificate, Key, ClientCA string
	// Rate is how many requests a second each caller may make, if the access file does not say it;
	// 0 for no bound.
	Rate float64
	// MaxItem and MaxBody bound an item and a whole request, in bytes.
	MaxItem, MaxBody int
}

// queuesListen is where queues are served, "off" for nowhere, and whether somebody has said so.
func (c *Config) queuesListen() (address string, said bool) {
	switch {
	case c.Queues.Listen != "":
		return c.Queues.Listen, true
	case c.Command == Dev:
		return jobserver.DefaultAddress, false
	}
	return off, false
}

// problems lists what is wrong with what the settings of queues say together.
func (q *Queues) problems(command Command) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if at := q.Listen; at != "" && at != off && checkAddress(at) == nil && !jobserver.Local(at) && q.Access == "" {
		bad("--queues-listen: %s can be reached from other machines: say who may do what there with --queues-access "+
			"FILE, or listen at 127.0.0.1", at)
	}
	if (q.Certificate == "") != (q.Key == "") {
		bad("--queues-tls-cert and --queues-tls-key: a certificate needs its key, and a key its certificate")
	}
	if q.ClientCA != "" && q.Certificate == "" {
		bad("--queues-client-ca: clients show certificates only where there is TLS: say --queues-tls-cert and " +
			"--queues-tls-key, too")
	}
	if q.ClientCA != "" && q.Access == "" {
		bad("--queues-client-ca: say with --queues-access FILE who may do what with which certificate, too")
	}
	if q.MaxBody > 0 && q.MaxItem > q.MaxBody {
		bad("--queues-max-body: %s are less than the %s that one item may have (--queues-max-item)",
			inUnits(int64(q.MaxBody)), inUnits(int64(q.MaxItem)))
	}
	if command == Orchestrator && q.Listen == "" && (q.Access != "" || q.Certificate != "") {
		bad("--queues-listen: where are the queues served? Say it, like 0.0.0.0:8000, or off")
	}
	return errs
}

// queuesConfig reads the files that the server of queues needs; nil if there is none.
func (a *App) queuesConfig() (*jobserver.Config, error) {
	q := a.config.Queues
	address, _ := a.config.queuesListen()
	if address == off {
		return nil, nil
	}
	c := &jobserver.Config{
		Address: address, Rate: q.Rate, MaxItem: q.MaxItem, MaxBody: q.MaxBody, Tracer: a.telemetry.Tracer,
		Metrics: a.telemetry.Metrics, Logger: a.log,
	}
	var err error
	if q.Access != "" {
		if c.Access, err = jobserver.OpenAccess(q.Access, a.log); err != nil {
			return nil, fmt.Errorf("--queues-access: %w", err)
		}
		if c.Access.Certificates() && q.ClientCA == "" {
			return nil, errors.New(
				"--queues-access: the access file has client certificates, and nobody could show one: say with " +
					"--queues-client-ca who issues them")
		}
	}
	if q.Certificate != "" {
		if c.TLS, err = jobserver.NewTLS(jobserver.TLSFiles{Certificate: q.Certificate, Key: q.Key,
			ClientCA: q.ClientCA},
			c.Access, a.log); err != nil {
			return nil, fmt.Errorf("--queues-tls-cert: %w", err)
		}
	} else if !jobserver.Local(address) {
		a.log.Warn("tokens of those who use queues go over the network as they are, unless something in front of "+
			"this encrypts; --queues-tls-cert does it here", "address", address)
	}
	return c, nil
}

// newQueues begins to listen for those who use queues. The config is nil where nobody is served.
func (a *App) newQueues(c *jobserver.Config) (all []service, err error) {
	if c == nil {
		return nil, nil
	}
	if a.queues == nil {
		return nil, errors.New("this database has no queues: leave them out with --queues-listen off")
	}
	s, err := jobserver.New(a.queues, *c)
	if _, said := a.config.queuesListen(); err != nil && !said {
		// another port is better than nothing, where nobody has asked for this one
		usual := c.Address
		c.Address = "127.0.0.1:0"
		if s, err = jobserver.New(a.queues, *c); err == nil {
			a.log.Warn("the usual address of queues is taken; serving them at another one", "usual", usual,
				"address", s.Address())
		}
	}
	if err != nil {
		return nil, fmt.Errorf(
			"serve queues: %w: choose it with --queues-listen, or leave it out with --queues-listen off", err)
	}
	a.found(func(w *Addresses) { w.Queues = s.URL() })
	fine := func() error { return nil }
	return []service{{name: "queues", run: s.Run, live: fine, ready: func(context.Context) error { return nil }}}, nil
}

// keepQueues remembers the queues of a store, which those who only measure it do not hand on.
func (a *App) keepQueues(store history.Store) {
	if s, ok := store.(interface{ Queues() jobs.Store }); ok {
		a.queues = s.Queues()
	}
}

// tryQueues says how to begin with queues.
func (a *App) tryQueues(at string) {
	token := ""
	if a.config.Queues.Access != "" {
		token = ` -H "Authorization: Bearer $TOKEN"`
	}
	a.print("")
	a.print("Anything that speaks HTTP can use queues:")
	a.print("")
	a.print(`  curl%s -d '{"item": {"task": 1}}' %s/queue/my-queue/push`, token, at)
	a.print(`  curl%s -X POST '%s/queue/my-queue/pop?require_ack=true'`, token, at)
}
