// Package sqljobs keeps job queues in SQL stores, with plain statements that both databases take:
// [Queues] implements [jobs.Store]. Package jobs makes the decisions; this package reads and writes
// the rows. A transaction reads ahead what its operations need, and writes their results together.
package sqljobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Queues implements [jobs.Store] with plain statements. Package jobs makes the decisions.
type Queues struct {
	sqlrow.Dialect
	sqlrow.Transactor
	// Now is the clock; nil means the database's.
	Now func() time.Time

	writer string // the name of this process among those that write
	tokens atomic.Int64
	turns  turns
}

// NewQueues makes one.
func NewQueues(d sqlrow.Dialect, t sqlrow.Transactor, now func() time.Time) *Queues {
	return &Queues{Dialect: d, Transactor: t, Now: now, writer: newIncarnation()}
}

// newIncarnation makes a unique name.
func newIncarnation() string { return fmt.Sprintf("%016x", rand.Uint64()) }

const (
	readQueue      = "SELECT state%s FROM rondo_job_queues WHERE queue = $1"
	listQueues     = "SELECT queue, state%s FROM rondo_job_queues WHERE "
	pageOfQueues   = "queue > $1 ORDER BY queue LIMIT $2"
	startingQueues = "starts ORDER BY queue"
	newQueue       = "INSERT INTO rondo_job_queues (queue, state) VALUES ($1, $2) ON CONFLICT (queue) DO NOTHING"
	dropNewQueue   = "DELETE FROM rondo_job_queues WHERE queue = $1"
	saveQueue      = "UPDATE rondo_job_queues SET state = $2, starts = $3 WHERE queue = $1"
)

// Do implements [jobs.Store].
func (q *Queues) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	const op = "change a queue"
	if err := jobs.CheckName(name); err != nil {
		return nil, err
	}
	// The state has only the last transaction of each process, so a process has one of each queue
	// in flight.
	leave, err := q.turns.enter(ctx, name)
	if err != nil {
		return nil, &history.Error{Class: history.Retry, Op: op, Err: err}
	}
	defer leave()
	c := &change{Queues: q, queue: name, operations: operations}
	err = q.WriteOnce(ctx, op, func() { c.doubt = true }, func(db sqlrow.DB) error { return c.try(ctx, db) })
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

// state reads the state of a queue, nil if there is none, and the time.
func (q *Queues) state(ctx context.Context, db sqlrow.DB, name, lock string) (state *jobs.State,
	now time.Time, err error) {
	var clock sqlrow.Moment
	err = db.Query(ctx, func(r sqlrow.Row) (err error) {
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

// now is the time. Databases keep it in microseconds.
func (q *Queues) now(clock sqlrow.Moment) time.Time {
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
		err := q.Read(ctx, "look at a queue", func(db sqlrow.DB) error {
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

// oldest finds since when the job is ready that has waited for longest.
func (q *Queues) oldest(ctx context.Context, db sqlrow.DB, name string,
	state *jobs.State) (oldest time.Time, err error) {
	for _, priority := range state.Priorities() {
		err := db.Query(ctx, func(r sqlrow.Row) error {
			var at sqlrow.Moment
			err := r.Scan(&at)
			if oldest.IsZero() || at.Before(oldest) {
				oldest = at.Time
			}
			return err
		}, oldestJob, name, priority, state.Levels[priority].Head)
		if err != nil {
			return oldest, err
		}
	}
	return oldest, nil
}

// List implements [jobs.Store].
func (q *Queues) List(ctx context.Context, after string, limit int) ([]jobs.Info, error) {
	return q.list(ctx, pageOfQueues, sqlrow.Key(after), limit)
}

// Starting implements [jobs.Store].
func (q *Queues) Starting(ctx context.Context) ([]jobs.Info, error) {
	return q.list(ctx, startingQueues)
}

func (q *Queues) list(ctx context.Context, where string, args ...any) (list []jobs.Info, err error) {
	err = q.Read(ctx, "list queues", func(db sqlrow.DB) error {
		list = nil
		return db.Query(ctx, func(r sqlrow.Row) error {
			var name string
			var data []byte
			var clock sqlrow.Moment
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
	err = q.Read(ctx, "list dead items", func(db sqlrow.DB) error {
		list, err = queueRows{ctx, db, q.Dialect, name}.deadAfter(after, limit)
		return err
	})
	return list, err
}
