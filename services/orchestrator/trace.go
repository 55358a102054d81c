package orchestrator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// traced has the facts of a round that its spans need besides the turn. Its times are those of this
// machine.
type traced struct {
	took      []telemetry.Taken
	partition int
	hydrated  bool
	arrived   time.Time
	times     times
}

// tell notes the messages that a round has accepted, before they are settled.
func trace(e *entry, receipts []round.Receipt, hydrated bool, x times) *traced {
	t := &traced{hydrated: hydrated, arrived: x.decided, times: x}
	for n, i := range e.taken {
		if receipts[n].Verdict != round.Accepted {
			continue
		}
		t.took = append(t.took,
			telemetry.Taken{Trace: i.message.Trace, Verb: i.message.Content.Verb(),
				NumDelivered: i.delivery.NumDelivered})
		if !i.inside() {
			t.partition = i.delivery.Partition
		}
		if !i.arrived.IsZero() && i.arrived.Before(t.arrived) {
			t.arrived = i.arrived
		}
	}
	return t
}

// times are those of a round, until it was decided: when the first of its messages came, when the
// code began, and when it was done.
type times struct{ arrived, decided, undecided time.Time }

// begin notes when a round begins.
func begin(taken []*item) times {
	now := time.Now()
	t := times{arrived: now, decided: now}
	for _, i := range taken {
		if !i.arrived.IsZero() && i.arrived.Before(t.arrived) {
			t.arrived = i.arrived
		}
	}
	return t
}

// isTraced reports whether a turn has changed an instance with a sampled trace.
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

// spans exports the turns that this process has committed, once they are settled. If the process
// dies before, the broker redelivers the messages. The orchestrator that takes them finds them in
// history, and exports. The orchestrator that loads the instance also exports its latest turns,
// with the same ids.
type spans struct {
	tracer     *telemetry.Tracer // nil: none
	store      history.Reader
	background *background

	exported parts // exported with all facts of a round
	restored parts // exported from history alone

	past sync.Mutex // held while turns of another process are exported
}

// parts are parts of histories.
type parts struct {
	mu    sync.Mutex
	of    map[executionKey][]span
	order []executionKey // as they came, to forget the oldest
}

type executionKey struct {
	instance, incarnation string
	execution             int64
}

// span is a part of a history, from one event to another.
type span struct{ first, last int64 }

func (s span) has(event int64) bool { return s.first <= event && event <= s.last }

// maxExported bounds the executions whose exported parts are remembered.
const maxExported = 16 << 10

// export exports a turn that was committed and settled. The loop calls it, so that nothing comes
// between: export only queues spans, and another goroutine sends them.
func (t *spans) export(d *decision) {
	if d.traced == nil || d.committed.IsZero() {
		return
	}
	t.exported.note(&d.turn)
	t.tracer.Over(d.turn.Instance, d.turn.Over, d.committed)
	t.tracer.Emit(&d.turn)
	t.tracer.Round(telemetry.Round{
		Turn: &d.turn, Took: d.traced.took, Partition: d.traced.partition, Hydrated: d.traced.hydrated,
		Arrived: d.traced.arrived, Decided: d.traced.times.decided, Undecided: d.traced.times.undecided,
		Committed: d.committed, Batch: d.batch, Sent: len(d.messages),
	})
}

// note adds a turn. It reports false if all of it was there.
func (p *parts) note(turn *round.Turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[executionKey][]span)
	}
	fresh := false
	for _, x := range turn.Executions {
		if len(x.Events) == 0 {
			continue
		}
		key := executionKey{turn.Instance, telemetry.RowOf(turn, x.ID).Incarnation, x.ID}
		all, known := p.of[key]
		s := span{x.Events[0].ID, x.Events[len(x.Events)-1].ID}
		if slices.ContainsFunc(all, func(b span) bool { return b.has(s.first) }) {
			continue
		}
		fresh = true
		if n := len(all); n > 0 && all[n-1].last+1 == s.first {
			all[n-1].last = s.last
		} else {
			all = append(all, s)
		}
		p.of[key] = all
		if known {
			continue
		}
		if p.order = append(p.order, key); len(p.order) > maxExported {
			delete(p.of, p.order[0])
			p.order = p.order[1:]
		}
	}
	return fresh
}

// has reports whether an event of an execution is there.
func (p *parts) has(x executionKey, event int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.of[x], func(s span) bool { return s.has(event) })
}

// hasAll reports whether all events of a turn are there.
func (p *parts) hasAll(turn *round.Turn) bool {
	for _, x := range turn.Executions {
		key := executionKey{turn.Instance, telemetry.RowOf(turn, x.ID).Incarnation, x.ID}
		for _, e := range x.Events {
			if !p.has(key, e.ID) {
				return false
			}
		}
	}
	return true
}

// again exports the turn of a redelivered message that was taken before: the process that took it
// may have died before it exported.
func (t *spans) again(i *item) {
	if t.tracer == nil || i.delivery.NumDelivered < 2 && !i.doubtful {
		return
	}
	m := i.message
	t.background.do(func(ctx context.Context) {
		x, err := history.Export(ctx, t.store, m.Instance, round.ExecutionOf(m))
		if err != nil {
			return // it is not there any more, or comes again
		}
		turn, ok := round.Past(m.Instance, x.Execution, x.Events, m)
		for ok {
			t.exportPastTurn(&turn, m, i.delivery.Partition)
			if turn.Row.Status != round.ContinuedAsNew {
				return
			}
			if x, err = history.Export(ctx, t.store, m.Instance, x.Execution+1); err != nil {
				return
			}
			turn, ok = round.PastStart(m.Instance, x.Execution, x.Events)
		}
	})
}

// exportPastTurn exports a turn that another process has committed. Only that process knew when the
// parts of the turn began and ended.
func (t *spans) exportPastTurn(turn *round.Turn, m events.Message, partition int) {
	t.past.Lock()
	defer t.past.Unlock()
	if !isTraced(turn) || !t.exported.note(turn) {
		return
	}
	if t.restored.hasAll(turn) {
		turn.Over = nil // history said all of it
	}
	at := turn.Executions[0].Events[0].At
	t.exportPast(turn, []telemetry.Taken{{Trace: m.Trace, Verb: m.Content.Verb(), NumDelivered: 1}}, partition, at)
}

func (t *spans) exportPast(turn *round.Turn, took []telemetry.Taken, partition int, at time.Time) {
	t.tracer.Over(turn.Instance, turn.Over, at)
	t.tracer.Round(telemetry.Round{
		Turn: turn, Took: took, Partition: partition, Batch: 1, Sent: len(turn.Messages), Past: true, Arrived: at,
		Decided: at, Undecided: at, Committed: at,
	})
}

// takeoverWithin is how long after the death of an orchestrator another one may come to load its
// instances.
const takeoverWithin = time.Minute

// takeOver exports again what another orchestrator may have had in its exporter when it died: the
// latest turns of an instance that is loaded here, unless this process has exported them. The ids
// of the spans are the same, so a backend has each once. It reads no more than was loaded, so
// it knows no links; if a message of such a turn is delivered again, [spans.again] exports them.
func (t *spans) takeOver(k round.Known) {
	if t.tracer == nil || len(k.History) == 0 || k.Unreadable != nil {
		return
	}
	at, _ := events.ParseTrace(k.Row.Trace)
	since := time.Now().Add(-t.tracer.Unsent() - takeoverWithin)
	x := executionKey{k.Instance, k.Row.Incarnation, k.Row.Execution}
	if !at.Sampled || k.Row.UpdatedAt.Before(since) || t.exported.has(x, k.Row.LastEvent) ||
		t.restored.has(x, k.Row.LastEvent) {
		return
	}
	t.background.do(func(context.Context) {
		t.past.Lock()
		defer t.past.Unlock()
		for _, turn := range round.PastSince(k.Instance, k.Row.Execution, k.History, since) {
			first := turn.Executions[0].Events[0]
			if isTraced(&turn) && !t.exported.has(x, first.ID) && t.restored.note(&turn) {
				t.exportPast(&turn, nil, 0, first.At)
			}
		}
	})
}
