package orchestrator

import (
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// roundMetrics records the metrics of rounds.
type roundMetrics struct {
	metrics    *telemetry.Metrics // nil: none
	background *background
}

// decided records a decided round, and notes facts for the metrics of its commit. The
// goroutine of the decider calls it.
func (r *roundMetrics) decided(d *decision, hydrated bool) {
	m := r.metrics
	if m == nil {
		return
	}
	from := telemetry.FromMemory
	switch {
	case hydrated:
	case d.turn.Expected == round.RowVersion{}:
		from = telemetry.FromNothing
	default:
		from = telemetry.FromHistory
	}
	x := d.times
	name := d.turn.Row.Name
	if name == "" { // it writes nothing
		name = d.entry.known.name
	}
	m.Rounds().Decided(name, &d.turn, from, x.decided.Sub(x.arrived), x.undecided.Sub(x.decided))
}

// committed records an attempt to commit, and the changes of the committed turns.
func (r *roundMetrics) committed(x *committed) {
	m := r.metrics
	if m == nil {
		return
	}
	r.background.running.Go(func() { // the next commit does not wait for it
		outcome, written := "stored", 0
		if x.err != nil {
			outcome = history.ClassOf(x.err).String()
		}
		for _, d := range x.decisions {
			written += d.events
		}
		m.Rounds().Commit(outcome, len(x.decisions), written)
		if x.err != nil {
			return
		}
		turns := make(map[history.CommitStatus]int, 1)
		for _, o := range x.result.Outcomes {
			turns[o.Status]++
		}
		for status, n := range turns {
			m.Rounds().CommitStatus(status.String(), n)
		}
		for i, d := range x.decisions {
			if x.result.Outcomes[i].Status != history.Committed {
				continue
			}
			m.Rounds().Phase(telemetry.PhaseBatch, x.begun.Sub(d.times.undecided))
			m.Rounds().Phase(telemetry.PhaseCommit, x.at.Sub(x.begun))
			m.Rounds().Phase(telemetry.PhasePublish, x.published.Sub(x.at))
			m.Rounds().Appended(d.events)
			m.Instances().Turn(&d.turn)
		}
	})
}

// settled records that all messages of a round are settled.
func (r *roundMetrics) settled(d *decision) {
	m := r.metrics
	if m == nil {
		return
	}
	for _, limit := range d.turn.Near {
		m.Rounds().NearLimit(d.turn.Row.Name, limit)
	}
	now := time.Now()
	if !d.published.IsZero() {
		m.Rounds().Phase(telemetry.PhaseAck, now.Sub(d.published))
	}
	m.Rounds().Phase(telemetry.PhaseTotal, now.Sub(d.times.arrived))
}

// loaded records the outcome of a read.
func (r *roundMetrics) loaded(x *loaded) {
	m := r.metrics
	if m == nil {
		return
	}
	if x.err != nil {
		m.Rounds().Loaded("failed", len(x.entries))
		return
	}
	found, unreadable, unread := 0, 0, 0
	for _, k := range x.known {
		switch {
		case x.unread[k.Instance]: // another read comes
			unread++
		case k.Unreadable != nil:
			unreadable++
		case k.Row.Execution > 0:
			found++
		}
	}
	m.Rounds().Loaded("found", found)
	m.Rounds().Loaded("unreadable", unreadable)
	m.Rounds().Loaded("new", len(x.known)-found-unreadable-unread)
}
