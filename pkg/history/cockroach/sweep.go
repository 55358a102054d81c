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
	out, err := s.takePromises(ctx, due, take.Until)
	if err != nil {
		return nil, err
	}
	if len(due) < take.Limit {
		err = s.unlessTaken(ctx, len(out), s.advanceOutbox(ctx, take.Before))
	}
	return out, err
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
	for shard := range int16(history.Shards) {
		args = append(args, s.fromMark(shard))
	}
	err = s.ReadOften(ctx, "look for promises", func(db relational.DB) error {
		due = nil
		return db.Query(ctx, func(r relational.Row) error {
			var k history.PromiseKey
			err := r.Scan(&k.Shard, &k.ID)
			due = append(due, k)
			return err
		}, duePromises, args...)
	})
	return due, err
}

// takePromises takes over promises that others have not taken meanwhile, oldest first.
func (s *Store) takePromises(ctx context.Context, due []history.PromiseKey,
	until time.Time) (out []history.Promise, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	err = s.writeKept(ctx, "take over promises", func(db relational.DB) error {
		out = nil
		return db.Query(ctx, func(r relational.Row) error {
			var (
				key      history.PromiseKey
				messages []byte
			)
			err := r.Scan(&key.Shard, &key.ID, &messages)
			out = append(out, relational.Promised(key, messages))
			return err
		}, takePromises, array(due, func(k history.PromiseKey) int16 {
			return k.Shard
		}), array(due, func(k history.PromiseKey) int64 { return k.ID }), s.options.Now(), until)
	})
	slices.SortFunc(out, func(a, b history.Promise) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	return out, err
}

// advanceOutbox moves the marks up to the oldest promises that are still there, where that is worth
// it.
func (s *Store) advanceOutbox(ctx context.Context, swept time.Time) error {
	marks := make(map[int16]time.Time)
	var shards []int
	var args []any
	for shard := range int16(history.Shards) {
		if s.worthAdvancing(markOutbox, shard, swept) {
			marks[shard] = swept
			shards, args = append(shards, int(shard)), append(args, s.fromMark(shard))
		}
	}
	if len(shards) == 0 {
		return nil
	}
	err := s.Read(ctx, "find the oldest promises", func(db relational.DB) error {
		return db.Query(ctx, func(r relational.Row) error {
			var k history.PromiseKey
			err := r.Scan(&k.Shard, &k.ID)
			if made := k.Made(); made.Before(marks[k.Shard]) {
				marks[k.Shard] = made
			}
			return err
		}, oldestPromises(shards), args...)
	})
	if err != nil {
		return err
	}
	return s.advance(ctx, markOutbox, marks)
}

// RemovePromises implements [history.Outbox].
func (s *Store) RemovePromises(ctx context.Context, keys []history.PromiseKey) error {
	byShard := make(map[int16][]int64)
	for _, k := range keys {
		byShard[k.Shard] = append(byShard[k.Shard], k.ID)
	}
	for shard, ids := range byShard {
		err := s.writeKept(ctx, "remove promises", func(db relational.DB) error {
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
		return db.Query(ctx, func(r relational.Row) error {
			return r.Scan(&n)
		}, "SELECT count(*) FROM (SELECT 1 FROM rondo_outbox LIMIT $1) o", limit)
	})
	return n, err
}

// TakeOverdue implements [history.Wakes]. It looks before it takes: most often there is nothing.
func (s *Store) TakeOverdue(ctx context.Context, take history.Take) ([]history.Overdue, error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	if err := s.readMarks(ctx); err != nil {
		return nil, err
	}
	due, err := s.dueWakes(ctx, take)
	if err != nil {
		return nil, err
	}
	out, err := s.postpone(ctx, due, take)
	if err != nil {
		return nil, err
	}
	// What somebody else held may still be due when it is let go, and must not be below the mark
	// then.
	if len(due) < take.Limit && len(out) == len(due) {
		marks := make(map[int16]time.Time)
		for shard := range int16(history.Shards) {
			marks[shard] = take.Before
		}
		err = s.unlessTaken(ctx, len(out), s.advance(ctx, markWake, marks))
	}
	return out, err
}

// unlessTaken keeps an error of moving marks from the caller if the sweep has taken something,
// which nobody else would look at for a while.
func (s *Store) unlessTaken(ctx context.Context, n int, err error) error {
	if err != nil && n > 0 {
		s.options.Log.WarnContext(ctx, "a sweep cannot write down how far it came", "error", err)
		return nil
	}
	return err
}

// dueWakes finds the instances of all shards that are due the longest.
func (s *Store) dueWakes(ctx context.Context, take history.Take) (due []string, err error) {
	args := []any{take.Before, take.Limit}
	for shard := range int16(history.Shards) {
		args = append(args, s.mark(markWake, shard))
	}
	err = s.ReadOften(ctx, "look for overdue instances", func(db relational.DB) error {
		due = nil
		return db.Query(ctx, func(r relational.Row) error {
			var id string
			err := r.Scan(&id)
			due = append(due, id)
			return err
		}, dueWakes, args...)
	})
	return due, err
}

// postpone takes instances over by moving their wake-up times.
func (s *Store) postpone(ctx context.Context, due []string, take history.Take) (out []history.Overdue, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	err = s.writeKept(ctx, "take over overdue instances", func(db relational.DB) error {
		out = nil
		return db.Query(ctx, func(r relational.Row) error {
			o, err := relational.ScanOverdue(r)
			out = append(out, o)
			return err
		}, takeOverdue, array(due, history.ShardOf), due, array(due, func(id string) time.Time {
			return s.wakeAt(history.ShardOf(id), take.Until)
		}), take.Before)
	})
	slices.SortFunc(out, func(a, b history.Overdue) int {
		return cmp.Or(a.WakeAt.Compare(b.WakeAt), cmp.Compare(a.Instance, b.Instance))
	})
	return out, err
}

// What a sweep looks for, it looks for shard by shard, each from its mark on, which is a parameter
// of its own.
var (
	duePromises = inShards(allShards(), 4,
		"SELECT shard, id FROM rondo_outbox WHERE shard = %d AND id >= $%d AND id < $1 AND "+
			"(taken_until IS NULL OR taken_until <= $2) ORDER BY id LIMIT $3") + "\nORDER BY id LIMIT $3"
	dueWakes = "SELECT instance FROM (" + inShards(allShards(), 3,
		"SELECT instance, wake_at FROM rondo_instances WHERE shard = %d AND wake_at >= $%d AND wake_at < $1 "+
			"ORDER BY wake_at, instance LIMIT $2") + "\nORDER BY wake_at, instance LIMIT $2) d"
)

func allShards() []int {
	shards := make([]int, history.Shards)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

func oldestPromises(shards []int) string {
	return inShards(shards, 1, "SELECT shard, id FROM rondo_outbox WHERE shard = %d AND id >= $%d ORDER BY id LIMIT 1")
}

// inShards asks the same of shards. Their marks are the parameters from the first on.
func inShards(shards []int, first int, statement string) string {
	parts := make([]string, len(shards))
	for i, shard := range shards {
		parts[i] = fmt.Sprintf("SELECT * FROM ("+statement+") b%d", shard, first+i, shard)
	}
	return strings.Join(parts, "\nUNION ALL ")
}

// What a sweep takes over, it locks first, without waiting: what somebody else holds, the next
// sweep may find. IS TRUE keeps PostgreSQL from reading all that are overdue instead of those that
// were found.
const (
	takePromises = `WITH mine AS (SELECT o.shard, o.id
	FROM unnest($1::INT2[], $2::INT8[]) AS w(shard, id) JOIN rondo_outbox o ON o.shard = w.shard AND o.id = w.id
	WHERE o.taken_until IS NULL OR o.taken_until <= $3::TIMESTAMPTZ FOR UPDATE OF o SKIP LOCKED)
	UPDATE rondo_outbox AS p SET taken_until = $4::TIMESTAMPTZ FROM mine WHERE p.shard = mine.shard AND p.id = mine.id RETURNING p.shard, p.id, p.messages`

	takeOverdue = `WITH mine AS (SELECT i.shard, i.instance, i.wake_at, w.until
	FROM unnest($1::INT2[], $2::TEXT[], $3::TIMESTAMPTZ[]) AS w(shard, instance, until) JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance
	WHERE (i.wake_at < $4::TIMESTAMPTZ) IS TRUE FOR UPDATE OF i SKIP LOCKED)
	UPDATE rondo_instances AS p SET wake_at = mine.until FROM mine WHERE p.shard = mine.shard AND p.instance = mine.instance
	RETURNING p.instance, p.incarnation, p.execution, p.last_event, p.custom_status_version, mine.wake_at`
)
