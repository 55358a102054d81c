package sqlite

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// The sweeps look with a reader before they take anything: most often there is nothing, and then
// nobody has to wait.

const (
	duePromises = " FROM rondo_outbox WHERE id < ? AND (taken_until IS NULL OR taken_until <= ?) ORDER BY id LIMIT ?"
	dueWakes    = " FROM rondo_instances WHERE shard = 0 AND wake_at < ? ORDER BY wake_at, instance LIMIT ?"
)

// anything reports whether a statement finds a row.
func (s *Store) anything(ctx context.Context, op, statement string, args ...any) (found bool, err error) {
	if s.writer == nil {
		return false, fail(op, ErrReadOnly)
	}
	err = s.read(ctx, op, func(r *session) error {
		found = false
		return r.query(ctx, func(row relational.Row) error { return row.Scan(&found) }, statement, args...)
	})
	return found, err
}

// TakePromises implements [history.Outbox].
func (s *Store) TakePromises(ctx context.Context, take history.Take) (out []history.Promise, err error) {
	const op = "take over promises"
	if err := take.Check(); err != nil {
		return nil, err
	}
	before, now := history.PromiseID(take.Before, 0), s.options.Now().UnixMicro()
	found, err := s.anything(ctx, op, "SELECT 1"+duePromises, before, now, 1)
	if err != nil || !found {
		return nil, err
	}
	err = s.write(ctx, op, func(w *session) error {
		out = nil
		err := w.query(ctx, func(r relational.Row) error {
			var (
				key      history.PromiseKey
				messages []byte
			)
			err := r.Scan(&key.ID, &messages)
			out = append(out, relational.Promised(key, messages))
			return err
		}, "SELECT id, messages"+duePromises, before, now, take.Limit)
		for _, p := range out {
			if err == nil {
				_, err = w.exec("UPDATE rondo_outbox SET taken_until = ? WHERE id = ?",
					take.Until.UnixMicro(), p.Key.ID)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RemovePromises implements [history.Outbox].
func (s *Store) RemovePromises(ctx context.Context, keys []history.PromiseKey) error {
	if len(keys) == 0 {
		return nil
	}
	return s.write(ctx, "remove promises", func(w *session) error { return removePromises(ctx, w, keys) })
}

func removePromises(ctx context.Context, w *session, keys []history.PromiseKey) error {
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

// CountPromises implements [history.Outbox].
func (s *Store) CountPromises(ctx context.Context, limit int) (n int, err error) {
	err = s.read(ctx, "count promises", func(r *session) error {
		return r.query(ctx, func(row relational.Row) error {
			return row.Scan(&n)
		}, "SELECT count(*) FROM (SELECT 1 FROM rondo_outbox LIMIT ?)", limit)
	})
	return n, err
}

// TakeOverdue implements [history.Wakes].
func (s *Store) TakeOverdue(ctx context.Context, take history.Take) (out []history.Overdue, err error) {
	const op = "take over overdue instances"
	if err := take.Check(); err != nil {
		return nil, err
	}
	before := take.Before.UnixMicro()
	found, err := s.anything(ctx, op, "SELECT 1"+dueWakes, before, 1)
	if err != nil || !found {
		return nil, err
	}
	err = s.write(ctx, op, func(w *session) error {
		out = nil
		err := w.query(ctx, func(r relational.Row) error {
			o, err := relational.ScanOverdue(r)
			out = append(out, o)
			return err
		}, "SELECT instance, incarnation, execution, last_event, custom_status_version, wake_at"+dueWakes,
			before, take.Limit)
		for _, o := range out {
			if err == nil {
				_, err = w.exec("UPDATE rondo_instances SET wake_at = ? WHERE shard = 0 AND instance = ?",
					micro(s.wakeAt(take.Until)), o.Instance)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// wakeAt rounds a wake-up time up.
func (s *Store) wakeAt(at time.Time) time.Time {
	if step := s.options.WakeStep; step > 0 && !at.IsZero() {
		at = at.Add(step - 1).Truncate(step)
	}
	return at
}
