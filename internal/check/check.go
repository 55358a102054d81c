// Package check proves that a system lost nothing: it searches for violations of the rules below in
// the histories of instances, between instances, and between histories and the acknowledgements
// that clients recorded. The rules hold after every crash, redelivery and delay. The package has
// rules of its own, so that it does not repeat the engine's mistakes.
//
//   - one history: `event-order`, `time-order`, `first-event`, `two-outcomes`, `after-end`; each
//     answer answers one open event, once (`answers-nothing`, `answered-twice`, `answered-dropped`,
//     `step-twice`); `timer-early`; `wrong-event`; `message-twice`; mailbox messages are read once
//     and in order (`read-nothing`, `read-twice`, `read-order`)
//   - its executions: `no-end`, `execution-missing`, `continued-differs`; values, status and unread
//     messages go on into the next one (`carried-differs`, `mailbox-dropped`, `mailbox-from-nowhere`)
//   - the store: rows and values agree with history (`row-differs`, `values-differ`,
//     `status-differs`); an orchestrator will load the instance again (`no-wake`); every event can
//     be read (`history-unreadable`)
//   - families: a child exists once it has answered, is the one that was started, and ended as its
//     parent recorded (`child-missing`, `child-foreign`, `child-early`, `child-outcome`); its
//     parent exists and started it (`orphan`, `child-unknown`)
//   - acknowledgements: each start, mailbox message and end that a client recorded is in history
//     (`start-lost`, `mailbox-lost`, `mailbox-reorder`, `end-differs`, `end-early`), and so is each
//     start and message that an instance sent without waiting for an answer (`launch-lost`,
//     `send-lost`)
//   - messages in flight: the outbox is published (`outbox-overdue`), orchestrators load instances
//     in time (`wake-overdue`), and the broker has each message that a history waits for
//     (`task-lost`, `timer-lost`, `child-lost`, `answer-lost`); `outstanding`, if nothing may be in
//     flight
//
// [Instance.Check] judges one instance that is in memory. [System] judges all instances of a store,
// page by page, while services write to it: its memory holds some instances at a time, however many
// there are. Deleted and pruned data cannot be judged, and are counted as such.
package check

import (
	"errors"
	"maps"
	"slices"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Instance is everything that the store has of an instance.
type Instance struct {
	ID  string
	Row round.Row
	// History has the events of each execution that the store keeps, by the number of the
	// execution.
	History map[int64][]events.Event
	Values  map[string]codec.Payload
}

// Check joins the findings about an instance; nil if there are none.
func (in Instance) Check() error {
	var errs []error
	for _, f := range in.Findings() {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// Findings lists the violations in an instance.
func (in Instance) Findings() []Finding {
	l := newLineage(in.ID)
	for _, x := range slices.Sorted(maps.Keys(in.History)) {
		l.begin(x)
		l.take(in.History[x])
		l.finish()
	}
	if in.History[in.Row.Execution] != nil {
		l.compareRow(in.Row)
		l.compareValues(in.Values)
	}
	return l.findings
}
