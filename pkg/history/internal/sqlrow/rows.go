package sqlrow

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

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

// InstanceRow is a row of the table of instances, or of former executions.
type InstanceRow struct {
	Shard    int16
	Instance string

	Incarnation          string
	Execution, LastEvent int64
	Status               string
	Name, Version        string
	Engine               int64
	Fresh                bool

	Parent ParentRef

	Attributes          []byte
	Trace, StartMessage sql.NullString

	Output, Error       []byte
	CustomStatus        []byte
	CustomStatusVersion int64

	HistoryBytes, Unread                             int64
	CreatedAt, StartedAt, UpdatedAt, EndedAt, WakeAt Moment
}

// ParentRef is what a row has about the parent of its instance; NULLs if there is none.
type ParentRef struct {
	Instance, Incarnation sql.NullString
	Execution, Event      sql.NullInt64
}

// fromRow writes a row as columns, without those that the dialect knows (shard) and those that only
// the database knows (created_at).
func fromRow(instance string, r round.Row) (InstanceRow, error) {
	c := InstanceRow{
		Instance: instance, Incarnation: r.Incarnation, Execution: r.Execution, LastEvent: r.LastEvent,
		Status: string(r.Status),
		Name:   Text(r.Name), Version: Text(r.Version), Engine: int64(r.Engine), Fresh: r.Fresh,
		Trace: NullText(r.Trace), StartMessage: NullText(r.StartMessage),
		Output: r.Output, CustomStatus: r.CustomStatus, CustomStatusVersion: r.CustomStatusVersion,
		HistoryBytes: r.HistoryBytes, Unread: int64(r.Unread),
		StartedAt: Moment{r.StartedAt}, UpdatedAt: Moment{r.UpdatedAt}, EndedAt: Moment{r.EndedAt},
		WakeAt: Moment{r.WakeAt},
	}
	if p := r.Parent; p != nil {
		c.Parent = ParentRef{NullText(p.Instance), NullText(p.Incarnation),
			sql.NullInt64{Int64: p.Execution, Valid: true}, sql.NullInt64{Int64: p.Event, Valid: true}}
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
func (c *InstanceRow) Row() (round.Row, error) {
	r := round.Row{
		Execution: c.Execution, Incarnation: c.Incarnation, Engine: int(c.Engine), Name: c.Name, Version: c.Version,
		Trace: c.Trace.String, StartMessage: c.StartMessage.String, Status: round.Status(c.Status),
		Output: Payload(c.Output), CustomStatus: Payload(c.CustomStatus), CustomStatusVersion: c.CustomStatusVersion,
		StartedAt: c.StartedAt.Time, UpdatedAt: c.UpdatedAt.Time, EndedAt: c.EndedAt.Time, WakeAt: c.WakeAt.Time,
		Fresh: c.Fresh, LastEvent: c.LastEvent, HistoryBytes: c.HistoryBytes, Unread: int(c.Unread),
	}
	if p := &c.Parent; p.Instance.Valid {
		r.Parent = &events.Parent{Instance: p.Instance.String, Incarnation: p.Incarnation.String,
			Execution: p.Execution.Int64, Event: p.Event.Int64}
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
		r.Error = new(failure.Error)
		if err := json.Unmarshal(c.Error, r.Error); err != nil {
			r.Error = nil
			fail("error", err)
		}
	}
	return r, bad
}

// RowVersion is the version of the row, read without the rest of it.
func (c *InstanceRow) RowVersion() round.RowVersion {
	if c.Tombstone() {
		return round.RowVersion{}
	}
	return round.RowVersion{Incarnation: c.Incarnation, Execution: c.Execution, LastEvent: c.LastEvent,
		CustomStatusVersion: c.CustomStatusVersion}
}

// Tombstone reports whether the instance was deleted.
func (c *InstanceRow) Tombstone() bool { return c.Status == Deleting || c.Status == Deleted }

// Info is the readable row.
func (c *InstanceRow) Info() history.Info {
	row, err := c.Row()
	return history.Info{Instance: c.Instance, CreatedAt: c.CreatedAt.Time, Row: row, Problem: err}
}
