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
	// An answer that comes too late on a slow machine is not listed: the request is sent again.
	natstest.Eventually(t, "both are listed, and the problem of the orchestrator", func() bool {
		all, err := process.All(t.Context(), b)
		return err == nil && len(all) == 2 && strings.Contains(all[0].Problem, "deadline")
	})
}
