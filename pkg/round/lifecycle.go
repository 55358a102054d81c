package round

import (
	"maps"
	"slices"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// This file has how executions begin and end without their code.

// continueAsNew begins the next execution with what it inherits, and runs it unless this round has
// done enough of that.
func (x *execution) continueAsNew(next *coro.ContinueAsNew, unread []message) {
	old := x.ledger
	var inherited []events.Fact
	if len(old.values.status) > 0 || old.values.statusVersion > 0 {
		inherited = append(inherited, &events.StatusSet{Status: old.values.status, Version: old.values.statusVersion})
	}
	for _, k := range sortedKeys(old.values.all) {
		v := old.values.all[k]
		inherited = append(inherited, &events.ValueSet{Key: k, Value: v.data, Set: v.set})
	}
	for _, m := range unread {
		age := events.AgeOf(m.sent, x.now)
		if m.mailbox.event {
			inherited = append(inherited, &events.EventReceived{Name: m.mailbox.name, Data: m.data, Message: m.message,
				Age: age, Keep: true})
			continue
		}
		inherited = append(inherited, &events.MessageReceived{Mailbox: m.mailbox.name, Data: m.data, Message: m.message,
			Age: age, Restart: m.restart})
	}
	x.turn.Former = append(x.turn.Former, x.describe())
	trace, follows := x.nextTrace(next.Name, &old)
	x.ledger = newLedger(x.id, old.info.Execution+1)
	started := &events.Started{
		Name: next.Name, Version: next.Version, Input: next.Input, Incarnation: old.info.Incarnation,
		Engine:  events.Engine,
		Message: old.origin.message,
		Parent:  old.info.Parent, Attributes: old.info.Attributes, Trace: trace, TraceState: old.trace.besides().state,
		Baggage: old.trace.besides().baggage, Follows: follows, Previous: old.info.Execution, Begun: old.origin.begun,
		Carried: len(inherited),
		Age:     events.AgeOf(old.origin.sent, x.now),
	}
	old.seen.carry(started, x.now, x.config.remembered())
	x.append(started)
	for _, f := range inherited {
		x.append(f)
	}
	x.pending = true
	x.continues++
	code, ok := coro.Find(x.config.Code, next.Name, next.Version)
	switch {
	case !ok: // a replica that knows it will run it
	case x.continues > events.MaxTurnContinues, x.large():
		x.turn.Again = true
	default:
		x.begin(code)
	}
}

// startIncarnation begins an instance.
func (x *execution) startIncarnation(d Delivery, s *events.Start, version string, code coro.Func) {
	m, execution := d.Message, int64(1)
	if x.known() && x.ledger.running() {
		x.waiting = nil
		x.append(&events.Terminated{Reason: "replaced by a new start", Message: m.ID, Age: x.age(d)})
	}
	if x.known() {
		execution = x.ledger.info.Execution + 1
		former := x.stored()
		if x.ledger.tail.lastID > 0 {
			former = x.describe()
		}
		x.turn.Former = append(x.turn.Former, former)
		x.turn.ClearValues = true
		x.turn.Values = nil
	}
	x.evict()
	before := x.ledger.seen // old messages must not have an effect on the new incarnation when they are redelivered
	if x.known() && x.ledger.tail.lastID == 0 {
		before.forget(x.now.UnixMicro()) // its history was not read
	}
	x.ledger = newLedger(x.id, execution)
	x.row, x.waiting = nil, nil
	incarnation := events.IncarnationOf(x.id, m.ID, x.now.UnixMicro())
	started := &events.Started{
		Name: s.Orchestration, Version: version, Input: s.Input, Incarnation: incarnation, Engine: events.Engine,
		Message: m.ID, Parent: s.Parent, Attributes: s.Attributes,
		Trace: x.beginTrace(m.Trace, s.Orchestration, incarnation,
			execution, m.ID), TraceState: m.TraceState, Baggage: m.Baggage,
		Age: x.age(d), Carried: len(s.Messages),
	}
	before.carry(started, x.now, x.config.remembered())
	x.append(started)
	for i, brought := range s.Messages {
		x.append(&events.MessageReceived{Mailbox: brought.Mailbox, Data: brought.Data,
			Message: events.StartMessageID(m.ID, i+1), Age: x.age(d)})
	}
	x.pending = true
	if code != nil {
		x.begin(code)
	}
}

// stillborn writes the history of an instance that fails without having run.
func (x *execution) stillborn(d Delivery, s *events.Start, err *failure.Error) {
	version := s.Version
	if version == "" {
		version, _ = x.config.Code.Resolve(s.Orchestration)
	}
	x.startIncarnation(d, s, orElse(version, "unknown"), nil)
	x.pending = false
	if err.Kind != failure.Application {
		x.turn.Fault = err
	}
	x.append(&events.Failed{Error: err})
}

// endBlind ends an instance without its code, and if need be without its history: it only appends.
func (x *execution) endBlind(f events.Fact) Receipt {
	if x.unreadable == nil {
		x.happen(f)
		return taken
	}
	row := x.stored()
	x.unreadable = nil
	x.ledger = ledgerOf(x.id, row)
	x.ledger.seen.forget(x.now.UnixMicro()) // what it has taken in cannot be read
	if x.now.Before(row.UpdatedAt) {
		x.now = row.UpdatedAt
	}
	x.append(f)
	return taken
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
