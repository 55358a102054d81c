package sqladmin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
	"github.com/rondo-run/rondo/pkg/round"
)

var findInstance = "SELECT " + sqlrow.Instances.String() + " FROM rondo_instances WHERE shard = $1 AND instance = $2"

// find reads the row of an instance, which must not be a tombstone.
func (d dialect) find(ctx context.Context, db sqlrow.DB, instance string) (*sqlrow.InstanceRow, error) {
	var found *sqlrow.InstanceRow
	err := db.Query(ctx, func(r sqlrow.Row) error {
		found = new(sqlrow.InstanceRow)
		return r.Scan(sqlrow.Instances.Targets(found)...)
	}, findInstance, d.Shard(instance), sqlrow.Key(instance))
	if err != nil {
		return nil, err
	}
	if found == nil || found.Tombstone() {
		return nil, fmt.Errorf("instance %q: %w", instance, history.ErrNoInstance)
	}
	return found, nil
}

// Instance implements [history.Reader].
func (a *Admin) Instance(ctx context.Context, instance string) (info history.Info, err error) {
	defer a.observer.Begin("instance").End(&err)
	err = a.Read(ctx, "read an instance", func(db sqlrow.DB) error {
		c, err := a.find(ctx, db, instance)
		if err == nil {
			info = c.Info()
		}
		return err
	})
	return info, err
}

// executionColumns are those that a list of executions reads, of former ones and of the current
// one.
var (
	executionColumns = sqlrow.Executions.Without("shard", "instance")
	executionNames   = executionColumns.String()
)

// Executions implements [history.Reader].
func (a *pages) Executions(ctx context.Context, instance string, after int64,
	limit int) (list []history.ExecutionInfo, err error) {
	defer a.observer.Begin("executions").End(&err)
	return a.executions(ctx, instance, after, history.Page{Limit: limit}.Size())
}

func (a *pages) executions(ctx context.Context, instance string, after int64,
	limit int) (list []history.ExecutionInfo, err error) {
	err = a.Read(ctx, "list executions", func(db sqlrow.DB) error {
		list = nil
		if _, err := a.find(ctx, db, instance); err != nil {
			return err
		}
		return db.Query(ctx, func(r sqlrow.Row) error {
			x, err := scanExecution(instance, r)
			list = append(list, x)
			return err
		}, executionsAfter(executionNames, limit), a.Shard(instance), instance, after)
	})
	return list, err
}

// executionsAfter reads columns of the executions of an instance after one, up to a limit.
func executionsAfter(columns string, limit int) string {
	page := fmt.Sprintf(" ORDER BY execution LIMIT %d", limit)
	const where = " WHERE shard = $1 AND instance = $2 AND execution > $3 AND " + sqlrow.Alive
	return "SELECT * FROM (SELECT " + columns + " FROM rondo_executions" + where + page + ") f UNION ALL SELECT " +
		columns + " FROM rondo_instances" + where + page
}

func scanExecution(instance string, r sqlrow.Row) (history.ExecutionInfo, error) {
	var c sqlrow.InstanceRow
	if err := r.Scan(executionColumns.Targets(&c)...); err != nil {
		return history.ExecutionInfo{}, err
	}
	x := history.ExecutionInfo{
		Execution: c.Execution, Incarnation: c.Incarnation, Name: c.Name, Version: c.Version, Engine: int(c.Engine),
		Status: round.Status(c.Status),
		Output: sqlrow.Payload(c.Output), StartedAt: c.StartedAt.Time, EndedAt: c.EndedAt.Time, Events: c.LastEvent,
		Bytes: c.HistoryBytes,
	}
	if len(c.Error) > 0 {
		x.Error = new(failure.Error)
		if err := json.Unmarshal(c.Error, x.Error); err != nil {
			return x, &history.Error{Class: history.Corrupt, Op: "list executions",
				Err: &history.UnreadableError{Instance: instance, Execution: x.Execution, Column: "error", Err: err}}
		}
	}
	return x, nil
}

var eventsBetween = rowsBetween(sqlrow.EventColumns.String())

// rowsBetween reads columns, of which one is event, of the rows from the one on that the first
// event is in. That row is no bound of a scan, which CockroachDB would not use: each page would
// read the history from its beginning (https://github.com/cockroachdb/cockroach/issues/93829).
func rowsBetween(columns string) string {
	rows := "SELECT " + columns + " FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND "
	return "SELECT * FROM (" + rows + "event <= $4 ORDER BY event DESC LIMIT 1) f UNION ALL " + rows +
		"event > $4 AND event <= $5 ORDER BY event"
}

// Events implements [history.Reader].
func (a *pages) Events(ctx context.Context, instance string, execution, after int64,
	limit int) (list []events.Event, err error) {
	defer a.observer.Begin("events").End(&err)
	return a.events(ctx, instance, execution, max(after, 0), history.Page{Limit: limit}.Size())
}

func (a *pages) events(ctx context.Context, instance string, execution, after int64,
	limit int) (list []events.Event, err error) {
	err = a.Read(ctx, "read a history", func(db sqlrow.DB) error {
		// Rows that are pruned, deleted, or left behind by the current execution during the read
		// are looked for again, unless nothing has changed.
		var missed *ending
		for {
			end, err := a.end(ctx, db, instance, execution)
			if err != nil {
				return err
			}
			x, until := end.execution, min(end.last, after+int64(limit))
			var rows []sqlrow.EventRow
			err = db.Query(ctx, func(r sqlrow.Row) error {
				var e sqlrow.HistoryRow
				err := r.Scan(sqlrow.EventColumns.Targets(&e)...)
				rows = append(rows, e.EventRow)
				return err
			}, eventsBetween, a.Shard(instance), instance, x, after+1, until)
			if err != nil {
				return err
			}
			if !sqlrow.Covered(rows, after, until) && (missed == nil || *missed != end) {
				missed = &end
				continue
			}
			if list, err = sqlrow.Decode(instance, x, after, until, rows); err != nil {
				list = nil
				return &history.Error{Class: history.Corrupt, Op: "read a history", Err: err}
			}
			return nil
		}
	})
	return list, err
}

// ending is where an execution ends.
type ending struct {
	incarnation     string
	execution, last int64
}

// end finds an execution that is kept (0: the current one), and its last event.
func (d dialect) end(ctx context.Context, db sqlrow.DB, instance string, execution int64) (end ending, err error) {
	c, err := d.find(ctx, db, instance)
	switch {
	case err != nil:
		return end, err
	case execution == 0 || execution == c.Execution:
		return ending{c.Incarnation, c.Execution, c.LastEvent}, nil
	}
	end.execution = execution
	err = db.Query(ctx, func(r sqlrow.Row) error { return r.Scan(&end.incarnation, &end.last) },
		"SELECT incarnation, last_event FROM rondo_executions WHERE shard = $1 AND instance = $2 "+
			"AND execution = $3 AND "+
			sqlrow.Alive, d.Shard(instance), instance, execution)
	if err == nil && end.last == 0 {
		err = fmt.Errorf("instance %q, execution %d: %w", instance, execution, history.ErrNoExecution)
	}
	return end, err
}

// Stats implements [history.Reader].
func (a *Admin) Stats(ctx context.Context, instance string) (s history.Stats, err error) {
	defer a.observer.Begin("stats").End(&err)
	err = a.Read(ctx, "measure an instance", func(db sqlrow.DB) error {
		c, err := a.find(ctx, db, instance)
		if err != nil {
			return err
		}
		s = history.Stats{Execution: c.Execution, Events: c.LastEvent, HistoryBytes: c.HistoryBytes,
			Unread: int(c.Unread)}
		return db.Query(ctx, func(r sqlrow.Row) error { return r.Scan(&s.Values, &s.ValueBytes) },
			"SELECT count(*), CAST(coalesce(sum(length(value)), 0) AS INT8) FROM rondo_values WHERE shard = $1 AND "+
				"instance = $2", a.Shard(instance), instance)
	})
	return s, err
}

// CustomStatus implements [history.Reader].
func (a *Admin) CustomStatus(ctx context.Context, instance string, known int64) (s history.CustomStatus, err error) {
	defer a.observer.Begin("custom_status").End(&err)
	err = a.Read(ctx, "read a custom status", func(db sqlrow.DB) error {
		s = history.CustomStatus{}
		var data []byte
		err := db.Query(ctx, func(r sqlrow.Row) error { return r.Scan(&data, &s.Version) },
			"SELECT CASE WHEN custom_status_version <> $3 THEN custom_status END, custom_status_version FROM "+
				"rondo_instances WHERE shard = $1 AND instance = $2 AND "+sqlrow.Alive,
			a.Shard(instance), sqlrow.Key(instance), known)
		s.Changed = s.Version != known
		if s.Changed {
			s.Data = sqlrow.Payload(data)
		}
		return err
	})
	return s, err
}

// Metrics implements [history.Reader].
func (a *Admin) Metrics(ctx context.Context) (m history.Metrics, err error) {
	defer a.observer.Begin("metrics").End(&err)
	err = a.Read(ctx, "count everything", func(db sqlrow.DB) error {
		m = history.Metrics{Instances: make(map[round.Status]int64)}
		err := db.Query(ctx, func(r sqlrow.Row) error {
			var (
				status    string
				n, events int64
			)
			if err := r.Scan(&status, &n, &events); err != nil {
				return err
			}
			if status == sqlrow.Deleting || status == sqlrow.Deleted {
				m.Tombstones += n
				return nil
			}
			m.Instances[round.Status(status)] += n
			m.Executions += n
			m.Events += events
			return nil
		}, "SELECT status, count(*), CAST(sum(last_event) AS INT8) FROM rondo_instances GROUP BY status")
		if err != nil {
			return err
		}
		return db.Query(ctx, func(r sqlrow.Row) error {
			var n, events int64
			err := r.Scan(&n, &events, &m.OutboxEntries)
			m.Executions += n
			m.Events += events
			return err
		}, "SELECT count(*), CAST(coalesce(sum(last_event), 0) AS INT8), (SELECT count(*) FROM rondo_outbox) FROM "+
			"rondo_executions WHERE "+sqlrow.Alive+
			" AND (shard, instance) NOT IN (SELECT shard, instance FROM rondo_instances WHERE status = '"+
			sqlrow.Deleting+"')")
	})
	return m, err
}
