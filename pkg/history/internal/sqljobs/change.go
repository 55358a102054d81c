package sqljobs

import (
	"context"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// change is a transaction of operations, with the state of its tries.
type change struct {
	*Queues
	queue      string
	operations []jobs.Operation

	// token and incarnation are those of the last try, results its results if it was committed.
	// That is in doubt.
	token       int64
	incarnation string // empty if there was to be no queue
	before      string // the incarnation of the queue that the try found
	fresh       bool   // the try made the queue
	forgot      bool   // the try removed it, and may have made it again
	wrote       bool   // the try changed anything
	doubt       bool
	results     []jobs.Result
	lost        error // why the outcome stays unknown
}

// try does the operations, unless the try before has.
func (c *change) try(ctx context.Context, db sqlrow.DB) error {
	state, now, err := c.state(ctx, db, c.queue, c.Lock)
	if err != nil {
		return err
	}
	if c.doubt {
		known, err := c.lookUp(state)
		if c.lost = err; known || err != nil {
			//lint:ignore nilerr a retry cannot help: the caller finds the error in c.lost
			return nil
		}
		c.doubt = false // nothing of it has happened, and from now on nothing can
	}
	c.results, c.incarnation, c.before, c.fresh, c.forgot, c.wrote = nil, "", "", false, false, false
	if state != nil {
		c.before = state.Incarnation
	}
	items := newJobWriter(ctx, db, c.Dialect, c.queue)
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
			if err := items.settled(); err != nil {
				return err
			}
			if err := forget(items.queueRows); err != nil {
				return err
			}
			state, c.fresh, c.forgot = nil, false, true
		}
	}
	return c.save(items, state)
}

// save writes the pending changes, and the state with them, if there are any.
func (c *change) save(items *jobWriter, state *jobs.State) error {
	writes := items.pending.writes()
	switch {
	case state == nil:
		return items.run(writes...)
	case !c.wrote && c.fresh: // all was refused
		return items.run(append(writes, write{dropNewQueue, []any{c.queue}, 1})...)
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
		write{saveQueue, []any{c.queue, data, state.Settings.Start != nil}, 1})...)
}

// lookUp finds out from the current state whether the previous attempt has committed.
func (c *change) lookUp(state *jobs.State) (known bool, err error) {
	switch {
	case !c.wrote:
		return false, nil
	case state != nil && state.Incarnation == c.incarnation:
		return state.Writers[c.writer].Token == c.token, nil
	case state != nil && c.forgot && state.Incarnation == c.before:
		return false, nil // the queue was to be removed, and is there
	case c.incarnation == "" && len(c.operations) == 1:
		return true, nil // it is gone, by this or another transaction
	case c.fresh && c.incarnation != "":
		return false, nil // the queue was new, and is not there
	}
	return false, &history.Error{Class: history.Ambiguous, Op: "look up a commit",
		Err: fmt.Errorf("queue %q was removed meanwhile", c.queue)}
}

// missing are the results for a queue that does not exist: those of an empty one.
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

// make makes the queue, and gives its state as that of a queue that is held: another process may
// have been first.
func (c *change) make(ctx context.Context, db sqlrow.DB) (*jobs.State, time.Time, error) {
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
