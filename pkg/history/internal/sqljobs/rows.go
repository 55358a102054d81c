package sqljobs

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// queueRows reads and writes rows of a queue within a transaction.
type queueRows struct {
	ctx   context.Context
	db    sqlrow.DB
	d     sqlrow.Dialect
	queue string
}

// ---- Jobs.

// jobRow is a row of jobs.
type jobRow struct {
	jobs.Job
	pushed, ready sqlrow.Moment
	trace         sql.NullString
	data          []byte
}

func (r *jobRow) targets() []any {
	return []any{&r.ID, &r.Priority, &r.Position, &r.Attempts, &r.pushed, &r.ready, &r.trace, &r.data}
}

func (r *jobRow) item() jobs.Job {
	r.PushedAt, r.ReadyAt, r.Trace, r.Data = r.pushed.Time, r.ready.Time, r.trace.String, r.data
	return r.Job
}

// Sizes implements [jobs.Jobs].
func (i *jobWriter) Sizes(priority int, from int64, limit int) (sizes []int, err error) {
	err = i.query(func(r sqlrow.Row) error {
		var size int
		err := r.Scan(&size)
		sizes = append(sizes, size)
		return err
	}, sizesOfJobs, i.queue, priority, from, limit)
	return sizes, err
}

// items reads jobs, in the order of their positions.
func (i queueRows) items(statement string, args ...any) (items []jobs.Job, err error) {
	err = i.db.Query(i.ctx, func(r sqlrow.Row) error {
		var x jobRow
		err := r.Scan(x.targets()...)
		items = append(items, x.item())
		return err
	}, statement, args...)
	slices.SortFunc(items, func(a, b jobs.Job) int { return cmp.Compare(a.Position, b.Position) })
	return items, err
}

// Move implements [jobs.Jobs].
func (i *jobWriter) Move(ids []int64, from, to int64) (int, error) {
	statement, args := listed(i.d, i.queue, fmt.Sprintf(moveJobs, to, from), ids)
	n, err := i.exec(statement, args...)
	return int(n), err
}

// GiveBack implements [jobs.Jobs].
func (i *jobWriter) GiveBack(lock int64, due, now time.Time, maxAttempts int, reason string,
	uncounted bool) (back []jobs.Back, err error) {
	place, at, fewer := jobs.PlaceReady, int64(0), int64(0)
	if uncounted {
		maxAttempts, fewer = 0, 1
	}
	if !due.IsZero() {
		place, at = jobs.PlaceDelayed, due.UnixMicro()
	}
	err = i.query(func(r sqlrow.Row) error {
		var b jobs.Back
		var place jobs.Place
		err := r.Scan(&place, &b.Priority, &b.Position)
		b.Dead = place == jobs.PlaceDead
		back = append(back, b)
		return err
	}, returnJobs, i.queue, lock, int64(place), at, int64(maxAttempts), now.UnixMicro(), sqlrow.Text(reason),
		fewer)
	return back, err
}

// Due implements [jobs.Jobs].
func (i *jobWriter) Due(now time.Time, limit int) (due []jobs.Delayed, next time.Time, err error) {
	err = i.query(func(r sqlrow.Row) error {
		var d jobs.Delayed
		var at int64
		err := r.Scan(&d.ID, &at, &d.Position, &d.Priority, &d.Returned)
		d.Due = time.UnixMicro(at).UTC()
		if len(due) == limit || d.Due.After(now) {
			if next.IsZero() {
				next = d.Due
			}
		} else {
			due = append(due, d)
		}
		return err
	}, dueJobs, i.queue, limit+1)
	return due, next, err
}

// Ready implements [jobs.Jobs].
func (i *jobWriter) Ready(item jobs.Delayed, position int64, since time.Time) error {
	return i.one(readyJob, i.queue, item.Due.UnixMicro(), item.Position, position, i.d.Time(since))
}

// one runs a statement that changes one row.
func (i *jobWriter) one(statement string, args ...any) error {
	n, err := i.exec(statement, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("queue %q: %d rows were changed where there should be one", i.queue, n)
	}
	return err
}

// Dead implements [jobs.Jobs].
func (i *jobWriter) Dead(ids []jobs.DeadID, limit int) (list []jobs.Dead, err error) {
	if err := i.settled(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return i.deadPlaces(deadPlaces, limit)
	}
	seen := make(map[jobs.DeadID]bool)
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		found, err := i.deadPlaces(deadJob, id.At, id.Position)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// deadPlaces reads where dead jobs are, and nothing else of them.
func (i queueRows) deadPlaces(statement string, args ...any) (list []jobs.Dead, err error) {
	err = i.db.Query(i.ctx, func(r sqlrow.Row) error {
		var d jobs.Dead
		var at int64
		err := r.Scan(&at, &d.Position, &d.Priority)
		d.DiedAt = time.UnixMicro(at).UTC()
		list = append(list, d)
		return err
	}, statement, append([]any{i.queue}, args...)...)
	return list, err
}

// deadAfter reads a page of dead jobs.
func (i queueRows) deadAfter(after jobs.DeadID, limit int) (list []jobs.Dead, err error) {
	err = i.db.Query(i.ctx, func(r sqlrow.Row) error {
		var x jobRow
		var at int64
		var reason sql.NullString
		err := r.Scan(append([]any{&at, &reason}, x.targets()...)...)
		list = append(list, jobs.Dead{Job: x.item(), DiedAt: time.UnixMicro(at).UTC(), Reason: reason.String})
		return err
	}, deadJobs, i.queue, after.At, after.Position, limit)
	return list, err
}

// Revive implements [jobs.Jobs].
func (i *jobWriter) Revive(item jobs.Dead, position int64, now time.Time) error {
	id := item.DeadID()
	return i.one(reviveJob, i.queue, id.At, id.Position, position, i.d.Time(now))
}

// Remove implements [jobs.Jobs].
func (i *jobWriter) Remove(dead bool, limit int) (removed []jobs.Removed, err error) {
	least := jobs.PlaceReady
	if dead {
		least = jobs.PlaceDead
	}
	err = i.query(func(r sqlrow.Row) error {
		var x jobs.Removed
		err := r.Scan(&x.Place, &x.Priority)
		removed = append(removed, x)
		return err
	}, removeJobs, i.queue, int64(least), limit)
	return removed, err
}

// ---- Locks.

// readLocks reads locks by their ids.
func (i queueRows) readLocks(ids []string) ([]jobs.Lock, error) {
	keys := make([]string, len(ids))
	for n, id := range ids {
		keys[n] = sqlrow.Key(id)
	}
	statement, args := listed(i.d, i.queue, findLocks, keys)
	return i.scanLocks(statement, args...)
}

func (i queueRows) scanLocks(statement string, args ...any) (list []jobs.Lock, err error) {
	err = i.db.Query(i.ctx, func(r sqlrow.Row) error {
		var l jobs.Lock
		var created, expires sqlrow.Moment
		err := r.Scan(&l.ID, &l.Number, &l.Items, &created, &expires, &l.Returned)
		l.CreatedAt, l.ExpiresAt = created.Time, expires.Time
		list = append(list, l)
		return err
	}, statement, args...)
	return list, err
}

// firstLocks settles, and reads the first locks of a list.
func firstLocks(i *jobWriter, statement string, limit int) ([]jobs.Lock, error) {
	if err := i.settled(); err != nil {
		return nil, err
	}
	return i.scanLocks(statement, i.queue, limit)
}

// ChangeLock implements [jobs.Jobs].
func (i *jobWriter) ChangeLock(l jobs.Lock) error {
	return i.one(changeLock, i.queue, l.ID, i.d.Time(l.ExpiresAt), l.Returned)
}

// Expired implements [jobs.Jobs].
func (i *jobWriter) Expired(now time.Time, limit int) (expired []jobs.Lock, next time.Time, err error) {
	all, err := firstLocks(i, activeLocks, limit+1)
	for n, l := range all {
		if n == limit || !l.Expired(now) {
			return all[:n], l.ExpiresAt, err
		}
	}
	return all, time.Time{}, err
}

// ForgetLocks implements [jobs.Jobs].
func (i *jobWriter) ForgetLocks(before time.Time, limit int) (next time.Time, err error) {
	all, err := firstLocks(i, oldLocks, limit+1)
	if err != nil {
		return next, err
	}
	for n, l := range all {
		if n == limit || l.ExpiresAt.After(before) {
			return l.ExpiresAt, nil
		}
		if err := i.RemoveLock(l.ID); err != nil {
			return next, err
		}
	}
	return next, nil
}

// ---- Keys.

// readKeys reads keys.
func (i queueRows) readKeys(keys []string) (list []queueKey, err error) {
	texts := make([]string, len(keys))
	for n, k := range keys {
		texts[n] = sqlrow.Text(k)
	}
	statement, args := listed(i.d, i.queue, findQueueKeys, texts)
	err = i.db.Query(i.ctx, func(r sqlrow.Row) error {
		var k queueKey
		var until sqlrow.Moment
		err := r.Scan(&k.key, &k.digest, &k.items, &until)
		k.until = until.Time
		list = append(list, k)
		return err
	}, statement, args...)
	return list, err
}

// ForgetKeys implements [jobs.Jobs].
func (i *jobWriter) ForgetKeys(now time.Time, limit int) (next time.Time, err error) {
	var old []string
	err = i.query(func(r sqlrow.Row) error {
		var key string
		var at sqlrow.Moment
		err := r.Scan(&key, &at)
		if next.IsZero() {
			if len(old) == limit || at.After(now) {
				next = at.Time
			} else {
				old = append(old, key)
			}
		}
		return err
	}, oldQueueKeys, i.queue, limit+1)
	for _, key := range old {
		if err == nil {
			_, err = i.exec(dropQueueKey, i.queue, key)
		}
	}
	return next, err
}

// Forget implements [jobs.Jobs].
func (i *jobWriter) Forget(after string, limit int) (n int, last string, err error) {
	locks, lock, err := findLast(i, lastLock, limit)
	if err == nil && locks > 0 {
		_, err = i.exec(forgetLocks, i.queue, lock)
	}
	if err != nil || locks == limit {
		return locks, after, err
	}
	keys, last, err := findLast(i, lastKey, after, limit-locks)
	if err != nil || keys == 0 {
		return locks, after, err
	}
	_, err = i.exec(forgetKeys, i.queue, after, last)
	return locks + keys, last, err
}

// findLast settles, and counts the first rows of a table, of which it returns the last one.
func findLast(i *jobWriter, statement string, args ...any) (n int, last string, err error) {
	err = i.query(func(r sqlrow.Row) error {
		var text sql.NullString
		err := r.Scan(&n, &text)
		last = text.String
		return err
	}, statement, append([]any{i.queue}, args...)...)
	return n, last, err
}

// forget removes a queue without jobs, locks and keys.
func forget(i queueRows) error {
	for _, statement := range forgetQueue {
		if _, err := i.db.Exec(i.ctx, statement, i.queue); err != nil {
			return err
		}
	}
	return nil
}
