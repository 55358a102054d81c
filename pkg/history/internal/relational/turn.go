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
	Events   []TurnEvent
	Former   []Columns
	Promises [][]byte // packed, in pieces of bounded size
	Outcome  history.Outcome
}

// TurnEvent is an event of a turn as it is stored.
type TurnEvent struct {
	Execution, Event int64
	Data             []byte
}

// Encode writes a turn as rows. What depends on the store is left to it: shard and wake_at.
func Encode(d history.Decided) (e Entry, err error) {
	t := d.Turn
	e = Entry{Turn: t, Promises: Pack(d.Promises)}
	if e.Columns, err = FromRow(t.Instance, t.Row); err != nil {
		return e, err
	}
	e.Columns.CreatedAt.Time = Born(t)
	for _, x := range t.Executions {
		for _, ev := range x.Events {
			data, err := events.EncodeEvent(ev)
			if err != nil {
				return e, fmt.Errorf("instance %q: %w", t.Instance, err)
			}
			e.Events = append(e.Events, TurnEvent{x.ID, ev.ID, data})
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

// Born is when the life began that a turn brings about. It is only stored with the first turn of a life.
func Born(t *round.Turn) time.Time {
	at := t.Row.StartedAt
	for _, f := range t.Former {
		if f.Life == t.Row.Life && f.StartedAt.Before(at) {
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
	var piece []byte
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
	return t.Basis.Execution == 0 && t.Row.Parent != nil
}

// ParentGone reports whether the parent of the child that a turn starts was deleted, given the parent's row, nil for none. A parent that has begun another life
// without being deleted, which only one that had ended can do, still has the execution that asked for the child.
func (d Dialect) ParentGone(ctx context.Context, db DB, t *round.Turn, parent *Columns) (gone bool, err error) {
	p := t.Row.Parent
	switch {
	case parent == nil || parent.Grave():
		return true, nil
	case parent.Life == text(p.Life):
		return false, nil
	}
	gone = true
	err = db.Query(ctx, func(r Row) error {
		gone = false
		var execution int64
		return r.Scan(&execution)
	}, "SELECT execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution = $3 AND life = $4",
		d.Shard(p.Instance), Key(p.Instance), p.Execution, text(p.Life))
	return gone, err
}
