package relational

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// A transaction that does many operations on a queue reads and writes for all of them at once: what
// somebody will ask for is read before, and what was decided is written at the end, or before
// something is read that it has to do with. So a hundred pops need as many statements as two.

// queueItems implements [jobs.Items] within a transaction.
type queueItems struct {
	ctx   context.Context
	db    DB
	d     Dialect
	queue string

	// expected is what operations that follow will ask for.
	expected jobs.Expected
	// What was read ahead: ready items by priority, locks and keys by their ids, nil for those that
	// are not there.
	ahead map[int][]jobs.Item
	locks map[string]*jobs.Lock
	keys  map[string]*queueKey

	// What is not written yet, in the order in which it will be.
	added   []addedItem
	moves   []move
	made    []jobs.Lock
	noted   []queueKey
	dropped []int64  // numbers of locks whose items go
	ended   []string // ids of locks that go
}

type addedItem struct {
	jobs.Item
	due time.Time
}

// queueKey is a row of keys.
type queueKey struct {
	key, digest string
	items       int
	until       time.Time
}

// move is what becomes of ready items of one priority, from one position to another: a lock has
// them, or nobody.
type move struct {
	priority    int
	first, last int64
	lock        int64 // 0: they are removed
}

// Expect implements [jobs.Items].
func (i *queueItems) Expect(e jobs.Expected) error {
	i.expected = e
	if len(e.Locks) > 1 {
		i.locks = make(map[string]*jobs.Lock)
		found, err := i.readLocks(e.Locks)
		if err != nil {
			return err
		}
		for _, id := range e.Locks {
			i.locks[id] = nil
		}
		for n, l := range found {
			i.locks[l.ID] = &found[n]
		}
	}
	if len(e.Keys) > 1 {
		i.keys = make(map[string]*queueKey)
		found, err := i.readKeys(e.Keys)
		if err != nil {
			return err
		}
		for _, key := range e.Keys {
			i.keys[key] = nil
		}
		for n, k := range found {
			i.keys[k.key] = &found[n]
		}
	}
	return nil
}

// Add implements [jobs.Items].
func (i *queueItems) Add(item jobs.Item, due time.Time) error {
	i.added = append(i.added, addedItem{item, due})
	return nil
}

// Take implements [jobs.Items].
func (i *queueItems) Take(priority int, from int64, count int) ([]jobs.Item, error) {
	if i.alone() {
		return i.front(takeItems, priority, from, count)
	}
	return i.move(priority, from, count, 0)
}

// Hold implements [jobs.Items].
func (i *queueItems) Hold(priority int, from int64, count int, lock int64) ([]jobs.Item, error) {
	if i.alone() {
		return i.front(holdItems, priority, from, count, lock)
	}
	return i.move(priority, from, count, lock)
}

// alone reports whether nobody else asks for ready items in this transaction: then one statement
// moves and gives them.
func (i *queueItems) alone() bool { return i.expected.Pops < 2 && i.ahead == nil }

// front flushes, and runs a statement on the first items of a priority.
func (i *queueItems) front(statement string, priority int, from int64, count int, more ...any) ([]jobs.Item, error) {
	if err := i.flush(); err != nil {
		return nil, err
	}
	return i.items(statement, append([]any{i.queue, priority, from, count}, more...)...)
}

// move gives the first ready items of a priority, and notes what becomes of them.
func (i *queueItems) move(priority int, from int64, count int, lock int64) ([]jobs.Item, error) {
	there := i.ahead[priority]
	if len(there) < count {
		if err := i.flush(); err != nil {
			return nil, err
		}
		var err error
		if there, err = i.items(readyItems, i.queue, priority, from, max(count, i.expected.Ready)); err != nil {
			return nil, err
		}
	}
	count = min(count, len(there))
	taken := slices.Clone(there[:count])
	if i.ahead == nil {
		i.ahead = make(map[int][]jobs.Item)
	}
	i.ahead[priority] = there[count:]
	i.expected.Ready -= count
	if count == 0 {
		return nil, nil
	}
	i.moves = append(i.moves, move{priority, taken[0].Position, taken[count-1].Position, lock})
	if lock != 0 {
		for n := range taken {
			taken[n].Attempts++
		}
	}
	return taken, nil
}

// Drop implements [jobs.Items].
func (i *queueItems) Drop(lock jobs.Lock) (int, error) {
	i.dropped = append(i.dropped, lock.Number)
	return lock.Items, nil
}

// AddLock implements [jobs.Items].
func (i *queueItems) AddLock(l jobs.Lock) error {
	i.made = append(i.made, l)
	if i.locks != nil {
		i.locks[l.ID] = &l
	}
	return nil
}

// FindLock implements [jobs.Items].
func (i *queueItems) FindLock(id string) (*jobs.Lock, error) {
	if l, read := i.locks[id]; read {
		return l, nil
	}
	if err := i.flush(); err != nil {
		return nil, err
	}
	found, err := i.readLocks([]string{id})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// RemoveLock implements [jobs.Items].
func (i *queueItems) RemoveLock(id string) error {
	i.ended = append(i.ended, id)
	if i.locks != nil {
		i.locks[id] = nil
	}
	return nil
}

// FindKey implements [jobs.Items].
func (i *queueItems) FindKey(key string, now time.Time) (digest string, count int, found bool, err error) {
	k, read := i.keys[key]
	if !read {
		if err := i.flush(); err != nil {
			return "", 0, false, err
		}
		all, err := i.readKeys([]string{key})
		if err != nil || len(all) == 0 {
			return "", 0, false, err
		}
		k = &all[0]
	}
	if k == nil || !k.until.After(now) {
		return "", 0, false, nil
	}
	return k.digest, k.items, true, nil
}

// AddKey implements [jobs.Items].
func (i *queueItems) AddKey(key, digest string, count int, until time.Time) error {
	k := queueKey{key, digest, count, until}
	if i.keys != nil {
		i.keys[key] = &k
	}
	i.noted = append(i.noted, k)
	return nil
}

// settled writes what is not written yet, before something else is read or written. What was read
// ahead may be wrong after that.
func (i *queueItems) settled() error {
	i.ahead, i.locks, i.keys, i.expected = nil, nil, nil, jobs.Expected{}
	return i.flush()
}

// query settles, and runs a query.
func (i *queueItems) query(scan func(Row) error, statement string, args ...any) error {
	if err := i.settled(); err != nil {
		return err
	}
	return i.db.Query(i.ctx, scan, statement, args...)
}

func (i *queueItems) exec(statement string, args ...any) (int64, error) {
	if err := i.settled(); err != nil {
		return 0, err
	}
	return i.db.Exec(i.ctx, statement, args...)
}

// addAtOnce bounds the rows of a statement, addBytes what it carries.
const (
	addAtOnce = 200
	addBytes  = 1 << 20
)

// flush writes what is not written yet.
func (i *queueItems) flush() error { return i.run(i.writes()...) }

// write is a statement that changes so many rows; fewer than 0: any number.
type write struct {
	Statement
	rows int
}

// run runs statements that write.
func (i *queueItems) run(writes ...write) error {
	if len(writes) == 0 {
		return nil
	}
	statements := make([]Statement, len(writes))
	for n, w := range writes {
		statements[n] = w.Statement
	}
	rows, err := execAll(i.ctx, i.db, statements)
	if err != nil {
		return err
	}
	for n, w := range writes {
		if w.rows >= 0 && rows[n] != int64(w.rows) {
			return fmt.Errorf("queue %q: %d rows were changed where there should be %d", i.queue, rows[n], w.rows)
		}
	}
	return nil
}

// writes are the statements that write what is not written yet, in the order in which they must
// come.
func (i *queueItems) writes() (all []write) {
	for len(i.added) > 0 {
		statement, args, n := i.insertion(i.added)
		all = append(all, write{Statement{statement, args}, n})
		i.added = i.added[n:]
	}
	all = append(all, i.moving()...)
	for len(i.made) > 0 {
		n := roundDown(min(addAtOnce, len(i.made)))
		statement, args := i.lockInsertion(i.made[:n])
		all = append(all, write{Statement{statement, args}, n})
		i.made = i.made[n:]
	}
	for len(i.noted) > 0 {
		n := roundDown(min(addAtOnce, len(i.noted)))
		statement, args := i.keyInsertion(i.noted[:n])
		all = append(all, write{Statement{statement, args}, n})
		i.noted = i.noted[n:]
	}
	if len(i.dropped) > 0 {
		statement, args := listed(i, dropItems, i.dropped)
		all = append(all, write{Statement{statement, args}, -1})
	}
	if len(i.ended) > 0 {
		statement, args := listed(i, removeLocks, i.ended)
		all = append(all, write{Statement{statement, args}, -1})
	}
	i.dropped, i.ended = nil, nil
	return all
}

// listed is a statement about the queue that ends with a list of values. The last one is repeated,
// so that there are few different statements and databases need not plan each anew.
func listed[T any](i *queueItems, statement string, values []T) (string, []any) {
	b := builder{Dialect: i.d}
	b.arg(i.queue)
	var places []string
	for n := range roundUp(len(values)) {
		places = append(places, b.arg(values[min(n, len(values)-1)]))
	}
	return statement + " IN (" + strings.Join(places, ", ") + ")", b.args
}

// roundUp is the next power of two.
func roundUp(n int) int { return 1 << bits.Len(uint(n-1)) }

// roundDown is the last power of two.
func roundDown(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// moving hands items to locks, and then removes those that nobody has: what is left between the
// first and the last of a priority.
func (i *queueItems) moving() (all []write) {
	held := make(map[int][]move)
	taken := make(map[int]move)
	for _, m := range i.moves {
		if m.lock != 0 {
			held[m.priority] = append(held[m.priority], m)
			continue
		}
		if before, ok := taken[m.priority]; ok {
			m.first = before.first
		}
		taken[m.priority] = m
	}
	i.moves = nil
	for _, priority := range slices.Sorted(maps.Keys(held)) {
		statement, args := i.holding(held[priority])
		all = append(all, write{Statement{statement, args}, -1})
	}
	for _, priority := range slices.Sorted(maps.Keys(taken)) {
		m := taken[priority]
		all = append(all, write{Statement{takeRange, []any{i.queue, m.priority, m.first, m.last}}, -1})
	}
	return all
}

// holding is the statement that hands items of one priority to locks, in their order. Ranges that
// have nothing in them fill it up.
func (i *queueItems) holding(moves []move) (statement string, args []any) {
	b := builder{Dialect: i.d}
	b.arg(i.queue)
	b.arg(moves[0].priority)
	b.arg(moves[0].first)
	b.arg(moves[len(moves)-1].last)
	var rows []string
	for n := range roundUp(len(moves)) {
		m := move{first: 1}
		if n < len(moves) {
			m = moves[n]
		}
		rows = append(rows, fmt.Sprintf(
			"SELECT CAST(%s AS INT8) AS low, CAST(%s AS INT8) AS high, CAST(%s AS INT8) AS lock", b.arg(m.first),
			b.arg(m.last), b.arg(m.lock)))
	}
	return fmt.Sprintf(holdRanges, strings.Join(rows, " UNION ALL ")), b.args
}

// insertion is the statement that adds the first items of a list, and how many: a power of two, so
// that databases know the statement again.
func (i *queueItems) insertion(list []addedItem) (statement string, args []any, n int) {
	bytes := 0
	for n < min(addAtOnce, len(list)) && (n == 0 || bytes+len(list[n].Data) <= addBytes) {
		bytes += len(list[n].Data)
		n++
	}
	n = roundDown(n)
	b := builder{Dialect: i.d}
	var rows []string
	name := b.arg(i.queue)
	for _, a := range list[:n] {
		place, rank := jobs.PlaceReady, int64(a.Priority)
		if !a.due.IsZero() {
			place, rank = jobs.PlaceDelayed, a.due.UnixMicro()
		}
		rows = append(rows, fmt.Sprintf("(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", name, b.arg(int64(place)),
			b.arg(rank), b.arg(a.Position), b.arg(a.ID), b.arg(a.Priority), b.arg(len(a.Data)),
			b.time(a.PushedAt), b.time(a.ReadyAt), b.arg(nullText(a.Trace)), b.arg([]byte(a.Data))))
	}
	return addItems + strings.Join(rows, ", "), b.args, n
}

func (i *queueItems) lockInsertion(list []jobs.Lock) (statement string, args []any) {
	b := builder{Dialect: i.d}
	name := b.arg(i.queue)
	var rows []string
	for _, l := range list {
		rows = append(rows, fmt.Sprintf("(%s, %s, %s, %s, %s, %s, FALSE)", name, b.arg(l.ID), b.arg(l.Number),
			b.arg(l.Items), b.time(l.CreatedAt), b.time(l.ExpiresAt)))
	}
	return addLocks + strings.Join(rows, ", "), b.args
}

func (i *queueItems) keyInsertion(list []queueKey) (statement string, args []any) {
	b := builder{Dialect: i.d}
	name := b.arg(i.queue)
	var rows []string
	for _, k := range list {
		rows = append(rows, fmt.Sprintf("(%s, %s, %s, %s, %s)", name, b.arg(k.key), b.arg(k.digest), b.arg(k.items),
			b.time(k.until)))
	}
	return fmt.Sprintf(addQueueKeys, strings.Join(rows, ", ")), b.args
}
