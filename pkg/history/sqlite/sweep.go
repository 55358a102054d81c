package sqlite

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// The sweeps look with a reader before they lease anything: most often there is nothing, and then
// no other writer has to wait.

const (
	dueEntries = " FROM rondo_outbox WHERE id < ? AND (leased_until IS NULL OR leased_until <= ?) ORDER BY id LIMIT ?"
	dueWakes   = " FROM rondo_instances WHERE shard = 0 AND wake_at < ? ORDER BY wake_at, instance LIMIT ?"
)

var selectOverdue = "SELECT " + sqlrow.OverdueColumns.String() + dueWakes

// anything reports whether a statement finds a row.
func (d *database) anything(ctx context.Context, op, statement string, args ...any) (found bool, err error) {
	if d.writer == nil {
		return false, fail(op, ErrReadOnly)
	}
	err = d.read(ctx, op, func(r *session) error {
		found = false
		return r.query(ctx, func(row sqlrow.Row) error { return row.Scan(&found) }, statement, args...)
	})
	return found, err
}

// outbox implements [history.Outbox].
type outbox struct {
	db  *database
	now func() time.Time
}

// LeaseOutbox implements [history.Outbox].
func (o *outbox) LeaseOutbox(ctx context.Context, take history.Lease) (out []history.OutboxEntry, err error) {
	defer o.db.observer.Begin("lease_outbox").End(&err)
	const op = "lease outbox entries"
	if err := take.Check(); err != nil {
		return nil, err
	}
	before, now := history.OutboxID(take.Before, 0), o.now().UnixMicro()
	found, err := o.db.anything(ctx, op, "SELECT 1"+dueEntries, before, now, 1)
	if err != nil || !found {
		return nil, err
	}
	err = o.db.write(ctx, op, func(w *session) error {
		out = nil
		var due []sqlrow.DueEntry
		err := w.query(ctx, func(r sqlrow.Row) error {
			var x sqlrow.DueEntry
			err := r.Scan(&x.Key.ID, &x.Size)
			due = append(due, x)
			return err
		}, "SELECT id, length(messages)"+dueEntries, before, now, take.Limit)
		for _, x := range sqlrow.Fitting(due, take.Bytes) {
			if err != nil {
				return err
			}
			err = w.query(ctx, func(r sqlrow.Row) error {
				var messages []byte
				err := r.Scan(&messages)
				out = append(out, sqlrow.OutboxEntry(x.Key, messages))
				return err
			}, "UPDATE rondo_outbox SET leased_until = ? WHERE id = ? RETURNING messages",
				take.Until.UnixMicro(), x.Key.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RemoveOutbox implements [history.Outbox].
func (o *outbox) RemoveOutbox(ctx context.Context, keys []history.OutboxKey) (err error) {
	defer o.db.observer.Begin("remove_outbox").End(&err)
	if len(keys) == 0 {
		return nil
	}
	return o.db.write(ctx, "remove outbox", func(w *session) error { return removeEntries(ctx, w, keys) })
}

func removeEntries(ctx context.Context, w *session, keys []history.OutboxKey) error {
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		if k.Shard != 0 {
			continue // another store's
		}
		if _, err := w.exec("DELETE FROM rondo_outbox WHERE id = ?", k.ID); err != nil {
			return err
		}
	}
	return nil
}

// CountOutbox implements [history.Outbox].
func (o *outbox) CountOutbox(ctx context.Context, limit int) (n int, err error) {
	defer o.db.observer.Begin("count_outbox").End(&err)
	err = o.db.read(ctx, "count outbox entries", func(r *session) error {
		return r.query(ctx, func(row sqlrow.Row) error {
			return row.Scan(&n)
		}, "SELECT count(*) FROM (SELECT 1 FROM rondo_outbox LIMIT ?)", limit)
	})
	return n, err
}

// OldestOutbox implements [history.Outbox].
func (o *outbox) OldestOutbox(ctx context.Context) (made time.Time, err error) {
	defer o.db.observer.Begin("oldest_outbox").End(&err)
	err = o.db.read(ctx, "find the oldest outbox entry", func(r *session) error {
		made = time.Time{}
		return r.query(ctx, func(row sqlrow.Row) error {
			var key history.OutboxKey
			err := row.Scan(&key.ID)
			made = key.Made()
			return err
		}, "SELECT id FROM rondo_outbox ORDER BY id LIMIT 1")
	})
	return made, err
}

// wakes implements [history.Wakes].
type wakes struct {
	db   *database
	step wakeStep
}

// LeaseOverdue implements [history.Wakes].
func (v *wakes) LeaseOverdue(ctx context.Context, take history.Lease) (out []history.Overdue, err error) {
	defer v.db.observer.Begin("lease_overdue").End(&err)
	const op = "lease overdue instances"
	if err := take.Check(); err != nil {
		return nil, err
	}
	before := take.Before.UnixMicro()
	found, err := v.db.anything(ctx, op, "SELECT 1"+dueWakes, before, 1)
	if err != nil || !found {
		return nil, err
	}
	err = v.db.write(ctx, op, func(w *session) error {
		out = nil
		err := w.query(ctx, func(r sqlrow.Row) error {
			o, err := sqlrow.ScanOverdue(r)
			out = append(out, o)
			return err
		}, selectOverdue,
			before, take.Limit)
		for _, o := range out {
			if err == nil {
				_, err = w.exec("UPDATE rondo_instances SET wake_at = ? WHERE shard = 0 AND instance = ?",
					micro(v.step.of(take.Until)), o.Instance)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// wakeStep is what wake-up times are rounded up to; 0 for none.
type wakeStep time.Duration

// of rounds a wake-up time up.
func (w wakeStep) of(at time.Time) time.Time {
	if step := time.Duration(w); step > 0 && !at.IsZero() {
		at = at.Add(step - 1).Truncate(step)
	}
	return at
}
