package cockroach

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// outbox implements [history.Outbox].
type outbox struct {
	db    *database
	marks *marks
	now   func() time.Time
}

// LeaseOutbox implements [history.Outbox]. It looks before it takes: most often there is nothing.
func (o *outbox) LeaseOutbox(ctx context.Context, take history.Lease) (out []history.OutboxEntry, err error) {
	defer o.db.observer.Begin("lease_outbox").End(&err)
	if err := take.Check(); err != nil {
		return nil, err
	}
	if err := o.marks.read(ctx); err != nil {
		return nil, err
	}
	due, err := o.dueEntries(ctx, take)
	if err != nil {
		return nil, err
	}
	fitting := sqlrow.Fitting(due, take.Bytes)
	out, err = o.leaseEntries(ctx, fitting, take.Until)
	if err != nil {
		return nil, err
	}
	if len(due) < take.Limit && len(fitting) == len(due) {
		err = o.marks.unlessTaken(ctx, len(out), o.advanceOutbox(ctx, take.Before))
	}
	return out, err
}

// dueEntries finds the oldest outbox entries of all shards that are not leased.
func (o *outbox) dueEntries(ctx context.Context, take history.Lease) (due []sqlrow.DueEntry, err error) {
	args := append([]any{history.OutboxID(take.Before, 0), o.now(), take.Limit}, o.fromMarks()...)
	err = o.db.ReadOften(ctx, "look for outbox entries", func(db sqlrow.DB) error {
		due = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			var x sqlrow.DueEntry
			err := r.Scan(&x.Key.Shard, &x.Key.ID, &x.Size)
			due = append(due, x)
			return err
		}, dueEntries, args...)
	})
	return due, err
}

// leaseEntries leases outbox entries that others have not leased meanwhile, oldest first.
func (o *outbox) leaseEntries(ctx context.Context, due []sqlrow.DueEntry,
	until time.Time) (out []history.OutboxEntry, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	err = o.db.writeKept(ctx, "lease outbox entries", func(db sqlrow.DB) error {
		out = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			var (
				key      history.OutboxKey
				messages []byte
			)
			err := r.Scan(&key.Shard, &key.ID, &messages)
			out = append(out, sqlrow.OutboxEntry(key, messages))
			return err
		}, leaseEntries, array(due, func(x sqlrow.DueEntry) int16 {
			return x.Key.Shard
		}), array(due, func(x sqlrow.DueEntry) int64 { return x.Key.ID }), o.now(), until)
	})
	slices.SortFunc(out, func(a, b history.OutboxEntry) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
	return out, err
}

// advanceOutbox moves the marks up to the oldest outbox entries that are still there, where that is
// worth it.
func (o *outbox) advanceOutbox(ctx context.Context, swept time.Time) error {
	marks := make(map[int16]time.Time)
	var shards []int
	var args []any
	for shard := range int16(history.Shards) {
		if o.marks.worthAdvancing(markOutbox, shard, swept) {
			marks[shard] = swept
			shards, args = append(shards, int(shard)), append(args, o.marks.fromMark(shard))
		}
	}
	if len(shards) == 0 {
		return nil
	}
	err := o.db.Read(ctx, "find the oldest outbox entries", func(db sqlrow.DB) error {
		return db.Query(ctx, func(r sqlrow.Row) error {
			var k history.OutboxKey
			err := r.Scan(&k.Shard, &k.ID)
			if made := k.Made(); made.Before(marks[k.Shard]) {
				marks[k.Shard] = made
			}
			return err
		}, oldestEntries(shards), args...)
	})
	if err != nil {
		return err
	}
	return o.marks.advance(ctx, markOutbox, marks)
}

// RemoveOutbox implements [history.Outbox].
func (o *outbox) RemoveOutbox(ctx context.Context, keys []history.OutboxKey) (err error) {
	defer o.db.observer.Begin("remove_outbox").End(&err)
	byShard := make(map[int16][]int64)
	for _, k := range keys {
		byShard[k.Shard] = append(byShard[k.Shard], k.ID)
	}
	for shard, ids := range byShard {
		err := o.db.writeKept(ctx, "remove outbox", func(db sqlrow.DB) error {
			_, err := db.Exec(ctx, removeEntries, shard, ids)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CountOutbox implements [history.Outbox].
func (o *outbox) CountOutbox(ctx context.Context, limit int) (n int, err error) {
	defer o.db.observer.Begin("count_outbox").End(&err)
	args := append([]any{limit}, o.fromMarks()...)
	err = o.db.Read(ctx, "count outbox entries", func(db sqlrow.DB) error {
		return db.Query(ctx, func(r sqlrow.Row) error {
			return r.Scan(&n)
		}, countEntries, args...)
	})
	return n, err
}

// OldestOutbox implements [history.Outbox].
func (o *outbox) OldestOutbox(ctx context.Context) (made time.Time, err error) {
	defer o.db.observer.Begin("oldest_outbox").End(&err)
	err = o.db.Read(ctx, "find the oldest outbox entry", func(db sqlrow.DB) error {
		made = time.Time{}
		return db.Query(ctx, func(r sqlrow.Row) error {
			var k history.OutboxKey
			err := r.Scan(&k.Shard, &k.ID)
			if at := k.Made(); made.IsZero() || at.Before(made) {
				made = at
			}
			return err
		}, oldestEntries(allShards()), o.fromMarks()...)
	})
	return made, err
}

// fromMarks are the parameters of a search of all shards, each from its mark on.
func (o *outbox) fromMarks() []any {
	args := make([]any, history.Shards)
	for shard := range args {
		args[shard] = o.marks.fromMark(int16(shard))
	}
	return args
}

// wakes implements [history.Wakes].
type wakes struct {
	db    *database
	marks *marks
}

// LeaseOverdue implements [history.Wakes]. It looks before it takes: most often there is nothing.
func (w *wakes) LeaseOverdue(ctx context.Context, take history.Lease) (out []history.Overdue, err error) {
	defer w.db.observer.Begin("lease_overdue").End(&err)
	if err := take.Check(); err != nil {
		return nil, err
	}
	if err := w.marks.read(ctx); err != nil {
		return nil, err
	}
	due, err := w.dueWakes(ctx, take)
	if err != nil {
		return nil, err
	}
	out, err = w.postpone(ctx, due, take)
	if err != nil {
		return nil, err
	}
	// Rows that another transaction held may still be due when it ends, and must not be below the
	// mark then.
	if len(due) < take.Limit && len(out) == len(due) {
		marks := make(map[int16]time.Time)
		for shard := range int16(history.Shards) {
			marks[shard] = take.Before
		}
		err = w.marks.unlessTaken(ctx, len(out), w.marks.advance(ctx, markWake, marks))
	}
	return out, err
}

// dueWakes finds the instances of all shards that are due the longest.
func (w *wakes) dueWakes(ctx context.Context, take history.Lease) (due []string, err error) {
	args := []any{take.Before, take.Limit}
	for shard := range int16(history.Shards) {
		args = append(args, w.marks.at(markWake, shard))
	}
	err = w.db.ReadOften(ctx, "look for overdue instances", func(db sqlrow.DB) error {
		due = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			var id string
			err := r.Scan(&id)
			due = append(due, id)
			return err
		}, dueWakes, args...)
	})
	return due, err
}

// postpone takes instances over by moving their wake-up times.
func (w *wakes) postpone(ctx context.Context, due []string, take history.Lease) (out []history.Overdue, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	err = w.db.writeKept(ctx, "lease overdue instances", func(db sqlrow.DB) error {
		out = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			o, err := sqlrow.ScanOverdue(r)
			out = append(out, o)
			return err
		}, takeOverdue, array(due, history.ShardOf), due, array(due, func(id string) time.Time {
			return w.marks.wakeAt(history.ShardOf(id), take.Until)
		}), take.Before)
	})
	slices.SortFunc(out, func(a, b history.Overdue) int {
		return cmp.Or(a.WakeAt.Compare(b.WakeAt), cmp.Compare(a.Instance, b.Instance))
	})
	return out, err
}

// Sweeps and counts search shard by shard, each from its mark on, which is a parameter of its own.
var (
	dueEntries = inShards(allShards(), 4,
		"SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = %d AND id >= $%d AND id < $1 AND "+
			"(leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3") + "\nORDER BY id LIMIT $3"
	dueWakes = "SELECT instance FROM (" + inShards(allShards(), 3,
		"SELECT instance, wake_at FROM rondo_instances WHERE shard = %d AND wake_at >= $%d AND wake_at < $1 "+
			"ORDER BY wake_at, instance LIMIT $2") + "\nORDER BY wake_at, instance LIMIT $2) d"
	countEntries = "SELECT count(*) FROM (" + inShards(allShards(), 2,
		"SELECT 1 FROM rondo_outbox WHERE shard = %d AND id >= $%d LIMIT $1") + "\nLIMIT $1) o"
)

func allShards() []int {
	shards := make([]int, history.Shards)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

func oldestEntries(shards []int) string {
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

// A sweep locks rows before it leases them, without waiting: the next sweep may find rows that
// another transaction holds. IS TRUE keeps PostgreSQL from reading all overdue rows instead of
// those that were found.
var (
	leaseEntries = `WITH mine AS (SELECT o.shard, o.id
	FROM unnest($1::INT2[], $2::INT8[]) AS w(shard, id) JOIN rondo_outbox o ON o.shard = w.shard AND o.id = w.id
	WHERE o.leased_until IS NULL OR o.leased_until <= $3::TIMESTAMPTZ FOR UPDATE OF o SKIP LOCKED)
	UPDATE rondo_outbox AS p SET leased_until = $4::TIMESTAMPTZ FROM mine WHERE p.shard = mine.shard AND p.id = mine.id RETURNING p.shard, p.id, p.messages`

	takeOverdue = `WITH mine AS (SELECT i.shard, i.instance, i.wake_at, w.until
	FROM unnest($1::INT2[], $2::TEXT[], $3::TIMESTAMPTZ[]) AS w(shard, instance, until) JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance
	WHERE (i.wake_at < $4::TIMESTAMPTZ) IS TRUE FOR UPDATE OF i SKIP LOCKED)
	UPDATE rondo_instances AS p SET wake_at = mine.until FROM mine WHERE p.shard = mine.shard AND p.instance = mine.instance
	RETURNING ` + sqlrow.OverdueColumns.Without("wake_at").Of("p") + ", mine.wake_at"
)
