package report_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	natsbroker "github.com/rondo-run/rondo/internal/broker/nats"
	"github.com/rondo-run/rondo/internal/natstest"
	"github.com/rondo-run/rondo/internal/process"
	"github.com/rondo-run/rondo/services/orchestrator/ownership"
	"github.com/rondo-run/rondo/services/orchestrator/report"
)

// alone knows no instances that wait for code.
type alone struct{ members }

type members interface{ report.Members }

func (alone) Unknown() []ownership.Unknown { return nil }

// TestAnOrchestratorWhoseDatabaseHangsIsListed: a database does not respond, which the orchestrator
// waits for while it answers a discovery request. A worker answers the request at once. The
// orchestrator must be listed all the same, with its problem.
func TestAnOrchestratorWhoseDatabaseHangsIsListed(t *testing.T) {
	t.Parallel()
	b := natstest.Connect(t, natstest.Start(t), natsbroker.Config{})
	stop, err := report.Serve(b, nil, report.Config{ID: "o1", Members: alone{},
		System: func() string { return "" }, Rounds: func() []report.Round { return nil },
		Quarantined: func() []report.Quarantined { return nil },
		Ready:       func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		Logger:      slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	stopWorker, err := process.Handle(b, func(context.Context) process.Process {
		return process.Process{Kind: process.Worker, ID: "w1"}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stopWorker()
	all, err := process.All(t.Context(), b)
	if err != nil || len(all) != 2 || !strings.Contains(all[0].Problem, "deadline") {
		t.Errorf("listed are %+v, %v; want both, and the problem of the orchestrator", all, err)
	}
}
