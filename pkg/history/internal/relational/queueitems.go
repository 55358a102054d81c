package relational

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

const (
	// itemColumns are what is read of an item.
	itemColumns = "id, priority, position, attempts, pushed_at, ready_at, trace, item"
	// front is the condition that a row is one of the first $4 ready items of a priority: as the
	// transaction holds the queue, nobody can come between.
	front = `queue = $1 AND place = 0 AND rank = $2 AND position >= $3 AND position <= (SELECT max(position) FROM (
		SELECT position FROM rondo_queue_items WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4) AS first)`

	sizesOfItems = "SELECT size FROM rondo_queue_items WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= " +
		"$3 ORDER BY position LIMIT $4"
	takeItems = "DELETE FROM rondo_queue_items WHERE " + front + " RETURNING " + itemColumns
	holdItems = "UPDATE rondo_queue_items SET place = 2, rank = $5, attempts = attempts + 1 WHERE " + front +
		" RETURNING " + itemColumns
	addItems = "INSERT INTO rondo_queue_items (queue, place, rank, position, id, priority, size, pushed_at, " +
		"ready_at, trace, item) VALUES "
	readyItems = "SELECT " + itemColumns +
		" FROM rondo_queue_items WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 " +
		"ORDER BY position LIMIT $4"
	takeRange = "DELETE FROM rondo_queue_items WHERE queue = $1 AND place = 0 AND rank = $2 AND " +
		"position BETWEEN $3 AND $4"
	// The range of all keeps databases from walking over all ready items, whatever they know of the
	// table.
	holdRanges = `UPDATE rondo_queue_items SET place = 2, rank = r.lock, attempts = attempts + 1 FROM (%s) AS r
		WHERE queue = $1 AND place = 0 AND rank = $2 AND position BETWEEN $3 AND $4 AND position BETWEEN r.low AND r.high`
	dropItems  = "DELETE FROM rondo_queue_items WHERE queue = $1 AND place = 2 AND rank"
	moveItems  = "UPDATE rondo_queue_items SET rank = %d WHERE queue = $1 AND place = 2 AND rank = %d AND id"
	oldestItem = "SELECT ready_at FROM rondo_queue_items WHERE queue = $1 AND place = 0 AND rank = $2 AND position " +
		">= $3 ORDER BY position LIMIT 1"
	// Those that were handed out $5 times are dead.
	giveBackItems = `UPDATE rondo_queue_items SET
		place = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN 3 ELSE CAST($3 AS INT8) END,
		rank = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($6 AS INT8) WHEN CAST($3 AS INT8) = 1 THEN CAST($4 AS INT8) ELSE priority END,
		reason = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($7 AS TEXT) ELSE reason END
		WHERE queue = $1 AND place = 2 AND rank = $2 RETURNING place, priority, position`
	// The comparison is true of all. It has PostgreSQL follow the key, where it would read all
	// delayed items and sort them as long as it knows nothing of the table.
	dueItems = `SELECT id, rank, position, priority, attempts FROM rondo_queue_items
		WHERE queue = $1 AND place = 1 AND (rank, position) > (-1, -1) ORDER BY rank, position LIMIT $2`
	readyItem = `UPDATE rondo_queue_items SET place = 0, rank = priority, position = $4, ready_at = CASE WHEN attempts = 0 THEN $5 ELSE ready_at END
		WHERE queue = $1 AND place = 1 AND rank = $2 AND position = $3`
	deadItems = "SELECT rank, reason, " + itemColumns + ` FROM rondo_queue_items
		WHERE queue = $1 AND place = 3 AND (rank, position) > ($2, $3) ORDER BY rank, position LIMIT $4`
	deadPlaces = "SELECT rank, position, priority FROM rondo_queue_items WHERE queue = $1 AND place = 3 AND (rank, " +
		"position) > (-1, -1) ORDER BY rank, position LIMIT $2"
	deadItem = "SELECT rank, position, priority FROM rondo_queue_items WHERE queue = $1 AND place = 3 AND rank = " +
		"$2 AND position = $3"
	reviveItem = `UPDATE rondo_queue_items SET place = 0, rank = priority, position = $4, attempts = 0, reason = NULL, ready_at = $5
		WHERE queue = $1 AND place = 3 AND rank = $2 AND position = $3`
	removeItems = `DELETE FROM rondo_queue_items WHERE queue = $1 AND (place, rank, position) IN (
		SELECT place, rank, position FROM rondo_queue_items WHERE queue = $1 AND place >= $2 ORDER BY place, rank, position LIMIT $3) RETURNING place, priority`

	lockColumns = "lock_id, number, items, created_at, expires_at, returned"
	addLocks    = "INSERT INTO rondo_queue_locks (queue, " + lockColumns + ") VALUES "
	findLocks   = "SELECT " + lockColumns + " FROM rondo_queue_locks WHERE queue = $1 AND lock_id"
	changeLock  = "UPDATE rondo_queue_locks SET expires_at = $3, returned = $4 WHERE queue = $1 AND lock_id = $2"
	removeLocks = "DELETE FROM rondo_queue_locks WHERE queue = $1 AND lock_id"
	activeLocks = "SELECT " + lockColumns +
		" FROM rondo_queue_locks WHERE queue = $1 AND returned = FALSE ORDER BY expires_at LIMIT $2"
	oldLocks = "SELECT " + lockColumns +
		" FROM rondo_queue_locks WHERE queue = $1 AND returned = TRUE ORDER BY expires_at LIMIT $2"
	findQueueKeys = "SELECT key, digest, items, expires_at FROM rondo_queue_keys WHERE queue = $1 AND key"
	addQueueKeys  = `INSERT INTO rondo_queue_keys (queue, key, digest, items, expires_at) VALUES %s
		ON CONFLICT (queue, key) DO UPDATE SET digest = excluded.digest, items = excluded.items, expires_at = excluded.expires_at`
	oldQueueKeys = "SELECT key, expires_at FROM rondo_queue_keys WHERE queue = $1 ORDER BY expires_at LIMIT $2"
	dropQueueKey = "DELETE FROM rondo_queue_keys WHERE queue = $1 AND key = $2"
)

// forgetQueue are the statements that remove what is left of a queue without items.
var forgetQueue = []string{
	"DELETE FROM rondo_queue_locks WHERE queue = $1",
	"DELETE FROM rondo_queue_keys WHERE queue = $1",
	"DELETE FROM rondo_queues WHERE queue = $1",
}

// ---- Items.

// itemRow is a row of items.
type itemRow struct {
	jobs.Item
	pushed, ready Moment
	trace         sql.NullString
	data          []byte
}

func (r *itemRow) targets() []any {
	return []any{&r.ID, &r.Priority, &r.Position, &r.Attempts, &r.pushed, &r.ready, &r.trace, &r.data}
}

func (r *itemRow) item() jobs.Item {
	r.PushedAt, r.ReadyAt, r.Trace, r.Data = r.pushed.Time, r.ready.Time, r.trace.String, r.data
	return r.Item
}

// Sizes implements [jobs.Items].
func (i *queueItems) Sizes(priority int, from int64, limit int) (sizes []int, err error) {
	err = i.query(func(r Row) error {
		var size int
		err := r.Scan(&size)
		sizes = append(sizes, size)
		return err
	}, sizesOfItems, i.queue, priority, from, limit)
	return sizes, err
}

// items reads items, in the order of their positions.
func (i *queueItems) items(statement string, args ...any) (items []jobs.Item, err error) {
	err = i.db.Query(i.ctx, func(r Row) error {
		var x itemRow
		err := r.Scan(x.targets()...)
		items = append(items, x.item())
		return err
	}, statement, args...)
	slices.SortFunc(items, func(a, b jobs.Item) int { return cmp.Compare(a.Position, b.Position) })
	return items, err
}

// Move implements [jobs.Items].
func (i *queueItems) Move(ids []int64, from, to int64) (int, error) {
	statement, args := listed(i, fmt.Sprintf(moveItems, to, from), ids)
	n, err := i.exec(statement, args...)
	return int(n), err
}

// GiveBack implements [jobs.Items].
func (i *queueItems) GiveBack(lock int64, due, now time.Time, maxAttempts int,
	reason string) (back []jobs.Back, err error) {
	place, at := jobs.PlaceReady, int64(0)
	if !due.IsZero() {
		place, at = jobs.PlaceDelayed, due.UnixMicro()
	}
	err = i.query(func(r Row) error {
		var b jobs.Back
		var place jobs.Place
		err := r.Scan(&place, &b.Priority, &b.Position)
		b.Dead = place == jobs.PlaceDead
		back = append(back, b)
		return err
	}, giveBackItems, i.queue, lock, int64(place), at, int64(maxAttempts), now.UnixMicro(), text(reason))
	return back, err
}

// Due implements [jobs.Items].
func (i *queueItems) Due(now time.Time, limit int) (due []jobs.Delayed, next time.Time, err error) {
	err = i.query(func(r Row) error {
		var d jobs.Delayed
		var at int64
		err := r.Scan(&d.ID, &at, &d.Position, &d.Priority, &d.Attempts)
		d.Due = time.UnixMicro(at).UTC()
		if len(due) == limit || d.Due.After(now) {
			if next.IsZero() {
				next = d.Due
			}
		} else {
			due = append(due, d)
		}
		return err
	}, dueItems, i.queue, limit+1)
	return due, next, err
}

// Ready implements [jobs.Items].
func (i *queueItems) Ready(item jobs.Delayed, position int64, since time.Time) error {
	return i.one(readyItem, i.queue, item.Due.UnixMicro(), item.Position, position, i.d.Time(since))
}

// one runs a statement that changes one row.
func (i *queueItems) one(statement string, args ...any) error {
	n, err := i.exec(statement, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("queue %q: %d rows were changed where there should be one", i.queue, n)
	}
	return err
}

// Dead implements [jobs.Items].
func (i *queueItems) Dead(ids []jobs.DeadID, limit int) (list []jobs.Dead, err error) {
	if len(ids) == 0 {
		return i.deadPlaces(deadPlaces, limit)
	}
	seen := make(map[jobs.DeadID]bool)
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		found, err := i.deadPlaces(deadItem, id.At, id.Position)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// deadPlaces reads where dead items are, and nothing else of them.
func (i *queueItems) deadPlaces(statement string, args ...any) (list []jobs.Dead, err error) {
	err = i.query(func(r Row) error {
		var d jobs.Dead
		var at int64
		err := r.Scan(&at, &d.Position, &d.Priority)
		d.DiedAt = time.UnixMicro(at).UTC()
		list = append(list, d)
		return err
	}, statement, append([]any{i.queue}, args...)...)
	return list, err
}

func (i *queueItems) deadAfter(after jobs.DeadID, limit int) ([]jobs.Dead, error) {
	return i.dead(deadItems, after.At, after.Position, limit)
}

func (i *queueItems) dead(statement string, args ...any) (list []jobs.Dead, err error) {
	err = i.query(func(r Row) error {
		var x itemRow
		var at int64
		var reason sql.NullString
		err := r.Scan(append([]any{&at, &reason}, x.targets()...)...)
		list = append(list, jobs.Dead{Item: x.item(), DiedAt: time.UnixMicro(at).UTC(), Reason: reason.String})
		return err
	}, statement, append([]any{i.queue}, args...)...)
	return list, err
}

// Revive implements [jobs.Items].
func (i *queueItems) Revive(item jobs.Dead, position int64, now time.Time) error {
	id := item.DeadID()
	return i.one(reviveItem, i.queue, id.At, id.Position, position, i.d.Time(now))
}

// Remove implements [jobs.Items].
func (i *queueItems) Remove(dead bool, limit int) (removed []jobs.Removed, err error) {
	least := jobs.PlaceReady
	if dead {
		least = jobs.PlaceDead
	}
	err = i.query(func(r Row) error {
		var x jobs.Removed
		err := r.Scan(&x.Place, &x.Priority)
		removed = append(removed, x)
		return err
	}, removeItems, i.queue, int64(least), limit)
	return removed, err
}

// ---- Locks.

// readLocks reads locks by their ids.
func (i *queueItems) readLocks(ids []string) ([]jobs.Lock, error) {
	keys := make([]string, len(ids))
	for n, id := range ids {
		keys[n] = Key(id)
	}
	statement, args := listed(i, findLocks, keys)
	return i.scanLocks(statement, args...)
}

func (i *queueItems) scanLocks(statement string, args ...any) (list []jobs.Lock, err error) {
	err = i.db.Query(i.ctx, func(r Row) error {
		var l jobs.Lock
		var created, expires Moment
		err := r.Scan(&l.ID, &l.Number, &l.Items, &created, &expires, &l.Returned)
		l.CreatedAt, l.ExpiresAt = created.Time, expires.Time
		list = append(list, l)
		return err
	}, statement, args...)
	return list, err
}

// first settles, and reads the first locks of a list.
func (i *queueItems) first(statement string, limit int) ([]jobs.Lock, error) {
	if err := i.settled(); err != nil {
		return nil, err
	}
	return i.scanLocks(statement, i.queue, limit)
}

// ChangeLock implements [jobs.Items].
func (i *queueItems) ChangeLock(l jobs.Lock) error {
	return i.one(changeLock, i.queue, l.ID, i.d.Time(l.ExpiresAt), l.Returned)
}

// Expired implements [jobs.Items].
func (i *queueItems) Expired(now time.Time, limit int) (expired []jobs.Lock, next time.Time, err error) {
	all, err := i.first(activeLocks, limit+1)
	for n, l := range all {
		if n == limit || !l.Expired(now) {
			return all[:n], l.ExpiresAt, err
		}
	}
	return all, time.Time{}, err
}

// ForgetLocks implements [jobs.Items].
func (i *queueItems) ForgetLocks(before time.Time, limit int) (next time.Time, err error) {
	all, err := i.first(oldLocks, limit+1)
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
func (i *queueItems) readKeys(keys []string) (list []queueKey, err error) {
	texts := make([]string, len(keys))
	for n, k := range keys {
		texts[n] = text(k)
	}
	statement, args := listed(i, findQueueKeys, texts)
	err = i.db.Query(i.ctx, func(r Row) error {
		var k queueKey
		var until Moment
		err := r.Scan(&k.key, &k.digest, &k.items, &until)
		k.until = until.Time
		list = append(list, k)
		return err
	}, statement, args...)
	return list, err
}

// ForgetKeys implements [jobs.Items].
func (i *queueItems) ForgetKeys(now time.Time, limit int) (next time.Time, err error) {
	var old []string
	err = i.query(func(r Row) error {
		var key string
		var at Moment
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

// forgetQueue removes what is left of a queue.
func (i *queueItems) forgetQueue() error {
	for _, statement := range forgetQueue {
		if _, err := i.exec(statement, i.queue); err != nil {
			return err
		}
	}
	return nil
}

// QueueStatements lists the statements that read and change queues, for a look at how databases
// carry them out.
func QueueStatements(d Dialect) []string {
	items := &queueItems{d: d}
	addItem, _, _ := items.insertion([]addedItem{{}})
	addLock, _ := items.lockInsertion([]jobs.Lock{{}})
	addKey, _ := items.keyInsertion([]queueKey{{}})
	hold, _ := items.holding(make([]move, 2))
	of := func(statement string) string {
		text, _ := listed(items, statement, []string{"", ""})
		return text
	}
	return slices.Concat([]string{
		fmt.Sprintf(readQueue, "") + d.Lock, newQueue, dropNewQueue, saveQueue,
		fmt.Sprintf(readQueue, ", clock_timestamp()"),
		fmt.Sprintf(listQueues, "") + pageOfQueues, fmt.Sprintf(listQueues, "") + startingQueues,
		addItem, oldestItem, sizesOfItems, readyItems, takeItems, takeRange, holdItems, hold, of(dropItems),
		of(fmt.Sprintf(moveItems, 2, 1)), giveBackItems, dueItems, readyItem, deadItems, deadPlaces, deadItem,
		reviveItem, removeItems,
		addLock, of(findLocks), changeLock, of(removeLocks), activeLocks, oldLocks, of(findQueueKeys), addKey,
		oldQueueKeys, dropQueueKey,
	}, forgetQueue)
}
