package app

import (
	"context"
	"time"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/jobpushed"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/jobpush"
	jobserver "github.com/rondo-run/rondo/services/jobs"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file has what goes on between queues and orchestrations, in each process with an
// orchestrator: jobs start instances, and instances push jobs.

// slotsOfPushes is how many pushes of orchestrations are done at once. Those to the same queue are
// done one after the other in any case.
const slotsOfPushes = 16

// bridges are the services beside an orchestrator. Its readiness does not depend on them: it can do
// its own work without. The queues that it returns are to be served: the bridges get each push to
// them.
func (a *App) bridges(b *natsbroker.Bus, o *orchestrator.Orchestrator, queues jobs.Store) (group, jobs.Store,
	error) {
	if queues == nil {
		refuses, err := a.newPusher(b, o, noQueues{})
		return group{after(o, refuses)}, nil, err
	}
	starter := jobserver.NewStarter(queues, b, jobserver.StarterConfig{Knows: o.Knows, Ready: o.Takes,
		Metrics: a.telemetry.Metrics, Logger: a.log.With("orchestrator", o.ID())})
	queues = starter.Hear(queues)
	pushes, err := a.newPusher(b, o, queues)
	if err != nil {
		return nil, nil, err
	}
	starts := service{name: "starts from queues", run: starter.Run, live: alive, ready: readyAnyway}
	return group{after(o, pushes), after(o, starts)}, queues, nil
}

// noQueues are the queues of a database that has none. They refuse what orchestrations push, which
// would wait for ever otherwise.
type noQueues struct{ jobs.Store }

// Do implements [jobs.Store].
func (noQueues) Do(_ context.Context, _ string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results := make([]jobs.Result, len(operations))
	for n := range results {
		results[n].Refused = &jobs.InvalidError{Problem: errNoQueues.Error()}
	}
	return results, nil
}

// after returns a service that begins once the orchestrator knows that the database belongs to
// NATS. Pushes to another database, or to a copy, would be lost.
func after(o *orchestrator.Orchestrator, s service) service {
	run := s.run
	s.run = func(ctx context.Context) error {
		if o.AwaitDatabase(ctx) == nil {
			return run(ctx)
		}
		return nil // the context has ended
	}
	return s
}

// newPusher makes the worker that does what orchestrations push to queues.
func (a *App) newPusher(b *natsbroker.Bus, o *orchestrator.Orchestrator, queues jobs.Store) (service, error) {
	counted := jobserver.Counted(queues, a.telemetry.Metrics)
	code, err := activity.NewBuiltInRegistry(jobpushed.Handler(jobserver.Gated(counted, o.UsesDatabase)))
	if err != nil {
		return service{}, err
	}
	w, err := worker.New(b, code, worker.Config{
		Inside: true, ID: pusherID(o.ID()), Build: a.build(), Tags: worker.Tags(jobpush.Tag), Slots: slotsOfPushes,
		MaxSessions: -1, Paused: o.UsesDatabase,
		ShutdownTimeout: pushesWithin(a.config.ShutdownTimeout), CancelGrace: pusherGrace,
		SessionLease: a.config.Streams.SessionLease,
		Logger:       a.logs.workerLogger(),
		LogPayloads:  a.config.Log.Payloads, Tracer: a.telemetry.Tracer, Metrics: a.telemetry.Metrics,
		Codec: codec.JSON{},
	})
	if err != nil {
		return service{}, err
	}
	return service{name: "pushes to queues", run: w.Run, live: w.Live, ready: readyAnyway}, nil
}

// pusherGrace is how long a push may take to return when its context ends, which ends its
// transaction.
const pusherGrace = time.Second

// pushesWithin is how long pushes may go on when a process ends. The pusher needs some seconds
// after that, to nack the pushes that are left, and the process must end within the timeout.
func pushesWithin(timeout time.Duration) time.Duration { return max(timeout/2, time.Millisecond) }

// pusherID is how histories call the worker of an orchestrator.
func pusherID(orchestrator string) string {
	const end = "/queues"
	return orchestrator[:min(len(orchestrator), events.MaxName-len(end))] + end
}
