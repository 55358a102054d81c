// Package relational is what the stores on SQL databases have in common: how an instance becomes a
// row, and everything that is asked and removed with plain statements. What is fast or peculiar to
// a database, such as the commit, is in the store of that database.
package relational

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// DB runs statements. Parameters are $1, $2, …
type DB interface {
	// Query calls scan for each row.
	Query(ctx context.Context, scan func(Row) error, statement string, args ...any) error
	// Exec gives the number of rows that were changed.
	Exec(ctx context.Context, statement string, args ...any) (int64, error)
}

// Statement is a statement with its parameters.
type Statement struct {
	Text string
	Args []any
}

// Together is a DB that can be sent several statements at once. It gives how many rows each has
// changed.
type Together interface {
	ExecAll(ctx context.Context, statements []Statement) ([]int64, error)
}

// execAll runs statements in their order, sent at once where that is possible.
func execAll(ctx context.Context, db DB, statements []Statement) (rows []int64, err error) {
	if t, ok := db.(Together); ok && len(statements) > 1 {
		return t.ExecAll(ctx, statements)
	}
	for _, s := range statements {
		n, err := db.Exec(ctx, s.Text, s.Args...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, n)
	}
	return rows, nil
}

// Row is a row to be scanned.
type Row interface{ Scan(into ...any) error }

// Transactor runs functions in transactions, and again if the database asks for it.
type Transactor interface {
	// Read runs what changes nothing.
	Read(ctx context.Context, op string, f func(DB) error) error
	// ReadOften is for statements of which there are few, so that they are worth preparing.
	ReadOften(ctx context.Context, op string, f func(DB) error) error
	// Write runs f in one transaction. f must not keep anything from an earlier try.
	Write(ctx context.Context, op string, f func(DB) error) error
	// WriteOnce is like Write for what would do harm if it were done twice: after a commit that may
	// have happened or not it calls doubted, and f must find out if it is run again.
	WriteOnce(ctx context.Context, op string, doubted func(), f func(DB) error) error
}

// Dialect is how databases differ in plain statements.
type Dialect struct {
	// Shards is the number of shards that are in use, 1 or [history.Shards].
	Shards int
	// Time is how a time is passed as a parameter.
	Time func(time.Time) any
	// Lock ends a SELECT that locks what it reads.
	Lock string
}

// Shard is the shard of an instance.
func (d Dialect) Shard(instance string) int16 {
	if d.Shards == 1 {
		return 0
	}
	return history.ShardOf(instance)
}

// The statuses of a row whose instance was deleted. An execution that is being pruned is Deleting,
// too.
const (
	Deleting = "deleting" // what it left behind is still being erased
	Deleted  = "deleted"  // all of it is gone
)

// Alive is the condition that a row is not a tombstone.
const Alive = `status NOT IN ('deleting', 'deleted')`

// ---- Rows.

// Moment is a time that may be missing, as databases give it.
type Moment struct{ time.Time }

// Scan implements [sql.Scanner].
func (m *Moment) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		m.Time = time.Time{}
	case time.Time:
		m.Time = v.UTC()
	case int64:
		m.Time = time.UnixMicro(v).UTC()
	default:
		return fmt.Errorf("%T is no time", src)
	}
	return nil
}

// Columns is a row of the table of instances.
type Columns struct {
	Shard    int16
	Instance string

	Incarnation          string
	Execution, LastEvent int64
	Status               string
	Name, Version        string
	Engine               int64
	Fresh                bool

	ParentInstance, ParentIncarnation sql.NullString
	ParentExecution, ParentEvent      sql.NullInt64

	Attributes          []byte
	Trace, StartMessage sql.NullString

	Output, Error       []byte
	CustomStatus        []byte
	CustomStatusVersion int64

	HistoryBytes, Unread                             int64
	CreatedAt, StartedAt, UpdatedAt, EndedAt, WakeAt Moment
}

// ColumnNames are the names of the columns, in the order of Targets.
const ColumnNames = `shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh,
	parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message,
	output, error, custom_status, custom_status_version, history_bytes, unread,
	created_at, started_at, updated_at, ended_at, wake_at`

// Prefixed writes the names of columns with the name of their table before them.
func Prefixed(table, names string) string {
	fields := strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	return table + "." + strings.Join(fields, ", "+table+".")
}

// Targets is where a row is scanned into.
func (c *Columns) Targets() []any {
	return []any{
		&c.Shard, &c.Instance, &c.Incarnation, &c.Execution, &c.LastEvent, &c.Status, &c.Name, &c.Version,
		&c.Engine, &c.Fresh,
		&c.ParentInstance, &c.ParentIncarnation, &c.ParentExecution, &c.ParentEvent, &c.Attributes, &c.Trace,
		&c.StartMessage,
		&c.Output, &c.Error, &c.CustomStatus, &c.CustomStatusVersion, &c.HistoryBytes, &c.Unread,
		&c.CreatedAt, &c.StartedAt, &c.UpdatedAt, &c.EndedAt, &c.WakeAt,
	}
}

// FromRow writes a row as columns, without those that the dialect knows (shard) and those that only
// the database knows (created_at).
func FromRow(instance string, r round.Row) (Columns, error) {
	c := Columns{
		Instance: instance, Incarnation: r.Incarnation, Execution: r.Execution, LastEvent: r.LastEvent,
		Status: string(r.Status),
		Name:   text(r.Name), Version: text(r.Version), Engine: int64(r.Engine), Fresh: r.Fresh,
		Trace: nullText(r.Trace), StartMessage: nullText(r.StartMessage),
		Output: r.Output, CustomStatus: r.CustomStatus, CustomStatusVersion: r.CustomStatusVersion,
		HistoryBytes: r.HistoryBytes, Unread: int64(r.Unread),
		StartedAt: Moment{r.StartedAt}, UpdatedAt: Moment{r.UpdatedAt}, EndedAt: Moment{r.EndedAt},
		WakeAt: Moment{r.WakeAt},
	}
	if p := r.Parent; p != nil {
		c.ParentInstance, c.ParentIncarnation = nullText(p.Instance), nullText(p.Incarnation)
		c.ParentExecution, c.ParentEvent = sql.NullInt64{Int64: p.Execution, Valid: true},
			sql.NullInt64{Int64: p.Event, Valid: true}
	}
	var err error
	if len(r.Attributes) > 0 {
		c.Attributes, err = json.Marshal(r.Attributes)
	}
	if r.Error != nil && err == nil {
		c.Error, err = json.Marshal(r.Error)
	}
	if err != nil {
		return c, fmt.Errorf("instance %q: its row cannot be written: %w", instance, err)
	}
	return c, nil
}

// Row reads the columns. The error says which column cannot be read; the rest of the row is there
// all the same.
func (c *Columns) Row() (round.Row, error) {
	r := round.Row{
		Execution: c.Execution, Incarnation: c.Incarnation, Engine: int(c.Engine), Name: c.Name, Version: c.Version,
		Trace: c.Trace.String, StartMessage: c.StartMessage.String, Status: round.Status(c.Status),
		Output: payload(c.Output), CustomStatus: payload(c.CustomStatus), CustomStatusVersion: c.CustomStatusVersion,
		StartedAt: c.StartedAt.Time, UpdatedAt: c.UpdatedAt.Time, EndedAt: c.EndedAt.Time, WakeAt: c.WakeAt.Time,
		Fresh: c.Fresh, LastEvent: c.LastEvent, HistoryBytes: c.HistoryBytes, Unread: int(c.Unread),
	}
	if c.ParentInstance.Valid {
		r.Parent = &events.Parent{
			Instance: c.ParentInstance.String, Incarnation: c.ParentIncarnation.String,
			Execution: c.ParentExecution.Int64,
			Event:     c.ParentEvent.Int64,
		}
	}
	var bad error
	fail := func(column string, err error) {
		if bad == nil && err != nil {
			bad = &history.UnreadableError{Instance: c.Instance, Execution: c.Execution, Column: column, Err: err}
		}
	}
	if !slices.Contains(round.Statuses(), r.Status) {
		fail("status", fmt.Errorf("there is no status %q", c.Status))
	}
	if len(c.Attributes) > 0 {
		fail("attributes", json.Unmarshal(c.Attributes, &r.Attributes))
	}
	if len(c.Error) > 0 {
		r.Error = new(events.Error)
		if err := json.Unmarshal(c.Error, r.Error); err != nil {
			r.Error = nil
			fail("error", err)
		}
	}
	return r, bad
}

// RowVersion is the version of the row, read without the rest of it.
func (c *Columns) RowVersion() round.RowVersion {
	if c.Tombstone() {
		return round.RowVersion{}
	}
	return round.RowVersion{Incarnation: c.Incarnation, Execution: c.Execution, LastEvent: c.LastEvent,
		CustomStatusVersion: c.CustomStatusVersion}
}

// Tombstone reports whether the instance was deleted.
func (c *Columns) Tombstone() bool { return c.Status == Deleting || c.Status == Deleted }

// Info is the row for people.
func (c *Columns) Info() history.Info {
	row, err := c.Row()
	return history.Info{Instance: c.Instance, CreatedAt: c.CreatedAt.Time, Row: row, Problem: err}
}

// Refusal says why a turn was not taken, given what there is instead of what the turn was decided
// on.
func Refusal(turn *round.Turn, found *Columns, parentGone bool) history.Outcome {
	switch {
	case found == nil && turn.Expected.Execution == 0 && parentGone:
		return history.Outcome{Status: history.ParentDeleted}
	case found == nil:
		return history.Outcome{Status: history.Conflict}
	case found.Status == Deleting && turn.Expected.Execution == 0:
		return history.Outcome{Status: history.Deleting}
	case found.Status == Deleted && turn.Expected.Execution == 0 &&
		found.StartMessage.String == text(turn.Row.StartMessage):
		return history.Outcome{Status: history.Deleted}
	case found.Status == Deleted && turn.Expected.Execution == 0 && parentGone:
		return history.Outcome{Status: history.ParentDeleted}
	}
	return history.Outcome{Status: history.Conflict, Actual: found.RowVersion()}
}

// text is s as every database takes it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
}

// storable reports whether a text can be in a database as it is.
func storable(s string) bool { return s == text(s) }

// Key is the id of an instance, or the key of a value, as a parameter: one that no database could
// hold becomes the empty one, which nobody has.
func Key(s string) string {
	if !storable(s) {
		return ""
	}
	return s
}

func nullText(s string) sql.NullString {
	return sql.NullString{String: text(s), Valid: s != ""}
}

// payload is nil where the database has an empty value.
func payload(b []byte) events.Payload {
	if len(b) == 0 {
		return nil
	}
	return b
}

// ---- Histories.

// EventRow is a row of the table of histories, with the events from one to another.
type EventRow struct {
	Event, Last int64
	Data        []byte
}

// Covered reports whether rows, in their order, have all events behind one up to another.
func Covered(rows []EventRow, after, last int64) bool {
	for _, r := range rows {
		if r.Event > after+1 {
			break
		}
		after = max(after, r.Last)
	}
	return after >= last
}

// Decode reads the events behind one up to another from rows of history, in their order.
func Decode(instance string, execution, after, last int64, rows []EventRow) ([]events.Event, error) {
	out := make([]events.Event, 0, max(0, min(last-after, rowEvents*int64(len(rows)))))
	unreadable := func(event int64, err error) error {
		return &history.UnreadableError{Instance: instance, Execution: execution, Event: event,
			Column: "data", Err: err}
	}
	for _, r := range rows {
		line, rest := []byte(nil), r.Data
		for id := r.Event; id <= min(r.Last, last); id++ {
			if line = rest; id < r.Last {
				line, rest, _ = bytes.Cut(rest, []byte{'\n'})
			}
			want := after + int64(len(out)) + 1
			if id < want {
				continue
			}
			if id > want {
				return out, unreadable(want, errMissing)
			}
			e, err := events.DecodeEvent(line)
			if err != nil {
				return out, unreadable(id, err)
			}
			if e.ID != id {
				return out, unreadable(id, fmt.Errorf("it has event %d", e.ID))
			}
			out = append(out, e)
		}
	}
	if end := after + int64(len(out)); end < last {
		return out, unreadable(end+1, errMissing)
	}
	return out, nil
}

var errMissing = errors.New("the row is missing")

// Loaded puts together what is known of an instance from its row and its history up to there.
func Loaded(c *Columns, rows []EventRow, admitted bool) round.Known {
	k := round.Known{Instance: c.Instance}
	k.Row, k.Unreadable = c.Row()
	if !admitted || k.Unreadable != nil {
		return k
	}
	k.History, k.Unreadable = Decode(c.Instance, c.Execution, 0, c.LastEvent, rows)
	if k.Unreadable != nil {
		k.History = nil
	}
	return k
}

// ---- Attributes.

// AttributePairs lists attributes in a stable order.
func AttributePairs(attributes map[string]string) (names, values []string) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		names, values = append(names, text(name)), append(values, text(attributes[name]))
	}
	return names, values
}
