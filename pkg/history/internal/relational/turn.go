package relational

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Entry is a turn on its way into the database.
type Entry struct {
	Place    int // in the batch
	Turn     *round.Turn
	Columns  Columns
	Rows     []TurnRow
	Former   []Columns
	Promises [][]byte // packed, in pieces of bounded size
	Outcome  history.Outcome
}

// TurnRow is a row of history: events of one turn that follow one another, one on each line.
type TurnRow struct {
	Execution   int64
	Event, Last int64 // the first and the last of them
	Data        []byte
}

// A row of history holds a whole turn if it is small, and as many of its events as are not larger
// than this otherwise.
const (
	rowEvents = 32
	rowBytes  = 32 << 10
)

// Encode writes a turn as rows. What depends on the store is left to it: shard and wake_at.
func Encode(d history.Decided) (e Entry, err error) {
	t := d.Turn
	e = Entry{Turn: t, Promises: Pack(d.Promises)}
	if e.Columns, err = FromRow(t.Instance, t.Row); err != nil {
		return e, err
	}
	e.Columns.CreatedAt.Time = Born(t)
	for _, x := range t.Executions {
		if e.Rows, err = appendRows(e.Rows, x); err != nil {
			return e, fmt.Errorf("instance %q: %w", t.Instance, err)
		}
	}
	for _, f := range t.Former {
		c, err := FromRow(t.Instance, f)
		if err != nil {
			return e, err
		}
		e.Former = append(e.Former, c)
	}
	return e, nil
}

// appendRows writes the events of an execution as rows.
func appendRows(rows []TurnRow, x round.Execution) ([]TurnRow, error) {
	var row *TurnRow
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
		rows = append(rows, TurnRow{Execution: x.ID, Event: ev.ID, Last: ev.ID, Data: data})
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

// Born is when the incarnation began that a turn brings about. It is only stored with the first
// turn of an incarnation.
func Born(t *round.Turn) time.Time {
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

// Pack packs promises into pieces of bounded size.
func Pack(promises []events.Wire) (pieces [][]byte) {
	size := 0
	for _, w := range promises {
		size += history.PackedRoom(w)
	}
	piece := make([]byte, 0, min(size, 2*history.MaxPromise))
	for _, w := range promises {
		n := len(piece)
		piece = history.AppendPacked(piece, w)
		if n > 0 && len(piece) > history.MaxPromise {
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
func (d Dialect) ParentGone(ctx context.Context, db DB, t *round.Turn, parent *Columns) (gone bool, err error) {
	p := t.Row.Parent
	switch {
	case parent == nil || parent.Tombstone():
		return true, nil
	case parent.Incarnation == text(p.Incarnation):
		return false, nil
	}
	gone = true
	err = db.Query(ctx, func(r Row) error {
		gone = false
		var execution int64
		return r.Scan(&execution)
	}, "SELECT execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution = $3 AND "+
		"incarnation = $4",
		d.Shard(p.Instance), Key(p.Instance), p.Execution, text(p.Incarnation))
	return gone, err
}
