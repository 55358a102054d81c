package sqladmin

import (
	"context"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// bounded reads pages with a bound in bytes: first the sizes of their rows, without the data, and
// then as many rows as fit.
type bounded struct {
	*Admin
	bytes int64
}

// Within implements [history.Bounded].
func (a *Admin) Within(bytes int) history.BoundedReader { return bounded{a, int64(bytes)} }

// fit counts the rows of a page: as many as have fewer bytes than the bound, and one more.
type fit struct {
	rows, bytes, most int64
	cut               bool // there are others
}

// add adds a row, and reports whether it belongs to the page.
func (f *fit) add(size int64) bool {
	if f.rows > 0 && f.bytes >= f.most {
		f.cut = true
		return false
	}
	f.rows, f.bytes = f.rows+1, f.bytes+size
	return true
}

// size adds a row that has its size alone.
func (f *fit) size(r sqlrow.Row) error {
	var size int64
	err := r.Scan(&size)
	f.add(size)
	return err
}

// The sizes of what clients and their code choose in a row.
const (
	instanceSize = "CAST(coalesce(length(i.output), 0) + coalesce(length(i.error), 0) + " +
		"coalesce(length(i.custom_status), 0) + coalesce(length(i.attributes), 0) AS INT8)"
	rowSize       = "event, last_event, CAST(length(data) AS INT8) AS size"
	executionSize = "execution, CAST(coalesce(length(output), 0) + coalesce(length(error), 0) AS INT8) AS size"
)

var rowSizesBetween = rowsBetween(rowSize)

// List implements [history.Reader].
func (b bounded) List(ctx context.Context, f history.Filter, p history.Page) (list history.InstanceList, err error) {
	defer b.observer.Begin("list").End(&err)
	q, err := b.listing(f, p)
	if q == nil || err != nil {
		return history.InstanceList{}, err
	}
	var page fit
	err = q.read(ctx, "measure a list", func(db sqlrow.DB) error {
		page = fit{most: b.bytes}
		return db.Query(ctx, page.size, q.columns(instanceSize), q.args...)
	})
	if err != nil {
		return history.InstanceList{}, err
	}
	if page.cut {
		p.Limit = min(p.Size(), int(page.rows))
	}
	return b.list(ctx, f, p)
}

// Executions implements [history.Reader].
func (b bounded) Executions(ctx context.Context, instance string, after int64,
	limit int) (list []history.ExecutionInfo, err error) {
	defer b.observer.Begin("executions").End(&err)
	limit = history.Page{Limit: limit}.Size()
	var page fit
	err = b.Read(ctx, "measure executions", func(db sqlrow.DB) error {
		page = fit{most: b.bytes}
		return db.Query(ctx, func(r sqlrow.Row) error {
			var execution, size int64
			err := r.Scan(&execution, &size)
			page.add(size)
			return err
		}, executionsAfter(executionSize, limit), b.Shard(instance), instance, after)
	})
	if err != nil {
		return nil, err
	}
	if page.cut {
		limit = int(page.rows)
	}
	return b.executions(ctx, instance, after, limit)
}

// Events implements [history.Reader].
func (b bounded) Events(ctx context.Context, instance string, execution, after int64,
	limit int) (list []events.Event, err error) {
	defer b.observer.Begin("events").End(&err)
	limit, after = history.Page{Limit: limit}.Size(), max(after, 0)
	var last int64
	var page fit
	err = b.Read(ctx, "measure a history", func(db sqlrow.DB) error {
		end, err := b.end(ctx, db, instance, execution)
		if err != nil {
			return err
		}
		page, last = fit{most: b.bytes}, after
		return db.Query(ctx, func(r sqlrow.Row) error {
			var event, until, size int64
			err := r.Scan(&event, &until, &size)
			if page.add(size) {
				last = until
			}
			return err
		}, rowSizesBetween, b.Shard(instance), instance, end.execution, after+1,
			min(end.last, after+int64(limit)))
	})
	if err != nil {
		return nil, err
	}
	if page.cut {
		limit = int(min(int64(limit), max(1, last-after)))
	}
	return b.events(ctx, instance, execution, after, limit)
}
