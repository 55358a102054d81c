package sqlite

import (
	"context"
	"database/sql"
	"math/bits"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// ---- Many rows with one statement.

// insertion inserts rows into a table. Rows are inserted 64 at a time, what is left 32 at a time,
// and so on, so that few different statements are needed.
type insertion struct {
	statements [maxRows + 1]string // for 1, 2, 4, … rows
}

const maxRows = 6

func newInsertion(table, columns, conflict string) *insertion {
	row := "(?" + strings.Repeat(", ?", strings.Count(columns, ",")) + ")"
	in := new(insertion)
	for i := range in.statements {
		in.statements[i] = "INSERT INTO " + table + " (" + columns + ") VALUES " + row + strings.Repeat(", "+row,
			1<<i-1) + conflict
	}
	return in
}

var (
	insertInstances  = newInsertion("rondo_instances", names(instanceColumns), "")
	insertHistory    = newInsertion("rondo_history", "instance, execution, event, last_event, data", "")
	insertExecutions = newInsertion("rondo_executions",
		"instance, execution, incarnation, name, version, engine, status, started_at, ended_at, last_event, "+
			"history_bytes, "+
			"error, output", "")
	insertValues = newInsertion("rondo_values", "instance, key, execution, set_at, value",
		" ON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = excluded.execution, "+
			"set_at = excluded.set_at")
	insertAttributes = newInsertion("rondo_attributes", "name, value, created_at, instance", " ON CONFLICT DO NOTHING")
)

// insert inserts rows; args appends the parameters of one.
func insert[E any](ctx context.Context, w *session, in *insertion, rows []E, args func([]any, E) []any) error {
	var all []any
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		power := min(bits.Len(uint(len(rows)))-1, maxRows)
		all = all[:0]
		for _, r := range rows[:1<<power] {
			all = args(all, r)
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

// ---- Instances.

// kind says when a column of an instance must be written again. Columns that indexes are made of
// are left alone if they can be: writing one changes the indexes, even to what they are.
type kind uint

const (
	always kind = 0
	// What has changed since the row that is there:
	newIncarnation kind = 1 << (iota - 1)
	newStatus
	newWake
	newCustomStatus

	kinds = iota - 1
)

// column is a column of the table of instances, in the order in which its parameters come.
type column struct {
	name  string
	kind  kind
	value func(*entry) any
}

var instanceColumns = []column{
	{"instance", newIncarnation, func(e *entry) any { return e.Columns.Instance }},
	{"incarnation", newIncarnation, func(e *entry) any { return e.Columns.Incarnation }},
	{"execution", always, func(e *entry) any { return e.Columns.Execution }},
	{"last_event", always, func(e *entry) any { return e.Columns.LastEvent }},
	{"status", newStatus, func(e *entry) any { return e.Columns.Status }},
	{"name", newStatus, func(e *entry) any { return e.Columns.Name }},
	{"version", always, func(e *entry) any { return e.Columns.Version }},
	{"engine", always, func(e *entry) any { return e.Columns.Engine }},
	{"fresh", always, func(e *entry) any { return e.Columns.Fresh }},
	{"custom_status_version", always, func(e *entry) any { return e.Columns.CustomStatusVersion }},
	{"history_bytes", always, func(e *entry) any { return e.Columns.HistoryBytes }},
	{"unread", always, func(e *entry) any { return e.Columns.Unread }},
	{"created_at", newIncarnation, func(e *entry) any { return micro(e.Columns.CreatedAt.Time) }},
	{"started_at", always, func(e *entry) any { return micro(e.Columns.StartedAt.Time) }},
	{"updated_at", always, func(e *entry) any { return micro(e.Columns.UpdatedAt.Time) }},
	{"ended_at", always, func(e *entry) any { return micro(e.Columns.EndedAt.Time) }},
	{"wake_at", newWake, func(e *entry) any { return micro(e.Columns.WakeAt.Time) }},
	{"parent_instance", newIncarnation, func(e *entry) any { return text(e.Columns.ParentInstance) }},
	{"parent_incarnation", newIncarnation, func(e *entry) any { return text(e.Columns.ParentIncarnation) }},
	{"parent_execution", newIncarnation, func(e *entry) any { return number(e.Columns.ParentExecution) }},
	{"parent_event", newIncarnation, func(e *entry) any { return number(e.Columns.ParentEvent) }},
	{"trace", newIncarnation, func(e *entry) any { return text(e.Columns.Trace) }},
	{"start_message", newIncarnation, func(e *entry) any { return text(e.Columns.StartMessage) }},
	{"attributes", newIncarnation, func(e *entry) any { return blob(e.Columns.Attributes) }},
	{"error", always, func(e *entry) any { return blob(e.Columns.Error) }},
	{"custom_status", newCustomStatus, func(e *entry) any { return blob(e.Columns.CustomStatus) }},
	{"output", always, func(e *entry) any { return blob(e.Columns.Output) }},
}

func names(columns []column) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.name
	}
	return strings.Join(list, ", ")
}

// update changes the row of an instance.
type update struct {
	columns   []column
	statement string
}

// updates are the statements for each set of changes.
var updates = func() (list [1 << kinds]update) {
	for set := range list {
		u := &list[set]
		for _, c := range instanceColumns {
			if c.name != "instance" && (c.kind == always || kind(set)&c.kind != 0) {
				u.columns = append(u.columns, c)
			}
		}
		u.statement = "UPDATE rondo_instances SET (" + names(u.columns) + ") = (?" + strings.Repeat(", ?",
			len(u.columns)-1) +
			") WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?"
	}
	return list
}()

// changes says what of the row that is there must be written again. A new incarnation takes nothing
// from the one before.
func (e *entry) changes() kind {
	is, was := &e.Columns, e.found
	if is.Incarnation != was.Incarnation {
		return newIncarnation | newStatus | newWake | newCustomStatus
	}
	var set kind
	if is.Status != was.Status || is.Name != was.Name {
		set |= newStatus
	}
	if micro(is.WakeAt.Time) != micro(was.WakeAt.Time) {
		set |= newWake
	}
	if is.CustomStatusVersion != was.CustomStatusVersion {
		set |= newCustomStatus
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
	relational.TurnRow
}

// write stores turns that are taken, but for what they promise.
func write(ctx context.Context, w *session, entries []*entry) error {
	if err := writeInstances(ctx, w, entries); err != nil {
		return err
	}
	var rows []historyRow
	for _, e := range entries {
		var instance any = e.Turn.Instance
		for _, r := range e.Rows {
			rows = append(rows, historyRow{instance, r})
		}
	}
	err := insert(ctx, w, insertHistory, rows, func(to []any, r historyRow) []any {
		return append(to, r.instance, r.Execution, r.Event, r.Last, r.Data)
	})
	if err != nil {
		return err
	}
	var former []relational.Columns
	for _, e := range entries {
		former = append(former, e.Former...)
	}
	err = insert(ctx, w, insertExecutions, former, func(to []any, c relational.Columns) []any {
		return append(to, c.Instance, c.Execution, c.Incarnation, c.Name, c.Version, c.Engine, c.Status,
			micro(c.StartedAt.Time), micro(c.EndedAt.Time),
			c.LastEvent, c.HistoryBytes, blob(c.Error), blob(c.Output))
	})
	if err != nil {
		return err
	}
	if err := writeValues(ctx, w, entries); err != nil {
		return err
	}
	return writeAttributes(ctx, w, entries)
}

// writeInstances inserts new instances, and takes known ones further.
func writeInstances(ctx context.Context, w *session, entries []*entry) error {
	var fresh []*entry
	var args []any
	for _, e := range entries {
		if e.found == nil {
			fresh = append(fresh, e)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		u := &updates[e.changes()]
		args = args[:0]
		for _, c := range u.columns {
			args = append(args, c.value(e))
		}
		b := e.Turn.Expected
		n, err := w.exec(u.statement, append(args, e.Turn.Instance, b.Incarnation, b.Execution, b.LastEvent)...)
		if err != nil {
			return err
		}
		if n != 1 {
			panic("sqlite: an instance was changed by somebody else in the midst of a transaction")
		}
	}
	return insert(ctx, w, insertInstances, fresh, func(to []any, e *entry) []any {
		for _, c := range instanceColumns {
			to = append(to, c.value(e))
		}
		return to
	})
}

// writeValues changes the values of instances.
func writeValues(ctx context.Context, w *session, entries []*entry) error {
	type valueRow struct {
		*entry
		which int // of its values
	}
	var set []valueRow
	for _, e := range entries {
		if e.Turn.ClearValues {
			if _, err := w.exec("DELETE FROM rondo_values WHERE shard = 0 AND instance = ?",
				e.Turn.Instance); err != nil {
				return err
			}
		}
		for i, v := range e.Turn.Values {
			switch {
			case !v.Removed:
				set = append(set, valueRow{e, i})
			case !e.Turn.ClearValues:
				if _, err := w.exec("DELETE FROM rondo_values WHERE shard = 0 AND instance = ? AND key = ?",
					e.Turn.Instance, v.Key); err != nil {
					return err
				}
			}
		}
	}
	return insert(ctx, w, insertValues, set, func(to []any, r valueRow) []any {
		v := r.Turn.Values[r.which]
		return append(to, r.Turn.Instance, v.Key, v.Execution, micro(v.Set), blob(v.Value))
	})
}

// writeAttributes stores what instances are started with, in place of what their last incarnation
// was started with.
func writeAttributes(ctx context.Context, w *session, entries []*entry) error {
	type attribute struct {
		*entry
		name, value string
	}
	var all []attribute
	for _, e := range entries {
		if !e.isNewIncarnation() {
			continue
		}
		if f := e.found; f != nil && len(f.Attributes) > 0 {
			if err := dialect.DropAttributes(ctx, w, f.Instance, f.CreatedAt.Time, f.Attributes); err != nil {
				return err
			}
		}
		names, values := relational.AttributePairs(e.Turn.Row.Attributes)
		for i := range names {
			all = append(all, attribute{e, names[i], values[i]})
		}
	}
	return insert(ctx, w, insertAttributes, all, func(to []any, a attribute) []any {
		return append(to, a.name, a.value, micro(a.Columns.CreatedAt.Time), a.Turn.Instance)
	})
}
