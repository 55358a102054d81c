package sqlrow

import (
	"database/sql"
	"slices"
	"strings"
)

// Column is a column of a table whose rows are kept as R. It is named once: all statements and scan
// targets of both dialects are made of it.
type Column[R any] struct {
	Name    string
	Changes Change
	// Field is where a row has its value: a func(*R) *T for a T of string, int16, int64, bool,
	// []byte, [sql.NullString], [sql.NullInt64] and [Moment].
	Field any

	target func(*R) any
}

// column makes a column.
func column[R, T any](name string, field func(*R) *T) Column[R] {
	return Column[R]{Name: name, Field: field, target: func(r *R) any { return field(r) }}
}

// on is the column with the change that writes it again.
func (c Column[R]) on(change Change) Column[R] {
	c.Changes = change
	return c
}

// Change is when a turn that goes on from a stored row writes a column again. Zero: always.
type Change uint

// The changes since the stored row.
const (
	NewIncarnation  Change = 1 << iota // only then: it keeps its value for the whole incarnation
	NewStatus                          // or name
	NewWake                            // time to wake up
	NewCustomStatus                    // which has a version
	changes         = iota
)

// Changes is the number of sets of changes.
const Changes = 1 << changes

// Columns are columns of one table, in the order of a statement.
type Columns[R any] []Column[R]

// Only are the columns by these names, in that order. It panics if the table does not have one.
func (cs Columns[R]) Only(names ...string) Columns[R] {
	out := make(Columns[R], len(names))
	for i, name := range names {
		at := slices.IndexFunc(cs, func(c Column[R]) bool { return c.Name == name })
		if at < 0 {
			panic("sqlrow: the table has no column " + name)
		}
		out[i] = cs[at]
	}
	return out
}

// Without are the columns but those by these names.
func (cs Columns[R]) Without(names ...string) Columns[R] {
	_ = cs.Only(names...)
	return slices.DeleteFunc(slices.Clone(cs), func(c Column[R]) bool { return slices.Contains(names, c.Name) })
}

// String lists the names, as a statement does.
func (cs Columns[R]) String() string { return cs.prefixed("") }

// Of lists the names with the name of their table before each.
func (cs Columns[R]) Of(table string) string { return cs.prefixed(table + ".") }

func (cs Columns[R]) prefixed(prefix string) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = prefix + c.Name
	}
	return strings.Join(names, ", ")
}

// Targets is where a row is scanned into.
func (cs Columns[R]) Targets(row *R) []any {
	into := make([]any, len(cs))
	for i, c := range cs {
		into[i] = c.target(row)
	}
	return into
}

// ---- The tables.

// Instances are the columns of the table of instances.
var Instances = Columns[InstanceRow]{
	column("shard", func(r *InstanceRow) *int16 { return &r.Shard }).on(NewIncarnation),
	column("instance", func(r *InstanceRow) *string { return &r.Instance }).on(NewIncarnation),
	column("incarnation", func(r *InstanceRow) *string { return &r.Incarnation }).on(NewIncarnation),
	column("execution", func(r *InstanceRow) *int64 { return &r.Execution }),
	column("last_event", func(r *InstanceRow) *int64 { return &r.LastEvent }),
	column("status", func(r *InstanceRow) *string { return &r.Status }).on(NewStatus),
	column("name", func(r *InstanceRow) *string { return &r.Name }).on(NewStatus),
	column("version", func(r *InstanceRow) *string { return &r.Version }),
	column("engine", func(r *InstanceRow) *int64 { return &r.Engine }),
	column("fresh", func(r *InstanceRow) *bool { return &r.Fresh }),
	column("parent_instance", func(r *InstanceRow) *sql.NullString { return &r.Parent.Instance }).on(NewIncarnation),
	column("parent_incarnation",
		func(r *InstanceRow) *sql.NullString { return &r.Parent.Incarnation }).on(NewIncarnation),
	column("parent_execution", func(r *InstanceRow) *sql.NullInt64 { return &r.Parent.Execution }).on(NewIncarnation),
	column("parent_event", func(r *InstanceRow) *sql.NullInt64 { return &r.Parent.Event }).on(NewIncarnation),
	column("attributes", func(r *InstanceRow) *[]byte { return &r.Attributes }).on(NewIncarnation),
	column("trace", func(r *InstanceRow) *sql.NullString { return &r.Trace }).on(NewIncarnation),
	column("start_message", func(r *InstanceRow) *sql.NullString { return &r.StartMessage }).on(NewIncarnation),
	column("output", func(r *InstanceRow) *[]byte { return &r.Output }),
	column("error", func(r *InstanceRow) *[]byte { return &r.Error }),
	column("custom_status", func(r *InstanceRow) *[]byte { return &r.CustomStatus }).on(NewCustomStatus),
	column("custom_status_version", func(r *InstanceRow) *int64 { return &r.CustomStatusVersion }),
	column("history_bytes", func(r *InstanceRow) *int64 { return &r.HistoryBytes }),
	column("unread", func(r *InstanceRow) *int64 { return &r.Unread }),
	column("created_at", func(r *InstanceRow) *Moment { return &r.CreatedAt }).on(NewIncarnation),
	column("started_at", func(r *InstanceRow) *Moment { return &r.StartedAt }),
	column("updated_at", func(r *InstanceRow) *Moment { return &r.UpdatedAt }),
	column("ended_at", func(r *InstanceRow) *Moment { return &r.EndedAt }),
	column("wake_at", func(r *InstanceRow) *Moment { return &r.WakeAt }).on(NewWake),
}

// ParentColumns are the names of the columns about the parent of an instance.
var ParentColumns = []string{"parent_instance", "parent_incarnation", "parent_execution", "parent_event"}

// Executions are the columns of the table of former executions. Their rows are those that the table
// of instances had.
var Executions = Instances.Only("shard", "instance", "execution", "incarnation", "name", "version", "engine", "status",
	"output", "error", "started_at", "ended_at", "last_event", "history_bytes")

// History are the columns of the table of histories.
var History = Columns[HistoryRow]{
	column("shard", func(r *HistoryRow) *int16 { return &r.Shard }),
	column("instance", func(r *HistoryRow) *string { return &r.Instance }),
	column("execution", func(r *HistoryRow) *int64 { return &r.Execution }),
	column("event", func(r *HistoryRow) *int64 { return &r.Event }),
	column("last_event", func(r *HistoryRow) *int64 { return &r.Last }),
	column("data", func(r *HistoryRow) *[]byte { return &r.Data }),
}

// EventColumns are those of the columns of histories that are read.
var EventColumns = History.Only("event", "last_event", "data")

// ValueRow is a row of the table of values.
type ValueRow struct {
	Shard         int16
	Instance, Key string
	Value         []byte
	Execution     int64
	Set           Moment
}

// Values are the columns of the table of values.
var Values = Columns[ValueRow]{
	column("shard", func(r *ValueRow) *int16 { return &r.Shard }),
	column("instance", func(r *ValueRow) *string { return &r.Instance }),
	column("key", func(r *ValueRow) *string { return &r.Key }),
	column("value", func(r *ValueRow) *[]byte { return &r.Value }),
	column("execution", func(r *ValueRow) *int64 { return &r.Execution }),
	column("set_at", func(r *ValueRow) *Moment { return &r.Set }),
}

// AttributeRow is a row of the table of attributes.
type AttributeRow struct {
	Shard                 int16
	Instance, Name, Value string
	CreatedAt             Moment
}

// Attributes are the columns of the table of attributes.
var Attributes = Columns[AttributeRow]{
	column("shard", func(r *AttributeRow) *int16 { return &r.Shard }),
	column("instance", func(r *AttributeRow) *string { return &r.Instance }),
	column("name", func(r *AttributeRow) *string { return &r.Name }),
	column("value", func(r *AttributeRow) *string { return &r.Value }),
	column("created_at", func(r *AttributeRow) *Moment { return &r.CreatedAt }),
}

// ScheduleRow is a row of the table of schedules.
type ScheduleRow struct {
	ID             string
	Version, Token int64
	WakeAt         Moment
	ChangedAt      Moment
	Data           []byte
}

// Schedules are the columns of the table of schedules.
var Schedules = Columns[ScheduleRow]{
	column("id", func(r *ScheduleRow) *string { return &r.ID }),
	column("version", func(r *ScheduleRow) *int64 { return &r.Version }),
	column("token", func(r *ScheduleRow) *int64 { return &r.Token }),
	column("wake_at", func(r *ScheduleRow) *Moment { return &r.WakeAt }),
	column("changed_at", func(r *ScheduleRow) *Moment { return &r.ChangedAt }),
	column("data", func(r *ScheduleRow) *[]byte { return &r.Data }),
}
