package sqladmin

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// The bounds of one transaction.
const (
	eraseRows       = 300  // rows of history
	eraseEvents     = 5000 // events of instances that are erased together
	eraseExecutions = 1000 // former executions
	eraseInstances  = 100  // instances at once
	lockInstances   = 500  // rows locked by one statement
)

// erase removes the remaining rows of deleted instances, in transactions of bounded size, and
// counts them.
func (a *Admin) erase(ctx context.Context, gone []member) (deleted history.DeleteResult, err error) {
	for len(gone) > 0 {
		// Small ones go together, a large one alone.
		n, events := 0, int64(0)
		for n < len(gone) && n < eraseInstances && (n == 0 || events+gone[n].events <= eraseEvents) {
			events += gone[n].events
			n++
		}
		part, err := a.eraseTogether(ctx, memberIDs(gone[:n]))
		deleted.Add(part)
		if err != nil {
			return deleted, err
		}
		gone = gone[n:]
	}
	return deleted, nil
}

// eraseTogether erases tombstones, some after the other.
func (a *Admin) eraseTogether(ctx context.Context, instances []string) (deleted history.DeleteResult, err error) {
	for more := true; more && err == nil; {
		var step history.DeleteResult
		step, more, err = a.eraseStep(ctx, instances)
		deleted.Add(step)
	}
	return deleted, err
}

// eraseStep does one transaction's worth.
func (a *Admin) eraseStep(ctx context.Context, instances []string) (step history.DeleteResult, more bool, err error) {
	err = a.Write(ctx, "erase deleted instances", func(db sqlrow.DB) error {
		var err error
		step, more, err = a.eraseSome(ctx, db, instances)
		return err
	})
	if err != nil {
		return history.DeleteResult{}, false, err
	}
	return step, more, nil
}

func (a *Admin) eraseSome(ctx context.Context, db sqlrow.DB, instances []string) (step history.DeleteResult,
	more bool, err error) {
	// Only tombstones that stay the same until the end: one that another process has erased may
	// belong to a new incarnation, and may be deleted again.
	tombstones, err := a.lock(ctx, db, instances, isStatus(sqlrow.Deleting), a.Lock)
	if err != nil || len(tombstones) == 0 {
		return step, false, err
	}
	count := func(into *int64, statement string, args []any) {
		if err == nil {
			*into, err = db.Exec(ctx, statement, args...)
		}
	}
	one, all := a.builder(), a.builder()
	each := make([]string, len(tombstones))
	for i, id := range tombstones {
		each[i] = fmt.Sprintf("shard = %d AND instance = %s", a.Shard(id), one.Arg(id))
	}
	rows, err := removeEvents(ctx, db, &step, "shard, instance, execution, event", each, one.Args)
	if err != nil || rows == eraseRows {
		return step, true, err
	}
	count(&step.Executions, limited("rondo_executions", "shard, instance, execution", each, eraseExecutions), one.Args)
	if err != nil || step.Executions == eraseExecutions {
		return step, true, err
	}
	where := all.pairs("", tombstones)
	count(&step.Values, "DELETE FROM rondo_values WHERE "+where, all.Args)
	count(&step.Instances, "UPDATE rondo_instances SET status = '"+sqlrow.Deleted+"', last_event = 0 WHERE "+where,
		all.Args)
	step.Executions += step.Instances // the current ones
	return step, false, err
}

// removeEvents deletes as many rows of history as one transaction may. It counts their events, and
// gives the number of rows.
func removeEvents(ctx context.Context, db sqlrow.DB, step *history.DeleteResult, key string, conditions []string,
	args []any) (rows int, err error) {
	err = db.Query(ctx, func(r sqlrow.Row) error {
		var n int64
		err := r.Scan(&n)
		step.Events += n
		rows++
		return err
	}, limited("rondo_history", key, conditions, eraseRows)+" RETURNING last_event - event + 1", args...)
	return rows, err
}

// limited deletes the first rows of a table that fit one condition after the other. Asked for all
// together, in order, a database may read the whole table in that order.
func limited(table, key string, conditions []string, limit int) string {
	parts := make([]string, len(conditions))
	for i, where := range conditions {
		parts[i] = fmt.Sprintf("SELECT * FROM (SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %d) b%d", key, table, where,
			key, limit, i)
	}
	return fmt.Sprintf("DELETE FROM %s WHERE (%s) IN (SELECT %s FROM (%s) k LIMIT %d)", table, key, key,
		strings.Join(parts, "\nUNION ALL "), limit)
}
