package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/jobpush"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// service is one of those that run in this process.
type service struct {
	name  string
	id    string // of the process, as others see it
	run   func(context.Context) error
	live  func() error
	ready func(context.Context) error
}

// orchestrator runs the service that decides.
func (a *App) orchestrator(ctx context.Context) error {
	q, err := a.queuesConfig()
	if err != nil {
		return err
	}
	l, err := a.openHealth()
	if err != nil {
		return err
	}
	b, store, err := a.connect(ctx)
	if err != nil {
		return errors.Join(err, l.close())
	}
	all, err := a.newOrchestrator(b, store)
	if err == nil {
		var served []service
		if served, err = a.newQueues(q); err == nil {
			err = a.serve(ctx, l, b, append(all, served...)...)
		}
	}
	return errors.Join(err, l.close(), b.Close(), store.Close())
}

// worker runs the service that executes activities.
func (a *App) worker(ctx context.Context) error {
	l, err := a.openHealth()
	if err != nil {
		return err
	}
	b, err := a.connectNATS(ctx)
	if err != nil {
		return errors.Join(err, l.close())
	}
	s, err := a.newWorker(b)
	if err == nil {
		err = a.serve(ctx, l, b, s)
	}
	return errors.Join(err, l.close(), b.Close())
}

// newOrchestrator makes an orchestrator and what belongs beside it.
func (a *App) newOrchestrator(b *natsbroker.Bus, store history.Store) ([]service, error) {
	c := a.config.Orchestrator
	c.Grace = a.config.Grace
	c.Logger, c.CodeLogger = cmp.Or(c.Logger, a.log), cmp.Or(c.CodeLogger, c.Logger, a.logs.codeLogger())
	c.LogPayloads = c.LogPayloads || a.config.Log.Payloads
	c.Build, c.Tracer, c.Metrics = cmp.Or(c.Build, a.build()), a.telemetry.Tracer, a.telemetry.Metrics
	o, err := orchestrator.New(b, store, a.orchestrations, c)
	if err != nil {
		return nil, err
	}
	beside, err := a.bridges(b, o)
	return append([]service{{name: "orchestrator", id: o.ID(), run: o.Run, live: o.Live, ready: o.Ready}}, beside...),
		err
}

// build says which binary this is.
func (a *App) build() string { return versionOf(a.name()).String() }

func (a *App) newWorker(b *natsbroker.Bus) (service, error) {
	c := a.config.Worker
	c.DrainTimeout, c.SessionLease, c.Logger = a.config.Grace, a.config.NATS.SessionLease,
		cmp.Or(c.Logger, a.logs.workerLogger())
	c.LogPayloads = c.LogPayloads || a.config.Log.Payloads
	c.Tags = a.config.tagFilter()
	c.Build, c.Tracer, c.Metrics = cmp.Or(c.Build, a.build()), a.telemetry.Tracer, a.telemetry.Metrics
	if c.Codec == nil {
		c.Codec = a.config.Orchestrator.Round.Codec
	}
	w, err := worker.New(b, a.activities, c)
	if err != nil {
		return service{}, err
	}
	return service{name: "worker", id: w.ID(), run: w.Run, live: w.Live, ready: func(context.Context) error {
		return errors.Join(b.Connected(), w.Ready())
	}}, nil
}

// readyEvery is how often is looked whether everything is ready, at the start.
const readyEvery = 20 * time.Millisecond

// serve runs services until the context ends, or until one of them fails: then the others end, too.
func (a *App) serve(ctx context.Context, l *health, b broker.RollCalls, all ...service) error {
	var ids []string
	for _, s := range all {
		if s.id != "" {
			ids = append(ids, s.id)
		}
	}
	defer a.answerLevel(b, ids...)()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l.watch(running, all)
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, s := range all {
		wait.Go(func() {
			err := s.run(running)
			switch {
			case err != nil:
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			case running.Err() == nil:
				errs[i] = fmt.Errorf("%s: it has ended although nobody has told it to", s.name)
			}
			stop(errs[i])
		})
	}
	wait.Go(func() {
		if a.awaitReady(running, all) {
			a.ready()
		}
	})
	wait.Wait()
	return errors.Join(errs...)
}

// awaitReady waits until all services are ready.
func (a *App) awaitReady(ctx context.Context, all []service) bool {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		var errs []error
		for _, s := range all {
			errs = append(errs, s.ready(ctx))
		}
		if errors.Join(errs...) == nil {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// ready tells everybody that the program has started.
func (a *App) ready() {
	at := a.Addresses()
	a.log.Info("ready", "command", string(a.config.Command), "nats", at.NATS, "database", at.Database, "health",
		at.Health, "queues", at.Queues)
	close(a.started)
}

// runs says in words which code the program has.
func (a *App) runs() string {
	var parts []string
	for _, name := range a.orchestrations.Names() {
		parts = append(parts, name+" "+strings.Join(a.orchestrations.Versions(name), ", "))
	}
	out := strings.Join(parts, "; ")
	if names := a.activities.Names(); len(names) > 0 {
		if out != "" {
			out += "; "
		}
		out += "activities " + strings.Join(names, ", ")
	}
	return out
}

// migrate brings tables, and if asked to also streams, up to date, or checks them.
func (a *App) migrate(ctx context.Context) error {
	if err := a.migrateTables(ctx); err != nil {
		return err
	}
	if !a.config.Streams {
		return nil
	}
	a.config.NATS.Setup = natsbroker.Make
	if a.config.Check {
		a.config.NATS.Setup = natsbroker.Verify
	}
	b, err := a.connectNATS(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	needed := []broker.Queue{{Tag: jobpush.Tag, Activity: jobpush.Activity}}
	for _, tag := range a.config.tagNames() {
		for _, name := range a.activities.Names() {
			needed = append(needed, broker.Queue{Tag: tag, Activity: name})
		}
	}
	for _, q := range needed {
		if _, err := b.OpenQueue(ctx, q); err != nil {
			return err
		}
	}
	if !a.config.Check {
		if _, err := b.HealSchedules(ctx); err != nil { // it makes their bucket, too
			return err
		}
	}
	fmt.Fprintf(a.config.stdout(), "the streams of %s are as they are needed\n", a.config.NATS.Prefix)
	return nil
}
