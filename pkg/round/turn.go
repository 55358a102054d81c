package round

import (
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// This file has how a turn is put together.

func (t *Turn) events() (n int) {
	for _, x := range t.Executions {
		n += len(x.Events)
	}
	return n
}

func (t *Turn) add(execution int64, e events.Event) {
	if n := len(t.Executions); n == 0 || t.Executions[n-1].ID != execution {
		t.Executions = append(t.Executions, Execution{ID: execution})
	}
	x := &t.Executions[len(t.Executions)-1]
	x.Events = append(x.Events, e)
}

func (t *Turn) send(m ...events.Message) { t.Messages = append(t.Messages, m...) }

// value notes a change; the last one of a key counts.
func (t *Turn) value(v ValueChange) {
	if i := slices.IndexFunc(t.Values, func(x ValueChange) bool { return x.Key == v.Key }); i >= 0 {
		t.Values = slices.Delete(t.Values, i, i+1)
	}
	t.Values = append(t.Values, v)
}

// keepOrder nacks the messages that cannot be taken yet with one delay, so that NATS redelivers
// them in the order in which they were sent. Messages that are only early have their own time.
func (t *Turn) keepOrder() {
	var longest time.Duration
	returned := func(r Receipt) bool { return r.Verdict == Returned && r.Reason != TooEarly }
	for _, r := range t.Receipts {
		if returned(r) {
			longest = max(longest, r.After)
		}
	}
	for i, r := range t.Receipts {
		if returned(r) {
			t.Receipts[i].After = longest
		}
	}
}
