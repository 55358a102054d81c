package sqlrow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Entry is a turn in flight to the database.
type Entry struct {
	Place   int // in the batch
	Turn    *round.Turn
	Columns InstanceRow
	Rows    []HistoryRow
	Former  []InstanceRow
	Packed  [][]byte // packed, in pieces of bounded size
	Outcome history.Outcome
}

// A row of history holds a whole turn if it is small, and as many of its events as are not larger
// than this otherwise.
const (
	rowEvents = 32
	rowBytes  = 32 << 10
)

// Encode writes a turn as rows. The store itself sets the columns that depend on it: shard, in all
// rows, and wake_at.
func Encode(d history.Decided) (e Entry, err error) {
	t := d.Turn
	e = Entry{Turn: t, Packed: Pack(d.Messages)}
	if e.Columns, err = fromRow(t.Instance, t.Row); err != nil {
		return e, err
	}
	e.Columns.CreatedAt.Time = born(t)
	for _, x := range t.Executions {
		if e.Rows, err = appendRows(e.Rows, t.Instance, x); err != nil {
			return e, fmt.Errorf("instance %q: %w", t.Instance, err)
		}
	}
	for _, f := range t.Former {
		c, err := fromRow(t.Instance, f)
		if err != nil {
			return e, err
		}
		e.Former = append(e.Former, c)
	}
	return e, nil
}

// appendRows writes the events of an execution of an instance as rows.
func appendRows(rows []HistoryRow, instance string, x round.Execution) ([]HistoryRow, error) {
	var row *HistoryRow
	for i, ev := range x.Events {
		var buffer []byte
		if row != nil && ev.ID-row.Event < rowEvents {
			buffer = append(row.Data, '\n')
		} else {
			buffer = make([]byte, 0, roomFor(x.Events[i:]))
		}
		before := len(buffer)
		data, err := events.AppendEvent(buffer, ev) // is one line
		if err != nil {
			return nil, err
		}
		switch {
		case before == 0:
		case len(data)-1 < rowBytes:
			row.Last, row.Data = ev.ID, data
			continue
		default: // it begins another row
			data = slices.Clone(data[before:])
		}
		rows = append(rows, HistoryRow{Instance: instance, Execution: x.ID, EventRow: EventRow{ev.ID, ev.ID, data}})
		row = &rows[len(rows)-1]
	}
	return rows, nil
}

// roomFor is about how much the row takes that begins with the first of some events.
func roomFor(all []events.Event) (size int) {
	for _, ev := range all[:min(len(all), rowEvents)] {
		if size += 192; ev.Fact != nil {
			size += ev.Fact.Size()
		}
	}
	return min(size, rowBytes)
}

// born is when the incarnation began that a turn brings about. It is only stored with the first
// turn of an incarnation.
func born(t *round.Turn) time.Time {
	at := t.Row.StartedAt
	for _, f := range t.Former {
		if f.Incarnation == t.Row.Incarnation && f.StartedAt.Before(at) {
			at = f.StartedAt
		}
	}
	if at.IsZero() {
		return t.Row.UpdatedAt
	}
	return at
}

// Pack packs messages into outbox entries of bounded size.
func Pack(messages []events.Wire) (pieces [][]byte) {
	size := 0
	for _, w := range messages {
		size += history.PackedRoom(w)
	}
	piece := make([]byte, 0, min(size, 2*history.MaxOutboxEntry))
	for _, w := range messages {
		n := len(piece)
		piece = history.AppendPacked(piece, w)
		if n > 0 && len(piece) > history.MaxOutboxEntry {
			pieces = append(pieces, piece[:n:n])
			piece = slices.Clone(piece[n:])
		}
	}
	if len(piece) > 0 {
		pieces = append(pieces, piece)
	}
	return pieces
}

// StartsChild reports whether a turn begins an instance that is the child of another.
func StartsChild(t *round.Turn) bool {
	return t.Expected.Execution == 0 && t.Row.Parent != nil
}

// ParentGone reports whether the parent of the child that a turn starts was deleted, given the
// parent's row, nil for none. A parent that has begun another incarnation without being deleted,
// which only one that had ended can do, still has the execution that asked for the child.
func (d Dialect) ParentGone(ctx context.Context, db DB, t *round.Turn, parent *InstanceRow) (gone bool, err error) {
	p := t.Row.Parent
	switch {
	case parent == nil || parent.Tombstone():
		return true, nil
	case parent.Incarnation == Text(p.Incarnation):
		return false, nil
	}
	gone = true
	err = db.Query(ctx, func(r Row) error {
		gone = false
		var execution int64
		return r.Scan(&execution)
	}, "SELECT execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution = $3 AND "+
		"incarnation = $4",
		d.Shard(p.Instance), Key(p.Instance), p.Execution, Text(p.Incarnation))
	return gone, err
}

// Refusal is the outcome of a turn that was not taken, given the row that the store has instead of
// the one that the turn was decided on.
func Refusal(turn *round.Turn, found *InstanceRow, parentGone bool) history.Outcome {
	switch {
	case found == nil && turn.Expected.Execution == 0 && parentGone:
		return history.Outcome{Status: history.ParentDeleted}
	case found == nil:
		return history.Outcome{Status: history.Conflict}
	case found.Status == Deleting && turn.Expected.Execution == 0:
		return history.Outcome{Status: history.Deleting}
	case found.Status == Deleted && turn.Expected.Execution == 0 &&
		found.StartMessage.String == Text(turn.Row.StartMessage):
		return history.Outcome{Status: history.Deleted}
	case found.Status == Deleted && turn.Expected.Execution == 0 && parentGone:
		return history.Outcome{Status: history.ParentDeleted}
	}
	return history.Outcome{Status: history.Conflict, Actual: found.RowVersion()}
}
