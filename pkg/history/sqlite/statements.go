package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// ---- Many rows with one statement.

// insertion inserts rows into a table. Rows are inserted 64 at a time, the rest 32 at a time, and
// so on, so that few different statements are needed.
type insertion struct {
	statements [maxRows + 1]string // for 1, 2, 4, … rows
}

const maxRows = 6

func newInsertion[R any](table string, columns sqlrow.Columns[R], conflict string) *insertion {
	row := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	in := new(insertion)
	for i := range in.statements {
		in.statements[i] = "INSERT INTO " + table + " (" + columns.String() + ") VALUES " + row +
			strings.Repeat(", "+row, 1<<i-1) + conflict
	}
	return in
}

// The columns of the tables that are written: the shard is 0 everywhere.
var (
	instanceColumns  = sqlrow.Instances.Without("shard")
	historyColumns   = sqlrow.History.Without("shard")
	executionColumns = sqlrow.Executions.Without("shard")
	valueColumns     = sqlrow.Values.Without("shard")
	attributeColumns = sqlrow.Attributes.Without("shard")
)

var (
	insertInstances  = newInsertion("rondo_instances", instanceColumns, "")
	insertHistory    = newInsertion("rondo_history", historyColumns, "")
	insertExecutions = newInsertion("rondo_executions", executionColumns, "")
	insertValues     = newInsertion("rondo_values", valueColumns,
		" ON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = excluded.execution, "+
			"set_at = excluded.set_at")
	insertAttributes = newInsertion("rondo_attributes", attributeColumns, " ON CONFLICT DO NOTHING")
)

// insert inserts rows; args appends the parameters of one.
func insert[E any](ctx context.Context, w *session, in *insertion, rows []E, args func([]any, *E) []any) error {
	var all []any
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		power := min(bits.Len(uint(len(rows)))-1, maxRows)
		all = all[:0]
		for i := range rows[:1<<power] {
			all = args(all, &rows[i])
		}
		if _, err := w.exec(in.statements[power], all...); err != nil {
			return err
		}
		rows = rows[1<<power:]
	}
	return nil
}

// ---- Values as parameters.

// micro is a time as a parameter, NULL for none.
func micro(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func text(s sql.NullString) any {
	if !s.Valid {
		return nil
	}
	return s.String
}

func number(n sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}

func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// parameters gives the values of columns as parameters.
type parameters[R any] []func(*R) any

func parametersOf[R any](columns sqlrow.Columns[R]) parameters[R] {
	p := make(parameters[R], len(columns))
	for i, c := range columns {
		switch f := c.Field.(type) {
		case func(*R) *string:
			p[i] = func(r *R) any { return *f(r) }
		case func(*R) *int64:
			p[i] = func(r *R) any { return *f(r) }
		case func(*R) *bool:
			p[i] = func(r *R) any { return *f(r) }
		case func(*R) *[]byte:
			p[i] = func(r *R) any { return blob(*f(r)) }
		case func(*R) *sql.NullString:
			p[i] = func(r *R) any { return text(*f(r)) }
		case func(*R) *sql.NullInt64:
			p[i] = func(r *R) any { return number(*f(r)) }
		case func(*R) *sqlrow.Moment:
			p[i] = func(r *R) any { return micro(f(r).Time) }
		default:
			panic(fmt.Sprintf("sqlite: column %s is a %T", c.Name, c.Field))
		}
	}
	return p
}

// append appends the parameters of a row.
func (p parameters[R]) append(to []any, row *R) []any {
	for _, value := range p {
		to = append(to, value(row))
	}
	return to
}

var (
	instanceParameters  = parametersOf(instanceColumns)
	historyParameters   = parametersOf(historyColumns[1:]) // behind the instance
	executionParameters = parametersOf(executionColumns)
	valueParameters     = parametersOf(valueColumns)
	attributeParameters = parametersOf(attributeColumns)
)

// ---- Instances.

// update changes the row of an instance. The store does not write indexed columns without need:
// writing one rewrites the indexes, even if its value stays the same.
type update struct {
	parameters parameters[sqlrow.InstanceRow]
	statement  string
}

// updates are the statements for each set of changes.
var updates = func() (list [sqlrow.Changes]update) {
	for set := range list {
		columns := slices.DeleteFunc(instanceColumns.Without("instance"),
			func(c sqlrow.Column[sqlrow.InstanceRow]) bool {
				return c.Changes != 0 && sqlrow.Change(set)&c.Changes == 0
			})
		list[set] = update{parametersOf(columns),
			"UPDATE rondo_instances SET (" + columns.String() + ") = (?" + strings.Repeat(", ?", len(columns)-1) +
				") WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?"}
	}
	return list
}()

// changes are the changes of the stored row, whose columns must be written again. A new incarnation
// takes nothing from the one before.
func (e *entry) changes() sqlrow.Change {
	is, was := &e.Columns, e.found
	if is.Incarnation != was.Incarnation {
		return sqlrow.Changes - 1
	}
	var set sqlrow.Change
	if is.Status != was.Status || is.Name != was.Name {
		set |= sqlrow.NewStatus
	}
	if micro(is.WakeAt.Time) != micro(was.WakeAt.Time) {
		set |= sqlrow.NewWake
	}
	if is.CustomStatusVersion != was.CustomStatusVersion {
		set |= sqlrow.NewCustomStatus
	}
	return set
}

// isNewIncarnation reports whether an incarnation begins with the turn.
func (e *entry) isNewIncarnation() bool {
	return e.found == nil || e.found.Incarnation != e.Columns.Incarnation
}

// ---- The rows of turns.

// historyRow is a row of history with whose it is: a string that is made a parameter once for all
// rows of a turn.
type historyRow struct {
	instance any
	*sqlrow.HistoryRow
}

// write stores turns that are taken, but for their messages.
func write(ctx context.Context, w *session, entries []*entry) error {
	if err := writeInstances(ctx, w, entries); err != nil {
		return err
	}
	var rows []historyRow
	for _, e := range entries {
		var instance any = e.Turn.Instance
		for i := range e.Rows {
			rows = append(rows, historyRow{instance, &e.Rows[i]})
		}
	}
	err := insert(ctx, w, insertHistory, rows, func(to []any, r *historyRow) []any {
		return historyParameters.append(append(to, r.instance), r.HistoryRow)
	})
	if err != nil {
		return err
	}
	var former []sqlrow.InstanceRow
	for _, e := range entries {
		former = append(former, e.Former...)
	}
	if err := insert(ctx, w, insertExecutions, former, executionParameters.append); err != nil {
		return err
	}
	if err := writeValues(ctx, w, entries); err != nil {
		return err
	}
	return writeAttributes(ctx, w, entries)
}

// writeInstances inserts new instances, and takes known ones further.
func writeInstances(ctx context.Context, w *session, entries []*entry) error {
	var fresh []*sqlrow.InstanceRow
	var args []any
	for _, e := range entries {
		if e.found == nil {
			fresh = append(fresh, &e.Columns)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		u := &updates[e.changes()]
		args = u.parameters.append(args[:0], &e.Columns)
		b := e.Turn.Expected
		n, err := w.exec(u.statement, append(args, e.Turn.Instance, b.Incarnation, b.Execution, b.LastEvent)...)
		if err != nil {
			return err
		}
		if n != 1 {
			panic("sqlite: an instance was changed by somebody else in the midst of a transaction")
		}
	}
	return insert(ctx, w, insertInstances, fresh, func(to []any, r **sqlrow.InstanceRow) []any {
		return instanceParameters.append(to, *r)
	})
}

// writeValues changes the values of instances.
func writeValues(ctx context.Context, w *session, entries []*entry) error {
	var set []sqlrow.ValueRow
	for _, e := range entries {
		if e.Turn.ClearValues {
			if _, err := w.exec("DELETE FROM rondo_values WHERE shard = 0 AND instance = ?",
				e.Turn.Instance); err != nil {
				return err
			}
		}
		for _, v := range e.Turn.Values {
			switch {
			case !v.Removed:
				set = append(set, sqlrow.ValueRow{Instance: e.Turn.Instance, Key: v.Key, Value: v.Value,
					Execution: v.Execution, Set: sqlrow.Moment{Time: v.Set}})
			case !e.Turn.ClearValues:
				if _, err := w.exec("DELETE FROM rondo_values WHERE shard = 0 AND instance = ? AND key = ?",
					e.Turn.Instance, v.Key); err != nil {
					return err
				}
			}
		}
	}
	return insert(ctx, w, insertValues, set, valueParameters.append)
}

// writeAttributes stores the attributes of new incarnations, in the place of those of the ones
// before.
func writeAttributes(ctx context.Context, w *session, entries []*entry) error {
	var all []sqlrow.AttributeRow
	for _, e := range entries {
		if !e.isNewIncarnation() {
			continue
		}
		if f := e.found; f != nil && len(f.Attributes) > 0 {
			if err := dialect.DropAttributes(ctx, w, f.Instance, f.CreatedAt.Time, f.Attributes); err != nil {
				return err
			}
		}
		names, values := sqlrow.AttributePairs(e.Turn.Row.Attributes)
		for i := range names {
			all = append(all, sqlrow.AttributeRow{Instance: e.Turn.Instance, Name: names[i], Value: values[i],
				CreatedAt: e.Columns.CreatedAt})
		}
	}
	return insert(ctx, w, insertAttributes, all, attributeParameters.append)
}
