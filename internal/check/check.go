// Package check proves that nothing was lost: it looks for what must never be in the histories of
// instances, between them, and between them and what clients were promised, whatever crashed, came
// twice or came late. It has rules of its own, so that it does not repeat the engine's mistakes.
//
//	one history       event-order, time-order, first-event, two-outcomes, after-end; each answer answers one
//	                  thing that was open, once (answers-nothing, answered-twice,
//	                  answered-dropped, step-twice); timer-early; wrong-event; message-twice; queue
//	                  messages are read once and in order (read-nothing, read-twice, read-order)
//	its executions    no-end, execution-missing, continued-differs; values, status and unread messages go on
//	                  into the next one (carried-differs, mail-lost, mail-from-nowhere)
//	the store         what it shows is what history tells (row-differs, values-differ, status-differs); it will
//	                  be looked at again (no-wake); all of it can be read (history-unreadable)
//	families          a child exists when it has answered, is the one that was started, and has ended as its
//	                  parent was told (child-missing, child-foreign, child-early,
//	                  child-outcome); its parent exists and knows it (orphan, child-unknown)
//	promises          each start, queue message and end that a client was told of is in history (start-lost,
//	                  queue-lost, queue-reorder, end-differs, end-early), and so is what
//	                  instances have said to others without waiting for an answer (launch-lost, send-lost)
//	what is under way promises are sent (promise-overdue), instances are looked at in time (wake-overdue), and
//	                  what history waits for is in the broker (work-lost,
//	                  timer-lost, child-lost, answer-lost); outstanding, if nothing may be under way
//
// [Instance.Check] judges one instance that is in memory. [System] judges all that a store has,
// page by page, while it is being written to: it needs memory for some instances at a time, however
// many there are. What was deleted or pruned cannot be judged, and is counted as such.
package check

import (
	"errors"
	"maps"
	"slices"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Instance is everything that the store has of an instance.
type Instance struct {
	ID  string
	Row round.Row
	// History is that of each execution that is kept.
	History map[int64][]events.Event
	Values  map[string]events.Payload
}

// Check lists what is wrong with an instance, if anything.
func (in Instance) Check() error {
	var errs []error
	for _, f := range in.Findings() {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// Findings lists what is wrong with an instance.
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
