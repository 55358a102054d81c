package sqljobs

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// A transaction that does many operations on a queue reads and writes for all of them at once: it
// reads ahead what the operations need, and writes their results at the end, or before it reads a
// row that they change. So a hundred pops need as many statements as two.

// jobWriter implements [jobs.Jobs] within a transaction.
type jobWriter struct {
	queueRows
	pending pending
	ahead   readAhead
}

func newJobWriter(ctx context.Context, db sqlrow.DB, d sqlrow.Dialect, queue string) *jobWriter {
	return &jobWriter{queueRows: queueRows{ctx, db, d, queue}, pending: pending{d: d, queue: queue}}
}

// readAhead are rows that were read before their operations ask for them.
type readAhead struct {
	// expected are the rows that the following operations will read.
	expected jobs.Expected
	// jobs are ready jobs by priority; locks and keys are by their ids, nil for missing ones.
	items map[int][]jobs.Job
	locks map[string]*jobs.Lock
	keys  map[string]*queueKey
}

// alone reports whether no other operation asks for ready jobs in this transaction: then one
// statement moves and gives them.
func (a *readAhead) alone() bool { return a.expected.Pops < 2 && a.items == nil }

// expect reads the locks and keys ahead that the following operations will ask for.
func (a *readAhead) expect(e jobs.Expected, rows queueRows) error {
	a.expected = e
	if len(e.Locks) > 1 {
		a.locks = make(map[string]*jobs.Lock)
		found, err := rows.readLocks(e.Locks)
		if err != nil {
			return err
		}
		for _, id := range e.Locks {
			a.locks[id] = nil
		}
		for n, l := range found {
			a.locks[l.ID] = &found[n]
		}
	}
	if len(e.Keys) > 1 {
		a.keys = make(map[string]*queueKey)
		found, err := rows.readKeys(e.Keys)
		if err != nil {
			return err
		}
		for _, key := range e.Keys {
			a.keys[key] = nil
		}
		for n, k := range found {
			a.keys[k.key] = &found[n]
		}
	}
	return nil
}

// pending are changes of a queue that are not written yet, in their order.
type pending struct {
	d     sqlrow.Dialect
	queue string

	added   []addedJob
	moves   []move
	made    []jobs.Lock
	noted   []queueKey
	dropped []int64  // numbers of locks whose jobs go
	ended   []string // ids of locks that go
}

type addedJob struct {
	jobs.Job
	due time.Time
}

// queueKey is a row of keys.
type queueKey struct {
	key, digest string
	items       int
	until       time.Time
}

// move is a change of ready jobs of one priority, from one position to another: a lock gets them,
// or they are removed.
type move struct {
	priority    int
	first, last int64
	lock        int64 // 0: they are removed
}

// Expect implements [jobs.Jobs].
func (i *jobWriter) Expect(e jobs.Expected) error { return i.ahead.expect(e, i.queueRows) }

// Add implements [jobs.Jobs].
func (i *jobWriter) Add(item jobs.Job, due time.Time) error {
	i.pending.added = append(i.pending.added, addedJob{item, due})
	return nil
}

// Take implements [jobs.Jobs].
func (i *jobWriter) Take(priority int, from int64, count int) ([]jobs.Job, error) {
	if i.ahead.alone() && !i.d.ReadFirst {
		return i.front(takeJobs, priority, from, count)
	}
	return i.move(priority, from, count, 0)
}

// Hold implements [jobs.Jobs].
func (i *jobWriter) Hold(priority int, from int64, count int, lock int64) ([]jobs.Job, error) {
	if i.ahead.alone() && !i.d.ReadFirst {
		return i.front(holdJobs, priority, from, count, lock)
	}
	return i.move(priority, from, count, lock)
}

// front flushes, and runs a statement on the first jobs of a priority.
func (i *jobWriter) front(statement string, priority int, from int64, count int, more ...any) ([]jobs.Job, error) {
	if err := i.flush(); err != nil {
		return nil, err
	}
	return i.items(statement, append([]any{i.queue, priority, from, count}, more...)...)
}

// move gives the first ready jobs of a priority, and notes their changes.
func (i *jobWriter) move(priority int, from int64, count int, lock int64) ([]jobs.Job, error) {
	there := i.ahead.items[priority]
	if len(there) < count {
		if err := i.flush(); err != nil {
			return nil, err
		}
		var err error
		if there, err = i.items(readyJobs, i.queue, priority, from, max(count, i.ahead.expected.Ready)); err != nil {
			return nil, err
		}
	}
	count = min(count, len(there))
	taken := slices.Clone(there[:count])
	if i.ahead.items == nil {
		i.ahead.items = make(map[int][]jobs.Job)
	}
	i.ahead.items[priority] = there[count:]
	i.ahead.expected.Ready -= count
	if count == 0 {
		return nil, nil
	}
	i.pending.moves = append(i.pending.moves, move{priority, taken[0].Position, taken[count-1].Position, lock})
	if lock != 0 {
		for n := range taken {
			taken[n].Attempts++
		}
	}
	return taken, nil
}

// Drop implements [jobs.Jobs].
func (i *jobWriter) Drop(lock jobs.Lock) (int, error) {
	i.pending.dropped = append(i.pending.dropped, lock.Number)
	return lock.Items, nil
}

// AddLock implements [jobs.Jobs].
func (i *jobWriter) AddLock(l jobs.Lock) error {
	i.pending.made = append(i.pending.made, l)
	if i.ahead.locks != nil {
		i.ahead.locks[l.ID] = &l
	}
	return nil
}

// FindLock implements [jobs.Jobs].
func (i *jobWriter) FindLock(id string) (*jobs.Lock, error) {
	if l, read := i.ahead.locks[id]; read {
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

// RemoveLock implements [jobs.Jobs].
func (i *jobWriter) RemoveLock(id string) error {
	i.pending.ended = append(i.pending.ended, id)
	if i.ahead.locks != nil {
		i.ahead.locks[id] = nil
	}
	return nil
}

// FindKey implements [jobs.Jobs].
func (i *jobWriter) FindKey(key string, now time.Time) (digest string, count int, found bool, err error) {
	k, read := i.ahead.keys[key]
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

// AddKey implements [jobs.Jobs].
func (i *jobWriter) AddKey(key, digest string, count int, until time.Time) error {
	k := queueKey{key, digest, count, until}
	if i.ahead.keys != nil {
		i.ahead.keys[key] = &k
	}
	i.pending.noted = append(i.pending.noted, k)
	return nil
}

// settled writes pending changes before something else is read or written. Rows that were read
// ahead may be wrong after that.
func (i *jobWriter) settled() error {
	i.ahead = readAhead{}
	return i.flush()
}

// query settles, and runs a query.
func (i *jobWriter) query(scan func(sqlrow.Row) error, statement string, args ...any) error {
	if err := i.settled(); err != nil {
		return err
	}
	return i.db.Query(i.ctx, scan, statement, args...)
}

func (i *jobWriter) exec(statement string, args ...any) (int64, error) {
	if err := i.settled(); err != nil {
		return 0, err
	}
	return i.db.Exec(i.ctx, statement, args...)
}

// addAtOnce bounds the rows of a statement, addBytes their bytes.
const (
	addAtOnce = 200
	addBytes  = 1 << 20
)

// flush writes the pending changes.
func (i *jobWriter) flush() error { return i.run(i.pending.writes()...) }

// write is a statement that changes so many rows; fewer than 0: any number.
type write struct {
	text string
	args []any
	rows int
}

// run runs statements that write.
func (i queueRows) run(writes ...write) error {
	if len(writes) == 0 {
		return nil
	}
	statements := make([]sqlrow.Statement, len(writes))
	for n, w := range writes {
		statements[n] = sqlrow.Statement{Text: w.text, Args: w.args}
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

// execAll runs statements in their order, sent at once where that is possible.
func execAll(ctx context.Context, db sqlrow.DB, statements []sqlrow.Statement) (rows []int64, err error) {
	if t, ok := db.(sqlrow.Together); ok && len(statements) > 1 {
		return t.ExecAll(ctx, statements)
	}
	for _, s := range statements {
		n, err := db.Exec(ctx, s.Text, s.Args...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, n)
	}
	return rows, nil
}

// writes are the statements that write the pending changes, in their order.
func (p *pending) writes() (all []write) {
	for len(p.added) > 0 {
		statement, args, n := p.insertion(p.added)
		all = append(all, write{statement, args, n})
		p.added = p.added[n:]
	}
	all = append(all, p.moving()...)
	for len(p.made) > 0 {
		n := roundDown(min(addAtOnce, len(p.made)))
		statement, args := p.lockInsertion(p.made[:n])
		all = append(all, write{statement, args, n})
		p.made = p.made[n:]
	}
	for len(p.noted) > 0 {
		n := roundDown(min(addAtOnce, len(p.noted)))
		statement, args := p.keyInsertion(p.noted[:n])
		all = append(all, write{statement, args, n})
		p.noted = p.noted[n:]
	}
	if len(p.dropped) > 0 {
		statement, args := listed(p.d, p.queue, dropJobs, p.dropped)
		all = append(all, write{statement, args, -1})
	}
	if len(p.ended) > 0 {
		statement, args := listed(p.d, p.queue, removeLocks, p.ended)
		all = append(all, write{statement, args, -1})
	}
	p.dropped, p.ended = nil, nil
	return all
}

// listed is a statement about the queue that ends with a list of values. The last one is repeated,
// so that there are few different statements and databases need not plan each anew.
func listed[T any](d sqlrow.Dialect, queue, statement string, values []T) (string, []any) {
	b := sqlrow.Builder{Dialect: d}
	b.Arg(queue)
	var places []string
	for n := range roundUp(len(values)) {
		places = append(places, b.Arg(values[min(n, len(values)-1)]))
	}
	return statement + " IN (" + strings.Join(places, ", ") + ")", b.Args
}

// roundUp is the next power of two.
func roundUp(n int) int { return 1 << bits.Len(uint(n-1)) }

// roundDown is the last power of two.
func roundDown(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// moving hands jobs to locks, and then removes the remaining ones between the first and the last
// of a priority.
func (p *pending) moving() (all []write) {
	held := make(map[int][]move)
	taken := make(map[int]move)
	for _, m := range p.moves {
		if m.lock != 0 {
			held[m.priority] = append(held[m.priority], m)
			continue
		}
		if before, ok := taken[m.priority]; ok {
			m.first = before.first
		}
		taken[m.priority] = m
	}
	p.moves = nil
	for _, priority := range slices.Sorted(maps.Keys(held)) {
		statement, args := p.holding(held[priority])
		all = append(all, write{statement, args, -1})
	}
	for _, priority := range slices.Sorted(maps.Keys(taken)) {
		m := taken[priority]
		all = append(all, write{takeRange, []any{p.queue, m.priority, m.first, m.last}, -1})
	}
	return all
}

// holding is the statement that hands jobs of one priority to locks, in their order. Ranges that
// have nothing in them fill it up.
func (p *pending) holding(moves []move) (statement string, args []any) {
	b := sqlrow.Builder{Dialect: p.d}
	b.Arg(p.queue)
	b.Arg(moves[0].priority)
	b.Arg(moves[0].first)
	b.Arg(moves[len(moves)-1].last)
	var rows []string
	for n := range roundUp(len(moves)) {
		m := move{first: 1}
		if n < len(moves) {
			m = moves[n]
		}
		rows = append(rows, fmt.Sprintf(
			"SELECT CAST(%s AS INT8) AS low, CAST(%s AS INT8) AS high, CAST(%s AS INT8) AS lock", b.Arg(m.first),
			b.Arg(m.last), b.Arg(m.lock)))
	}
	return fmt.Sprintf(holdRanges, strings.Join(rows, " UNION ALL ")), b.Args
}

// insertion is the statement that adds the first jobs of a list, and how many: a power of two, so
// that databases know the statement again.
func (p *pending) insertion(list []addedJob) (statement string, args []any, n int) {
	bytes := 0
	for n < min(addAtOnce, len(list)) && (n == 0 || bytes+len(list[n].Data) <= addBytes) {
		bytes += len(list[n].Data)
		n++
	}
	n = roundDown(n)
	b := sqlrow.Builder{Dialect: p.d}
	var rows []string
	name := b.Arg(p.queue)
	for _, a := range list[:n] {
		place, rank := jobs.PlaceReady, int64(a.Priority)
		if !a.due.IsZero() {
			place, rank = jobs.PlaceDelayed, a.due.UnixMicro()
		}
		rows = append(rows, fmt.Sprintf("(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", name, b.Arg(int64(place)),
			b.Arg(rank), b.Arg(a.Position), b.Arg(a.ID), b.Arg(a.Priority), b.Arg(len(a.Data)),
			b.TimeArg(a.PushedAt), b.TimeArg(a.ReadyAt), b.Arg(sqlrow.NullText(a.Trace)), b.Arg([]byte(a.Data))))
	}
	return addJobs + strings.Join(rows, ", "), b.Args, n
}

func (p *pending) lockInsertion(list []jobs.Lock) (statement string, args []any) {
	b := sqlrow.Builder{Dialect: p.d}
	name := b.Arg(p.queue)
	var rows []string
	for _, l := range list {
		rows = append(rows, fmt.Sprintf("(%s, %s, %s, %s, %s, %s, FALSE)", name, b.Arg(l.ID), b.Arg(l.Number),
			b.Arg(l.Items), b.TimeArg(l.CreatedAt), b.TimeArg(l.ExpiresAt)))
	}
	return addLocks + strings.Join(rows, ", "), b.Args
}

func (p *pending) keyInsertion(list []queueKey) (statement string, args []any) {
	b := sqlrow.Builder{Dialect: p.d}
	name := b.Arg(p.queue)
	var rows []string
	for _, k := range list {
		rows = append(rows, fmt.Sprintf("(%s, %s, %s, %s, %s)", name, b.Arg(k.key), b.Arg(k.digest), b.Arg(k.items),
			b.TimeArg(k.until)))
	}
	return fmt.Sprintf(addQueueKeys, strings.Join(rows, ", ")), b.Args
}
