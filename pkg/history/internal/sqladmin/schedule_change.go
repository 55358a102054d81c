package sqladmin

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

var createSchedule = "INSERT INTO rondo_schedules (" + sqlrow.Schedules.String() +
	") VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING"

const (
	updateSchedule = "UPDATE rondo_schedules SET version = version + 1, token = $3, wake_at = $4, changed_at = $5, " +
		"data = $6 WHERE id = $1 AND version = $2"
	deleteSchedule = "DELETE FROM rondo_schedules WHERE id = $1 AND version = $2"
	lookSchedule   = "SELECT version, token FROM rondo_schedules WHERE id = $1"
	sameEntry      = "SELECT id FROM rondo_outbox WHERE shard = $1 AND id = $2 AND messages = $3"
)

// ChangeSchedule implements [history.Schedules].
func (a *Schedules) ChangeSchedule(ctx context.Context,
	change history.ScheduleChange) (entries []history.OutboxKey, ok bool, err error) {
	defer a.observer.Begin("change_schedule").End(&err)
	const op = "change a schedule"
	if err := change.Check(); err != nil {
		return nil, false, err
	}
	c := &scheduleChange{Schedules: a, ScheduleChange: change, packed: sqlrow.Pack(change.Messages)}
	doubted := func() { c.doubt = c.doubt || c.ok } // a try that has refused the change may be repeated
	err = a.db.WriteOnce(ctx, op, doubted, func(db sqlrow.DB) error { return c.try(ctx, db) })
	switch {
	case err != nil && c.doubt && history.ClassOf(err) != history.Ambiguous:
		// why it was not looked up does not tell whether it happened
		err = &history.Error{Class: history.Ambiguous, Op: op, Err: err}
	case err == nil:
		err = c.lost
	}
	if c.ok || err != nil {
		a.lowest.stored(change.WakeAt)
	}
	if err != nil || !c.ok {
		return nil, false, err
	}
	return c.entries, true, nil
}

// scheduleChange is a change with the state of its tries.
type scheduleChange struct {
	*Schedules
	history.ScheduleChange
	packed [][]byte

	// What the last try that has changed the schedule has written. Whether it was committed is in
	// doubt.
	token   int64 // tells changes apart that expect the same version
	base    int64 // the version that the schedule had before, or was created with
	entries []history.OutboxKey
	doubt   bool

	ok   bool
	lost error // why the outcome stays unknown
}

// try changes the schedule, unless a try before has.
func (c *scheduleChange) try(ctx context.Context, db sqlrow.DB) error {
	c.ok = false
	token, base := int64(c.random()>>1), c.Expected
	var wakeAt any
	if !c.WakeAt.IsZero() {
		wakeAt = c.dialect.Time(c.WakeAt)
	}
	data := c.Data
	if data == nil {
		data = []byte{} // nil is NULL
	}
	statement, args := updateSchedule, []any{c.ID, base, token, wakeAt, c.dialect.Time(c.ChangedAt), data}
	switch {
	case c.Delete:
		statement, args = deleteSchedule, args[:2]
	case c.Expected == 0:
		// of 52 bits, so that a number of JavaScript can have all versions of a schedule
		base = int64(c.random()>>12) | 1
		statement, args = createSchedule, []any{c.ID, base, token, wakeAt, args[4], data}
	}
	n, err := db.Exec(ctx, statement, args...)
	switch {
	case err != nil:
		return err
	case n == 0 && c.doubt:
		return c.look(ctx, db)
	case n == 0:
		return nil
	}
	// Nothing has happened before: the stored version is still the expected one.
	c.ok, c.doubt, c.token, c.base, c.entries = true, false, token, base, nil
	for _, messages := range c.packed {
		k := c.entry()
		if _, err := db.Exec(ctx, insertEntry, k.Shard, k.ID, messages); err != nil {
			return err
		}
		c.entries = append(c.entries, k)
	}
	return nil
}

// maxChanges is more changes than a schedule can have within the time of a call. Versions that are
// nearer to each other are those of one schedule that was not deleted in between.
const maxChanges = 1 << 20

// look finds out whether the try before has changed the schedule, which has another version than
// the expected one now. That try has ended: its locks would have held this one up.
func (c *scheduleChange) look(ctx context.Context, db sqlrow.DB) error {
	var version, token int64
	there := false
	if err := db.Query(ctx, func(r sqlrow.Row) error {
		there = true
		return r.Scan(&version, &token)
	}, lookSchedule, c.ID); err != nil {
		return err
	}
	same := there && version >= c.base && version-c.base < maxChanges
	switch {
	case there && token == c.token:
		c.ok = true
		return nil
	case c.Expected == 0 && !there: // it was removed a moment ago
		return &history.Error{Class: history.Contended, Op: "look up a change of a schedule",
			Err: fmt.Errorf("schedule %q is being changed", c.ID)}
	case c.Expected == 0 && same: // others have changed what this one has created
		c.ok = true
		return nil
	case c.Delete && same, c.Expected > 0 && same && version == c.base+1: // by another process
		return nil
	case c.Delete && len(c.packed) == 0: // it is gone, by this or another transaction
		c.ok = true
		return nil
	}
	if len(c.packed) > 0 {
		k := c.entries[0]
		err := db.Query(ctx, func(r sqlrow.Row) error {
			c.ok = true
			return r.Scan(&k.ID)
		}, sameEntry, k.Shard, k.ID, c.packed[0])
		if err != nil || c.ok {
			return err
		}
	}
	c.lost = &history.Error{Class: history.Ambiguous, Op: "look up a change of a schedule", Err: errChangedAgain}
	return nil
}

var errChangedAgain = errors.New("the schedule was changed again meanwhile")
