package relational

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// Queues implements [jobs.Store] with plain statements. What is decided is in package queue.
type Queues struct {
	Dialect
	Transactor
	// Now is the clock; nil means the database's.
	Now func() time.Time

	writer string // the name of this process among those that write
	tokens atomic.Int64
	turns  turns
}

// NewQueues makes one.
func NewQueues(d Dialect, t Transactor, now func() time.Time) *Queues {
	return &Queues{Dialect: d, Transactor: t, Now: now, writer: newIncarnation()}
}

// newIncarnation makes a name that nobody else has.
func newIncarnation() string { return fmt.Sprintf("%016x", rand.Uint64()) }

const (
	readQueue      = "SELECT state%s FROM rondo_queues WHERE queue = $1"
	listQueues     = "SELECT queue, state%s FROM rondo_queues WHERE "
	pageOfQueues   = "queue > $1 ORDER BY queue LIMIT $2"
	startingQueues = "starts ORDER BY queue"
	newQueue       = "INSERT INTO rondo_queues (queue, state) VALUES ($1, $2) ON CONFLICT (queue) DO NOTHING"
	dropNewQueue   = "DELETE FROM rondo_queues WHERE queue = $1"
	saveQueue      = "UPDATE rondo_queues SET state = $2, starts = $3 WHERE queue = $1"
)

// Do implements [jobs.Store].
func (q *Queues) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	const op = "change a queue"
	if err := jobs.CheckName(name); err != nil {
		return nil, err
	}
	// The state tells of each process only its last transaction, so a process has one of each queue
	// under way.
	leave, err := q.turns.enter(ctx, name)
	if err != nil {
		return nil, &history.Error{Class: history.Retry, Op: op, Err: err}
	}
	defer leave()
	c := &change{Queues: q, queue: name, operations: operations}
	err = q.WriteOnce(ctx, op, func() { c.doubt = true }, func(db DB) error { return c.try(ctx, db) })
	switch {
	case err != nil && c.doubt && history.ClassOf(err) != history.Ambiguous:
		// why it was not looked up does not tell whether it happened
		err = &history.Error{Class: history.Ambiguous, Op: op, Err: err}
	case err == nil:
		err = c.lost
	}
	if err != nil {
		return nil, err
	}
	return c.results, nil
}

// change is a transaction of operations, and what is known of the tries it took.
type change struct {
	*Queues
	queue      string
	operations []jobs.Operation

	// token and incarnation are those of the last try, results what would be true if it had
	// happened. It is in doubt whether it did.
	token       int64
	incarnation string // empty if there was to be no queue
	before      string // the incarnation of the queue that the try found
	fresh       bool   // the try made the queue
	forgot      bool   // the try removed it, and may have made it again
	wrote       bool   // the try changed anything
	doubt       bool
	results     []jobs.Result
	lost        error // why nobody will ever know
}

// try does the operations, unless the try before has.
func (c *change) try(ctx context.Context, db DB) error {
	state, now, err := c.state(ctx, db, c.queue, c.Lock)
	if err != nil {
		return err
	}
	if c.doubt {
		known, err := c.lookUp(state)
		if c.lost = err; known || err != nil {
			return nil
		}
		c.doubt = false // nothing of it has happened, and from now on nothing can
	}
	c.results, c.incarnation, c.before, c.fresh, c.forgot, c.wrote = nil, "", "", false, false, false
	if state != nil {
		c.before = state.Incarnation
	}
	items := &queueItems{ctx: ctx, db: db, d: c.Dialect, queue: c.queue}
	for rest := c.operations; len(rest) > 0; {
		if state == nil {
			n := jobs.FirstThatMakes(rest)
			c.results, rest = append(c.results, missing(rest[:n])...), rest[n:]
			if n = len(rest); n == 0 {
				break
			}
			if state, now, err = c.make(ctx, db); err != nil {
				return err
			}
		}
		m := jobs.NewMachine(state, items, now)
		results, err := m.Do(rest)
		if err != nil {
			return err
		}
		c.results, rest = append(c.results, results...), rest[len(results):]
		c.wrote = c.wrote || m.Changed()
		if m.Gone() {
			if err := items.forgetQueue(); err != nil {
				return err
			}
			state, c.fresh, c.forgot = nil, false, true
		}
	}
	return c.save(items, state)
}

// save writes what is not written yet, and the state with it, if there is anything to write.
func (c *change) save(items *queueItems, state *jobs.State) error {
	writes := items.writes()
	switch {
	case state == nil:
		return items.run(writes...)
	case !c.wrote && c.fresh: // all was refused
		return items.run(append(writes, write{Statement{dropNewQueue, []any{c.queue}}, 1})...)
	case !c.wrote:
		return items.run(writes...)
	}
	c.token, c.incarnation = c.tokens.Add(1), state.Incarnation
	state.Wrote(c.writer, c.token)
	data, err := state.Encode()
	if err != nil {
		return err
	}
	return items.run(append(writes,
		write{Statement{saveQueue, []any{c.queue, data, state.Settings.Start != nil}}, 1})...)
}

// lookUp finds out whether the try before has happened, from what there is now.
func (c *change) lookUp(state *jobs.State) (known bool, err error) {
	switch {
	case !c.wrote:
		return false, nil
	case state != nil && state.Incarnation == c.incarnation:
		return state.Writers[c.writer].Token == c.token, nil
	case state != nil && c.forgot && state.Incarnation == c.before:
		return false, nil // the queue was to be removed, and is there
	case c.incarnation == "" && len(c.operations) == 1:
		return true, nil // it is gone, whoever has removed it
	case c.fresh && c.incarnation != "":
		return false, nil // the queue was new, and is not there
	}
	return false, &history.Error{Class: history.Ambiguous, Op: "look up a commit",
		Err: fmt.Errorf("queue %q was removed meanwhile", c.queue)}
}

// turns lets one after another do something with a queue.
type turns struct {
	mu     sync.Mutex
	queues map[string]*turn // those with somebody
}

type turn struct {
	taken chan struct{}
	those int // who has it, and who waits
}

// enter waits for a turn. Who has it leaves it.
func (t *turns) enter(ctx context.Context, name string) (leave func(), err error) {
	t.mu.Lock()
	x := t.queues[name]
	if x == nil {
		if t.queues == nil {
			t.queues = make(map[string]*turn)
		}
		x = &turn{taken: make(chan struct{}, 1)}
		t.queues[name] = x
	}
	x.those++
	t.mu.Unlock()
	away := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if x.those--; x.those == 0 {
			delete(t.queues, name)
		}
	}
	select {
	case x.taken <- struct{}{}:
		return func() { <-x.taken; away() }, nil
	case <-ctx.Done():
		away()
		return nil, ctx.Err()
	}
}

// missing are the results where there is no queue: there is nothing in it.
func missing(operations []jobs.Operation) []jobs.Result {
	results := make([]jobs.Result, len(operations))
	for n, o := range operations {
		switch o.(type) {
		case jobs.Pop, jobs.Settle:
		case jobs.Acknowledge, jobs.Return, jobs.Extend:
			results[n].Refused = jobs.ErrNoLock
		default:
			results[n].Refused = jobs.ErrNoQueue
		}
	}
	return results
}

// make makes the queue, and gives its state as that of a queue that is held: somebody else may have
// been first.
func (c *change) make(ctx context.Context, db DB) (*jobs.State, time.Time, error) {
	data, err := (&jobs.State{Incarnation: newIncarnation()}).Encode()
	if err != nil {
		return nil, time.Time{}, err
	}
	made, err := db.Exec(ctx, newQueue, c.queue, data)
	if err != nil {
		return nil, time.Time{}, err
	}
	c.fresh = made == 1
	state, now, err := c.state(ctx, db, c.queue, c.Lock)
	if err == nil && state == nil {
		err = &history.Error{Class: history.Contended, Op: "make a queue",
			Err: fmt.Errorf("queue %q was removed while it was made", c.queue)}
	}
	return state, now, err
}

// state reads the state of a queue, nil if there is none, and what time it is.
func (q *Queues) state(ctx context.Context, db DB, name, lock string) (state *jobs.State, now time.Time, err error) {
	var clock Moment
	err = db.Query(ctx, func(r Row) (err error) {
		var data []byte
		into := []any{&data}
		if q.Now == nil {
			into = append(into, &clock)
		}
		if err = r.Scan(into...); err == nil {
			state, err = jobs.DecodeState(data)
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

// Look implements [jobs.Store].
func (q *Queues) Look(ctx context.Context, name string) (jobs.Info, error) {
	if err := jobs.CheckName(name); err != nil {
		return jobs.Info{}, err
	}
	for settled := false; ; settled = true {
		var info jobs.Info
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
			return jobs.Info{}, err
		case !there:
			return jobs.Info{}, jobs.ErrNoQueue
		case !due || settled:
			return info, nil
		}
		if _, err := q.Do(ctx, name, jobs.Settle{}); err != nil {
			return jobs.Info{}, err
		}
	}
}

// oldest finds since when the item is ready that has waited for longest.
func (q *Queues) oldest(ctx context.Context, db DB, name string, state *jobs.State) (oldest time.Time, err error) {
	for _, priority := range state.Priorities() {
		err := db.Query(ctx, func(r Row) error {
			var at Moment
			err := r.Scan(&at)
			if oldest.IsZero() || at.Before(oldest) {
				oldest = at.Time
			}
			return err
		}, oldestItem, name, priority, state.Levels[priority].Head)
		if err != nil {
			return oldest, err
		}
	}
	return oldest, nil
}

// List implements [jobs.Store].
func (q *Queues) List(ctx context.Context, after string, limit int) ([]jobs.Info, error) {
	return q.list(ctx, pageOfQueues, Key(after), limit)
}

// Starting implements [jobs.Store].
func (q *Queues) Starting(ctx context.Context) ([]jobs.Info, error) {
	return q.list(ctx, startingQueues)
}

func (q *Queues) list(ctx context.Context, where string, args ...any) (list []jobs.Info, err error) {
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
			state, err := jobs.DecodeState(data)
			if err != nil {
				return fmt.Errorf("queue %q: %w", name, err)
			}
			list = append(list, state.Info(name, q.now(clock)))
			return nil
		}, fmt.Sprintf(listQueues, q.clock())+where, args...)
	})
	return list, err
}

// Dead implements [jobs.Store].
func (q *Queues) Dead(ctx context.Context, name string, after jobs.DeadID, limit int) (list []jobs.Dead, err error) {
	if err := jobs.CheckName(name); err != nil {
		return nil, err
	}
	err = q.Read(ctx, "list dead items", func(db DB) error {
		items := &queueItems{ctx: ctx, db: db, d: q.Dialect, queue: name}
		list, err = items.deadAfter(after, limit)
		return err
	})
	return list, err
}
