package telemetry_test

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// forgotten takes spans and forgets them.
type forgotten struct{}

func (forgotten) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (forgotten) Shutdown(context.Context) error                             { return nil }

// BenchmarkRound tells of a round that ends an activity and the execution: three spans.
func BenchmarkRound(b *testing.B) {
	t := telemetry.NewTracer(sdktrace.NewBatchSpanProcessor(forgotten{}), nil, nil)
	defer func() { _ = t.End(context.Background()) }()
	r := aRound()
	b.ReportAllocs()
	for b.Loop() {
		t.Over(r.Turn.Instance, r.Turn.Over, r.Committed)
		t.Round(r)
	}
}

const within = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// aRound is one that ends an activity and the execution.
func aRound() telemetry.Round {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	from, _ := events.ParseTrace(within)
	row := round.Row{Execution: 1, Incarnation: "aa", Name: "fulfil", Version: "1.0.0", Trace: within,
		Status: round.Completed}
	turn := &round.Turn{
		Instance: "order-7", Row: row, Executions: []round.Execution{{ID: 1,
			Events: []events.Event{{ID: 3, At: at, Fact: &events.ActivityCompleted{Schedule: 2}},
				{ID: 4, At: at, Fact: &events.Completed{}}}}},
		Over: []round.Over{
			{Kind: round.OverActivity, Ref: events.Ref{Incarnation: "aa", Execution: 1, Event: 2}, Trace: from,
				Name:    "charge",
				Attempt: 1, Worker: "w", Begun: at, Ended: at.Add(time.Second)},
			{Kind: round.OverExecution, Ref: events.Ref{Incarnation: "aa", Execution: 1, Event: 1}, Trace: from,
				Name: "fulfil", Version: "1.0.0", Status: round.Completed, Begun: at, Ended: at.Add(time.Second)},
		},
	}
	return telemetry.Round{
		Turn: turn, Took: []telemetry.Taken{{Trace: within, Verb: events.VerbDone, NumDelivered: 1}}, Batch: 10,
		Hydrated: true,
		Arrived:  at, Decided: at, Undecided: at, Committed: at.Add(time.Millisecond), Sent: 1,
	}
}
