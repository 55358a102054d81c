package sqlrow

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// EventRow is what a row of the table of histories has for readers: events of one turn that follow
// one another, one on each line.
type EventRow struct {
	Event, Last int64 // the first and the last of them
	Data        []byte
}

// HistoryRow is a row of the table of histories.
type HistoryRow struct {
	Shard     int16
	Instance  string
	Execution int64
	EventRow
}

// Covered reports whether rows, in their order, have all events behind one up to another.
func Covered(rows []EventRow, after, last int64) bool {
	for _, r := range rows {
		if r.Event > after+1 {
			break
		}
		after = max(after, r.Last)
	}
	return after >= last
}

// Decode reads the events behind one up to another from rows of history, in their order.
func Decode(instance string, execution, after, last int64, rows []EventRow) ([]events.Event, error) {
	out := make([]events.Event, 0, max(0, min(last-after, rowEvents*int64(len(rows)))))
	unreadable := func(event int64, err error) error {
		return &history.UnreadableError{Instance: instance, Execution: execution, Event: event,
			Column: "data", Err: err}
	}
	for _, r := range rows {
		line, rest := []byte(nil), r.Data
		for id := r.Event; id <= min(r.Last, last); id++ {
			if line = rest; id < r.Last {
				line, rest, _ = bytes.Cut(rest, []byte{'\n'})
			}
			want := after + int64(len(out)) + 1
			if id < want {
				continue
			}
			if id > want {
				return out, unreadable(want, errMissing)
			}
			e, err := events.DecodeEvent(line)
			if err != nil {
				return out, unreadable(id, err)
			}
			if e.ID != id {
				return out, unreadable(id, fmt.Errorf("it has event %d", e.ID))
			}
			out = append(out, e)
		}
	}
	if end := after + int64(len(out)); end < last {
		return out, unreadable(end+1, errMissing)
	}
	return out, nil
}

var errMissing = errors.New("the row is missing")

// Loaded builds the state of an instance from its row and its history up to there.
func Loaded(c *InstanceRow, rows []EventRow, admitted bool) round.Known {
	k := round.Known{Instance: c.Instance}
	k.Row, k.Unreadable = c.Row()
	if !admitted || k.Unreadable != nil {
		return k
	}
	k.History, k.Unreadable = Decode(c.Instance, c.Execution, 0, c.LastEvent, rows)
	if k.Unreadable != nil {
		k.History = nil
	}
	return k
}
