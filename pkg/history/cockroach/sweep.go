package cockroach

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// TakePromises implements [history.Outbox]. It looks before it takes: most often there is nothing.
func (s *Store) TakePromises(ctx context.Context, take history.Take) ([]history.Promise, error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	if err := s.readMarks(ctx); err != nil {
		return nil, err
	}
	due, err := s.duePromises(ctx, take)
	if err != nil {
		return nil, err
	}
	byShard := make(map[int16][]int64)
	for _, k := range due {
		byShard[k.Shard] = append(byShard[k.Shard], k.ID)
	}
	var out []history.Promise
	for shard := range int16(history.Shards) {
		if ids := byShard[shard]; len(ids) > 0 {
			got, err := s.takePromises(ctx, shard, ids, take.Until)
			if err != nil {
				return out, err
			}
			out = append(out, got...)
		}
		if len(due) < take.Limit {
			if err := s.advanceOutbox(ctx, shard, take.Before); err != nil {
				return out, err
			}
		}
	}
	slices.SortFunc(out, func(a, b history.Promise) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	return out, nil
}

// fromMark is the least id that a sweep of a shard looks at.
func (s *Store) fromMark(shard int16) int64 {
	if at := s.mark(markOutbox, shard); !at.IsZero() {
		return history.PromiseID(at, 0)
	}
	return 0
}

// duePromises finds the oldest promises of all shards that nobody has taken.
func (s *Store) duePromises(ctx context.Context, take history.Take) (due []history.PromiseKey, err error) {
	args := []any{history.PromiseID(take.Before, 0), s.options.Now(), take.Limit}
	parts := make([]string, history.Shards)
	for shard := range parts {
		args = append(args, s.fromMark(int16(shard)))
		parts[shard] = fmt.Sprintf("SELECT * FROM (SELECT shard, id FROM rondo_outbox WHERE shard = %d AND id >= $%d AND id < $1 AND (taken_until IS NULL OR taken_until <= $2) ORDER BY id LIMIT $3) b%d",
			shard, len(args), shard)
	}
	err = s.Read(ctx, "look for promises", func(db relational.DB) error {
		due = nil
		return db.Query(ctx, func(r relational.Row) error {
			var k history.PromiseKey
			err := r.Scan(&k.Shard, &k.ID)
			due = append(due, k)
			return err
		}, strings.Join(parts, "\nUNION ALL ")+"\nORDER BY id LIMIT $3", args...)
	})
	return due, err
}

// takePromises takes over promises of a shard that others have not taken meanwhile.
func (s *Store) takePromises(ctx context.Context, shard int16, ids []int64, until time.Time) (out []history.Promise, err error) {
	err = s.Write(ctx, "take over promises", func(db relational.DB) error {
		out = nil
		return db.Query(ctx, func(r relational.Row) error {
			p := history.Promise{Key: history.PromiseKey{Shard: shard}}
			var messages []byte
			if err := r.Scan(&p.Key.ID, &messages); err != nil {
				return err
			}
			p.Messages, p.Err = history.Unpack(messages)
			if p.Err != nil {
				p.Err = &history.Error{Class: history.Corrupt, Op: "take over promises", Err: fmt.Errorf("row (%d, %d) of the outbox: %w", shard, p.Key.ID, p.Err)}
			}
			out = append(out, p)
			return nil
		}, `UPDATE rondo_outbox SET taken_until = $4 WHERE shard = $1 AND id IN (
			SELECT id FROM rondo_outbox WHERE shard = $1 AND id = ANY($2) AND (taken_until IS NULL OR taken_until <= $3)
			ORDER BY id FOR UPDATE SKIP LOCKED) RETURNING id, messages`,
			shard, ids, s.options.Now(), until)
	})
	return out, err
}

// advanceOutbox moves the mark up to the oldest promise that is still there, if that is worth it.
func (s *Store) advanceOutbox(ctx context.Context, shard int16, swept time.Time) error {
	if !s.worthAdvancing(markOutbox, shard, swept) {
		return nil
	}
	err := s.Read(ctx, "find the oldest promise", func(db relational.DB) error {
		return db.Query(ctx, func(r relational.Row) error {
			k := history.PromiseKey{Shard: shard}
			err := r.Scan(&k.ID)
			if made := k.Made(); made.Before(swept) {
				swept = made
			}
			return err
		}, "SELECT id FROM rondo_outbox WHERE shard = $1 AND id >= $2 ORDER BY id LIMIT 1", shard, s.fromMark(shard))
	})
	if err != nil {
		return err
	}
	return s.advance(ctx, markOutbox, shard, swept)
}

// RemovePromises implements [history.Outbox].
func (s *Store) RemovePromises(ctx context.Context, keys []history.PromiseKey) error {
	byShard := make(map[int16][]int64)
	for _, k := range keys {
		byShard[k.Shard] = append(byShard[k.Shard], k.ID)
	}
	for shard, ids := range byShard {
		err := s.Write(ctx, "remove promises", func(db relational.DB) error {
			_, err := db.Exec(ctx, removePromises, shard, ids)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CountPromises implements [history.Outbox].
func (s *Store) CountPromises(ctx context.Context, limit int) (n int, err error) {
	err = s.Read(ctx, "count promises", func(db relational.DB) error {
		return db.Query(ctx, func(r relational.Row) error { return r.Scan(&n) }, "SELECT count(*) FROM (SELECT 1 FROM rondo_outbox LIMIT $1) o", limit)
	})
	return n, err
}

// TakeOverdue implements [history.Wakes].
func (s *Store) TakeOverdue(ctx context.Context, take history.Take) ([]history.Overdue, error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	if err := s.readMarks(ctx); err != nil {
		return nil, err
	}
	var out []history.Overdue
	for shard := range int16(history.Shards) {
		got, err := s.takeOverdue(ctx, shard, take, take.Limit-len(out))
		if err != nil {
			return out, err
		}
		out = append(out, got...)
		if len(out) >= take.Limit {
			break
		}
	}
	return out, nil
}

// takeOverdue looks before it takes: most often there is nothing.
func (s *Store) takeOverdue(ctx context.Context, shard int16, take history.Take, limit int) (out []history.Overdue, err error) {
	from := s.mark(markWake, shard)
	find := `SELECT instance FROM rondo_instances WHERE shard = $1 AND wake_at >= $2 AND wake_at < $3 ORDER BY wake_at, instance LIMIT $4`
	var due []string
	err = s.Read(ctx, "look for overdue instances", func(db relational.DB) error {
		due = nil
		return db.Query(ctx, func(r relational.Row) error {
			var id string
			err := r.Scan(&id)
			due = append(due, id)
			return err
		}, find, shard, from, take.Before, limit)
	})
	if err != nil {
		return nil, err
	}
	if len(due) > 0 {
		if out, err = s.postpone(ctx, shard, due, take); err != nil {
			return nil, err
		}
	}
	if len(due) < limit {
		err = s.advance(ctx, markWake, shard, take.Before)
	}
	return out, err
}

// postpone takes instances over by moving their wake-up times.
func (s *Store) postpone(ctx context.Context, shard int16, due []string, take history.Take) (out []history.Overdue, err error) {
	until := s.wakeAt(shard, take.Until)
	err = s.Write(ctx, "take over overdue instances", func(db relational.DB) error {
		out = nil
		woke := make(map[string]time.Time)
		err := db.Query(ctx, func(r relational.Row) error {
			var (
				id string
				at relational.Moment
			)
			err := r.Scan(&id, &at)
			woke[id] = at.Time
			return err
		}, `SELECT instance, wake_at FROM rondo_instances WHERE shard = $1 AND instance = ANY($2) AND wake_at < $3 ORDER BY instance FOR UPDATE SKIP LOCKED`, shard, due, take.Before)
		if err != nil || len(woke) == 0 {
			return err
		}
		locked := make([]string, 0, len(woke))
		for id := range woke {
			locked = append(locked, id)
		}
		return db.Query(ctx, func(r relational.Row) error {
			var o history.Overdue
			err := r.Scan(&o.Instance, &o.Basis.Life, &o.Basis.Execution, &o.Basis.LastEvent, &o.Basis.CustomStatusVersion)
			o.WakeAt = woke[o.Instance]
			out = append(out, o)
			return err
		}, `UPDATE rondo_instances SET wake_at = $3 WHERE shard = $1 AND instance = ANY($2) RETURNING instance, life, execution, last_event, custom_status_version`, shard, locked, until)
	})
	slices.SortFunc(out, func(a, b history.Overdue) int {
		return cmp.Or(a.WakeAt.Compare(b.WakeAt), cmp.Compare(a.Instance, b.Instance))
	})
	return out, err
}
