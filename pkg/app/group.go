package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/internal/x/signal"
)

// service is one of those that run in this process.
type service struct {
	name  string
	id    string // of the process, as others see it
	run   func(context.Context) error
	live  func() error
	ready func(context.Context) error
}

// alive and readyAnyway are the answers of services that cannot be anything else.
func alive() error                      { return nil }
func readyAnyway(context.Context) error { return nil }

// readyEvery is how often is looked whether everything is ready, at the start.
const readyEvery = 20 * time.Millisecond

// group runs services together.
type group []service

// run runs the services until the context ends, or until one of them fails: then it sets ending,
// and the others end, too. It calls started once all of them are ready.
func (g group) run(ctx context.Context, h *health, ending signal.Signal, started func()) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	h.watch(running, g)
	errs := make([]error, len(g))
	var wait sync.WaitGroup
	for i, s := range g {
		wait.Go(func() {
			err := s.run(running)
			switch {
			case err != nil:
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			case running.Err() == nil:
				errs[i] = fmt.Errorf("%s: the service ended without a request to stop", s.name)
			}
			ending.Set()
			stop(errs[i])
		})
	}
	wait.Go(func() {
		if g.awaitReady(running) {
			started()
		}
	})
	wait.Wait()
	return errors.Join(errs...)
}

// awaitReady waits until all services are ready.
func (g group) awaitReady(ctx context.Context) bool {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		var errs []error
		for _, s := range g {
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

// answerLevel serves requests for the log level of the services over NATS. Without the permission
// to subscribe, the process works all the same.
func (g group) answerLevel(b broker.Discovery, command Command, level *telemetry.Level,
	log *slog.Logger) (stop func()) {
	var names []string
	for _, s := range g {
		if s.id != "" {
			names = append(names, s.id)
		}
	}
	stop, err := process.HandleLevel(b, string(command), names, level)
	if err != nil {
		log.Warn("the log level cannot be changed over NATS", "error", err)
		return func() {}
	}
	return stop
}
