package relational

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/queue"
)

// Queues implements [queue.Store] with plain statements. What is decided is in package queue.
type Queues struct {
	Dialect
	Transactor
	// Now is the clock; nil means the database's.
	Now func() time.Time

	writer string // the name of this process among those that write
	token  atomic.Int64
}

// NewQueues makes one.
func NewQueues(d Dialect, t Transactor, now func() time.Time) *Queues {
	return &Queues{Dialect: d, Transactor: t, Now: now, writer: newLife()}
}

// newLife makes a name that nobody else has.
func newLife() string { return fmt.Sprintf("%016x", rand.Uint64()) }

const (
	readQueue = "SELECT state%s FROM rondo_queues WHERE queue = $1"
	newQueue  = "INSERT INTO rondo_queues (queue, state) VALUES ($1, $2) ON CONFLICT (queue) DO NOTHING"
	saveQueue = "UPDATE rondo_queues SET state = $2, starts = $3 WHERE queue = $1"
)

// Do implements [queue.Store].
func (q *Queues) Do(ctx context.Context, name string, operations ...queue.Operation) (results []queue.Result, err error) {
	if err := queue.CheckName(name); err != nil {
		return nil, err
	}
	// The results of each try. One whose commit was in doubt may have happened: then its token is in the state.
	tried := make(map[int64][]queue.Result)
	err = q.Write(ctx, "change a queue", func(db DB) error {
		state, now, made, err := q.hold(ctx, db, name, queue.Makes(operations))
		if err != nil {
			return err
		}
		if state == nil {
			results = missing(operations)
			return nil
		}
		if done, ok := tried[state.Writers[q.writer].Token]; ok {
			results = done
			return nil
		}
		items := &queueItems{ctx: ctx, db: db, d: q.Dialect, queue: name}
		m := queue.NewMachine(state, items, now)
		if results, err = m.Do(operations); err == nil {
			err = items.flush()
		}
		switch {
		case err != nil:
			return err
		case !m.Changed() && !made:
			return nil
		case !m.Changed() || m.Gone(): // everything was refused, and a queue that nobody has begun is none
			return items.forgetQueue()
		}
		token := q.token.Add(1)
		tried[token] = results
		state.Wrote(q.writer, token)
		return q.save(ctx, db, name, state)
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// missing are the results where there is no queue: there is nothing in it.
func missing(operations []queue.Operation) []queue.Result {
	results := make([]queue.Result, len(operations))
	for n, o := range operations {
		switch o.(type) {
		case queue.Pop, queue.Settle:
		case queue.Acknowledge, queue.Return, queue.Extend:
			results[n].Refused = queue.ErrNoLock
		default:
			results[n].Refused = queue.ErrNoQueue
		}
	}
	return results
}

// hold reads the state of a queue, and nobody else can change the queue until the end of the transaction. A queue that is not there is made, or nil.
func (q *Queues) hold(ctx context.Context, db DB, name string, make bool) (state *queue.State, now time.Time, made bool, err error) {
	state, now, err = q.state(ctx, db, name, q.Lock)
	if err != nil || state != nil || !make {
		return state, now, false, err
	}
	data, err := (&queue.State{Life: newLife()}).Encode()
	if err != nil {
		return nil, now, false, err
	}
	n, err := db.Exec(ctx, newQueue, name, data)
	if err != nil {
		return nil, now, false, err
	}
	if state, now, err = q.state(ctx, db, name, q.Lock); err == nil && state == nil {
		err = &history.Error{Class: history.Contended, Op: "make a queue", Err: fmt.Errorf("queue %q was removed while it was made", name)}
	}
	return state, now, n == 1, err
}

// state reads the state of a queue, nil if there is none, and what time it is.
func (q *Queues) state(ctx context.Context, db DB, name, lock string) (state *queue.State, now time.Time, err error) {
	var clock Moment
	err = db.Query(ctx, func(r Row) (err error) {
		var data []byte
		into := []any{&data}
		if q.Now == nil {
			into = append(into, &clock)
		}
		if err = r.Scan(into...); err == nil {
			state, err = queue.DecodeState(data)
		}
		return err
	}, fmt.Sprintf(readQueue, q.clock())+lock, name)
	if err != nil {
		return nil, now, fmt.Errorf("queue %q: %w", name, err)
	}
	return state, q.now(clock), nil
}

// clock is the column with the time, if the database has the clock.
func (q *Queues) clock() string {
	if q.Now != nil {
		return ""
	}
	return ", clock_timestamp()"
}

// now is what time it is. No database keeps more of it than microseconds.
func (q *Queues) now(clock Moment) time.Time {
	if q.Now != nil {
		return q.Now().UTC().Truncate(time.Microsecond)
	}
	return clock.UTC()
}

func (q *Queues) save(ctx context.Context, db DB, name string, state *queue.State) error {
	data, err := state.Encode()
	if err != nil {
		return err
	}
	changed, err := db.Exec(ctx, saveQueue, name, data, state.Settings.Start != nil)
	if err == nil && changed != 1 {
		err = fmt.Errorf("queue %q: %d rows were changed where one was held", name, changed)
	}
	return err
}

// Look implements [queue.Store].
func (q *Queues) Look(ctx context.Context, name string) (queue.Info, error) {
	if err := queue.CheckName(name); err != nil {
		return queue.Info{}, err
	}
	for settled := false; ; settled = true {
		var info queue.Info
		due, there := false, false
		err := q.Read(ctx, "look at a queue", func(db DB) error {
			state, now, err := q.state(ctx, db, name, "")
			if there = state != nil; err != nil || !there {
				return err
			}
			due = state.Due(state.Now(now))
			info = state.Info(name, now)
			info.Oldest, err = q.oldest(ctx, db, name, state)
			return err
		})
		switch {
		case err != nil:
			return queue.Info{}, err
		case !there:
			return queue.Info{}, queue.ErrNoQueue
		case !due || settled:
			return info, nil
		}
		if _, err := q.Do(ctx, name, queue.Settle{}); err != nil {
			return queue.Info{}, err
		}
	}
}

// oldest finds since when the item is ready that has waited for longest.
func (q *Queues) oldest(ctx context.Context, db DB, name string, state *queue.State) (oldest time.Time, err error) {
	const first = "SELECT ready_at FROM rondo_queue_items WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT 1"
	for _, priority := range state.Priorities() {
		err := db.Query(ctx, func(r Row) error {
			var at Moment
			err := r.Scan(&at)
			if oldest.IsZero() || at.Before(oldest) {
				oldest = at.Time
			}
			return err
		}, first, name, priority, state.Levels[priority].Head)
		if err != nil {
			return oldest, err
		}
	}
	return oldest, nil
}

// List implements [queue.Store].
func (q *Queues) List(ctx context.Context, after string, limit int) ([]queue.Info, error) {
	return q.list(ctx, "queue > $1 ORDER BY queue LIMIT $2", Key(after), limit)
}

// Starting implements [queue.Store].
func (q *Queues) Starting(ctx context.Context) ([]queue.Info, error) {
	return q.list(ctx, "starts ORDER BY queue")
}

func (q *Queues) list(ctx context.Context, where string, args ...any) (list []queue.Info, err error) {
	err = q.Read(ctx, "list queues", func(db DB) error {
		list = nil
		return db.Query(ctx, func(r Row) error {
			var name string
			var data []byte
			var clock Moment
			into := []any{&name, &data}
			if q.Now == nil {
				into = append(into, &clock)
			}
			if err := r.Scan(into...); err != nil {
				return err
			}
			state, err := queue.DecodeState(data)
			if err != nil {
				return fmt.Errorf("queue %q: %w", name, err)
			}
			list = append(list, state.Info(name, q.now(clock)))
			return nil
		}, "SELECT queue, state"+q.clock()+" FROM rondo_queues WHERE "+where, args...)
	})
	return list, err
}

// Dead implements [queue.Store].
func (q *Queues) Dead(ctx context.Context, name string, after queue.DeadID, limit int) (list []queue.Dead, err error) {
	err = q.Read(ctx, "list dead items", func(db DB) error {
		items := &queueItems{ctx: ctx, db: db, d: q.Dialect, queue: name}
		list, err = items.deadAfter(after, limit)
		return err
	})
	return list, err
}

// queueItems implements [queue.Items] within a transaction.
type queueItems struct {
	ctx   context.Context
	db    DB
	d     Dialect
	queue string

	// Items that were added, and are not in the database yet: one statement adds many.
	added []addedItem
}

type addedItem struct {
	queue.Item
	due time.Time
}

// addAtOnce bounds the parameters of a statement, addBytes what it carries.
const (
	addAtOnce = 200
	addBytes  = 1 << 20
)

// Add implements [queue.Items].
func (i *queueItems) Add(item queue.Item, due time.Time) error {
	i.added = append(i.added, addedItem{item, due})
	return nil
}

// flush adds what was added.
func (i *queueItems) flush() error {
	for len(i.added) > 0 {
		b := builder{Dialect: i.d}
		var rows []string
		name, bytes := b.arg(i.queue), 0
		for _, a := range i.added[:min(addAtOnce, len(i.added))] {
			if bytes += len(a.Data); bytes > addBytes && len(rows) > 0 {
				break
			}
			place, rank := queue.PlaceReady, int64(a.Priority)
			if !a.due.IsZero() {
				place, rank = queue.PlaceDelayed, a.due.UnixMicro()
			}
			rows = append(rows, fmt.Sprintf("(%s, %d, %s, %s, %s, %d, %d, %s, %s, %s, %s)", name, place, b.arg(rank), b.arg(a.Position), b.arg(a.ID), a.Priority, len(a.Data),
				b.time(a.PushedAt), b.time(a.ReadyAt), b.arg(nullText(a.Trace)), b.arg([]byte(a.Data))))
		}
		i.added = i.added[len(rows):]
		_, err := i.db.Exec(i.ctx, "INSERT INTO rondo_queue_items (queue, place, rank, position, id, priority, size, pushed_at, ready_at, trace, item) VALUES "+
			strings.Join(rows, ", "), b.args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// query flushes, and runs a query.
func (i *queueItems) query(scan func(Row) error, statement string, args ...any) error {
	if err := i.flush(); err != nil {
		return err
	}
	return i.db.Query(i.ctx, scan, statement, args...)
}

func (i *queueItems) exec(statement string, args ...any) (int64, error) {
	if err := i.flush(); err != nil {
		return 0, err
	}
	return i.db.Exec(i.ctx, statement, args...)
}
