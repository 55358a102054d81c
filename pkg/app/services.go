package app

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/jobpushed"
	"github.com/rondo-run/rondo/internal/jobs"
	jobserver "github.com/rondo-run/rondo/services/jobs"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// orchestrator runs the service that decides.
func (a *App) orchestrator(ctx context.Context) error {
	q, err := openQueues(&a.config, a.telemetry, a.log)
	if err != nil {
		return err
	}
	h, err := a.openHealth()
	if err != nil {
		return err
	}
	b, store, err := a.dialer().connect(ctx, brokerConfig(&a.config), a.config.database())
	if err != nil {
		return errors.Join(err, a.closeAll(h.close))
	}
	all, queues, err := a.newOrchestrator(b, store, q)
	if err == nil {
		var served group
		if served, err = a.newQueues(q, queues); err == nil {
			err = a.serve(ctx, h, b, append(all, served...))
		}
	}
	return errors.Join(err, a.closeAll(h.close, b.Close, store.Close))
}

// closeAll closes connections and servers at the same time. Each may wait for its time limit.
func (a *App) closeAll(closes ...func() error) error {
	a.ending.Set()
	errs := make([]error, len(closes))
	var all sync.WaitGroup
	for i, c := range closes {
		all.Go(func() { errs[i] = c() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// worker runs the service that executes activities.
func (a *App) worker(ctx context.Context) error {
	h, err := a.openHealth()
	if err != nil {
		return err
	}
	b, err := a.dialer().connectNATS(ctx, brokerConfig(&a.config))
	if err != nil {
		return errors.Join(err, a.closeAll(h.close))
	}
	s, err := a.newWorker(b)
	if err == nil {
		err = a.serve(ctx, h, b, group{s})
	}
	return errors.Join(err, a.closeAll(h.close, b.Close))
}

// dialer connects as the settings say.
func (a *App) dialer() *dialer {
	d := &dialer{timeout: a.config.ConnectTimeout, check: a.config.Migration.Check,
		verify: a.config.Database.Verify, name: a.name() + " " + string(a.config.Command),
		places: &a.places, stores: a.code.stores, log: a.log}
	if a.telemetry != nil {
		d.metrics = a.telemetry.Metrics
	}
	return d
}

// serve runs services, and logs when the program has started, with its addresses.
func (a *App) serve(ctx context.Context, h *health, b broker.Discovery, all group) error {
	defer all.answerLevel(b, a.config.Command, a.logs.level, a.log)()
	return all.run(ctx, h, a.ending, func() {
		at := a.Addresses()
		a.log.Info("ready", "command", string(a.config.Command), "nats", at.NATS, "database", at.Database, "health",
			at.Health, "queues", at.JobQueues)
		close(a.started)
	})
}

// newOrchestrator makes an orchestrator and the services beside it. It returns the queues of the
// database as they are to be served, nil if the database has none. If q is not nil, their server
// refuses requests while the orchestrator does not use the database.
func (a *App) newOrchestrator(b *natsbroker.Bus, store opened, q *jobserver.Config) (group, jobs.Store, error) {
	c := orchestratorConfig(&a.config)
	c.Logger, c.CodeLogger = cmp.Or(c.Logger, a.log), cmp.Or(c.CodeLogger, c.Logger, a.logs.codeLogger())
	c.Build, c.Tracer, c.Metrics = a.build(), a.telemetry.Tracer, a.telemetry.Metrics
	o, err := orchestrator.New(b, store.Store, a.code.orchestrations, c)
	if err != nil {
		return nil, nil, err
	}
	if q != nil {
		q.Ready = o.UsesDatabase
	}
	most := cmp.Or(a.config.JobQueues.MaxJob, jobserver.DefaultMaxJob)
	beside, queues, err := a.bridges(b, o, jobpushed.Bounded(store.Queues(), most))
	run := func(ctx context.Context) error { return a.named(o.Run(ctx)) }
	live := func() error { return errors.Join(b.Closed(), o.Live()) }
	return append(group{{name: "orchestrator", id: o.ID(), run: run, live: live, ready: o.Ready}}, beside...),
		queues, err
}

func (a *App) newWorker(b *natsbroker.Bus) (service, error) {
	c := workerConfig(&a.config)
	c.Logger = cmp.Or(c.Logger, a.logs.workerLogger())
	c.Build, c.Tracer, c.Metrics = a.build(), a.telemetry.Tracer, a.telemetry.Metrics
	w, err := worker.New(b, a.code.activities, c)
	if err != nil {
		return service{}, err
	}
	live := func() error { return errors.Join(b.Closed(), w.Live()) }
	return service{name: "worker", id: w.ID(), run: w.Run, live: live, ready: func(context.Context) error {
		return errors.Join(b.Connected(), w.Ready())
	}}, nil
}
