package orchestrator

import (
	"context"

	"github.com/rondo-run/rondo/pkg/bus"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// serve answers the questions of clients, until stop is called.
func (o *Orchestrator) serve(ctx context.Context) (stop func(), err error) { return func() {}, nil }

// announce tells those who listen what a turn has changed.
func (o *Orchestrator) announce(e *entry, t *round.Turn) {}

func (o *Orchestrator) eachStart(d bus.Delivery, m events.Message) (events.Message, bool) {
	return m, false
}

func (o *Orchestrator) startEach(d bus.Delivery, m events.Message) {}
