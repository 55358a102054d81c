package app

import (
	"context"
	"errors"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/jobpush"
	jobserver "github.com/rondo-run/rondo/services/jobs"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// This file has what goes on between queues and orchestrations, in each process with an
// orchestrator: items start instances, and instances push items.

// slotsOfPushes is how many pushes of orchestrations are done at once. Those to the same queue are
// done one after the other in any case.
const slotsOfPushes = 16

// bridges are the services beside an orchestrator. Its readiness does not depend on them: it can do
// its own work without. Who serves queues from here on has them told of what is pushed.
func (a *App) bridges(b *natsbroker.Bus, o *orchestrator.Orchestrator) ([]service, error) {
	if a.queues == nil {
		return nil, nil
	}
	starter := jobserver.NewStarter(a.queues, b, jobserver.StarterConfig{Knows: o.Knows, Ready: o.Takes,
		Metrics: a.telemetry.Metrics, Logger: a.log.With("orchestrator", o.ID())})
	a.queues = starter.Hear(a.queues)
	pushes, err := a.newPusher(b, o)
	if err != nil {
		return nil, err
	}
	return []service{pushes, {name: "starts from queues", run: starter.Run, live: func() error {
		return nil
	}, ready: readyAnyway}}, nil
}

func readyAnyway(context.Context) error { return nil }

// newPusher makes the worker that does what orchestrations push to queues.
func (a *App) newPusher(b *natsbroker.Bus, o *orchestrator.Orchestrator) (service, error) {
	code, err := activity.NewBuiltInRegistry(jobpush.Handler(jobserver.Counted(a.queues, a.telemetry.Metrics)))
	if err != nil {
		return service{}, err
	}
	w, err := worker.New(b, code, worker.Config{
		Inside: true, ID: pusherID(o.ID()), Build: a.build(), Tags: worker.Tags(jobpush.Tag), Slots: slotsOfPushes,
		MaxSessions:  -1,
		DrainTimeout: a.config.Grace, SessionLease: a.config.NATS.SessionLease, Logger: a.logs.workerLogger(),
		LogPayloads: a.config.Log.Payloads, Tracer: a.telemetry.Tracer, Metrics: a.telemetry.Metrics,
		Codec: events.JSON{},
	})
	if err != nil {
		return service{}, err
	}
	return service{name: "pushes to queues", run: w.Run, live: w.Live, ready: readyAnyway}, nil
}

// pusherID is how histories call the worker of an orchestrator.
func pusherID(orchestrator string) string {
	const end = "/queues"
	return orchestrator[:min(len(orchestrator), events.MaxName-len(end))] + end
}

// notHere is the error of whoever binds code to a name of the engine's.
func notHere(bindings []activity.Binding) error {
	for _, b := range bindings {
		if b.Name() == jobpush.Activity {
			return errors.New("the activity " + jobpush.Activity +
				" is the engine's own, and orchestrators execute it by themselves; leave out jobpush.Handler and " +
				"jobpush.With, which are for tests")
		}
	}
	return nil
}
