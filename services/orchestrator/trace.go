package orchestrator

import (
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/pkg/telemetry"
)

// told is what whoever follows a trace wants to know of a round besides its turn. Its times are those of this machine.
type told struct {
	took                        []telemetry.Taken
	partition                   int
	hydrated                    bool
	arrived, decided, undecided time.Time
}

// of notes what a round was decided on, before its messages are settled.
func (t *told) of(e *entry) *told {
	t.undecided, t.arrived, t.partition = time.Now(), t.decided, e.partition
	t.took = make([]telemetry.Taken, len(e.taken))
	for n, i := range e.taken {
		t.took[n] = telemetry.Taken{Trace: i.message.Trace, Verb: i.message.Content.Verb(), Deliveries: i.delivery.Deliveries, Stored: i.delivery.Stored}
		if !i.arrived.IsZero() && i.arrived.Before(t.arrived) {
			t.arrived = i.arrived
		}
	}
	return t
}

// isTraced reports whether anybody follows the trace of what a turn has changed.
func isTraced(t *round.Turn) bool {
	if len(t.Executions) == 0 {
		return false
	}
	traced := func(r round.Row) bool { at, _ := events.ParseTrace(r.Trace); return at.Sampled }
	for _, f := range t.Former {
		if traced(f) {
			return true
		}
	}
	return traced(t.Row)
}

// trace tells of the turns that were committed, once what they send is published. Who commits a turn tells of it, and nobody else does: so nothing is told
// twice, and what a process that dies has not told is not told at all.
func (o *Orchestrator) trace(decisions []*decision, result history.Result, committed time.Time) {
	if o.config.Tracer == nil {
		return
	}
	published := time.Now()
	var all []*decision
	for i, d := range decisions {
		if d.told != nil && result.Outcomes[i].Verdict == history.Committed {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return
	}
	o.asides.Go(func() { // the next commit does not wait for it
		for _, d := range all {
			o.config.Tracer.Over(d.turn.Instance, d.turn.Over)
			o.config.Tracer.Round(telemetry.Round{
				Turn: &d.turn, Took: d.told.took, Partition: d.told.partition, Hydrated: d.told.hydrated,
				Arrived: d.told.arrived, Decided: d.told.decided, Undecided: d.told.undecided, Committed: committed, Published: published,
				Batch: len(decisions), Sent: d.promises,
			})
		}
	})
}
