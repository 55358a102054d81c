package sqladmin

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Prune implements [history.Remover].
func (a *Admin) Prune(ctx context.Context, instance string,
	keep history.Keep) (deleted history.DeleteResult, err error) {
	defer a.observer.Begin("prune").End(&err)
	return a.prune(ctx, instance, keep)
}

func (a *Admin) prune(ctx context.Context, instance string,
	keep history.Keep) (deleted history.DeleteResult, err error) {
	for more := true; more; {
		var step history.DeleteResult
		err := a.Write(ctx, "prune executions", func(db sqlrow.DB) error {
			var err error
			step, more, err = a.pruneSome(ctx, db, instance, keep)
			return err
		})
		if err != nil {
			return deleted, err
		}
		deleted.Add(step)
	}
	return deleted, nil
}

// pruneSome removes a bounded part of the expired executions. It marks executions before it removes
// their histories, and their rows go last: so no reader sees half a history, and the next pruning
// resumes an interrupted one. Each statement removes only rows of executions that are former ones
// at that moment, so these can never be the current one's, not even after the instance was deleted
// and began again.
func (a *Admin) pruneSome(ctx context.Context, db sqlrow.DB, instance string,
	keep history.Keep) (step history.DeleteResult, more bool, err error) {
	if _, err := a.find(ctx, db, instance); err != nil {
		return step, false, err
	}
	b := a.builder()
	mine := "shard = " + b.Arg(a.Shard(instance)) + " AND instance = " + b.Arg(instance)
	old := mine + " AND " + sqlrow.Alive
	if keep.Last > 1 {
		old += fmt.Sprintf(" AND execution <= (SELECT execution FROM rondo_instances WHERE %s) - %d", mine, keep.Last)
	}
	args := b.Args
	if !keep.EndedBefore.IsZero() {
		old += " AND ended_at < " + b.TimeArg(keep.EndedBefore)
	}
	const key = "shard, instance, execution"
	marked, err := db.Exec(ctx, fmt.Sprintf("UPDATE rondo_executions SET status = '%s' WHERE (%s) IN "+
		"(SELECT %s FROM rondo_executions WHERE %s ORDER BY %s LIMIT %d)", sqlrow.Deleting, key, key, old, key,
		eraseExecutions), b.Args...)
	if err != nil {
		return step, false, err
	}
	marks := mine + " AND status = '" + sqlrow.Deleting + "'"
	rows, err := removeEvents(ctx, db, &step, key+", event",
		[]string{mine + " AND execution IN (SELECT execution FROM rondo_executions WHERE " + marks + ")"}, args)
	if err != nil || rows == eraseRows {
		return step, true, err
	}
	step.Executions, err = db.Exec(ctx, "DELETE FROM rondo_executions WHERE "+marks, args...)
	return step, marked == eraseExecutions, err
}

// PruneAll implements [history.Remover].
func (a *Admin) PruneAll(ctx context.Context, f history.Filter, keep history.Keep,
	p history.Page) (page history.DeleteResultPage, err error) {
	defer a.observer.Begin("prune_all").End(&err)
	list, err := a.list(ctx, f, p)
	if err != nil {
		return page, err
	}
	page.Next = list.Next
	for _, i := range list.Instances {
		deleted, err := a.prune(ctx, i.Instance, keep)
		page.Add(deleted)
		switch {
		case errors.Is(err, history.ErrNoInstance): // it was deleted meanwhile
		case err != nil:
			return page, err
		case deleted.Executions > 0:
			page.Instances++
		}
	}
	return page, nil
}
