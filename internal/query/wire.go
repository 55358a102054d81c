package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Question is a request. Each method uses the fields that are about it.
type Question struct {
	Instance  string   `json:"instance,omitempty"`
	Instances []string `json:"instances,omitempty"`
	// Execution is the execution to read, 0 the current one. After is where a page begins, Limit
	// its length.
	Execution int64  `json:"execution,omitempty"`
	After     int64  `json:"after,omitempty"`
	Limit     int64  `json:"limit,omitempty"`
	Cursor    string `json:"cursor,omitempty"`
	Key       string `json:"key,omitempty"`
	// Known is the version of the custom status that the client knows already.
	Known    int64     `json:"known,omitempty"`
	Filter   *Filter   `json:"filter,omitempty"`
	Keep     *Keep     `json:"keep,omitempty"`
	Deletion *Deletion `json:"deletion,omitempty"`
	Start    *Start    `json:"start,omitempty"`
	// Schedule is the id of a schedule, Put one to store, Change how it changes.
	Schedule string          `json:"schedule,omitempty"`
	Put      *PutSchedule    `json:"put,omitempty"`
	Change   *ScheduleChange `json:"change,omitempty"`
}

// Start is a start by name, to be checked, or for a schedule.
type Start struct {
	Orchestration string            `json:"orchestration"`
	Version       string            `json:"version,omitempty"`
	Input         codec.Payload     `json:"input,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
}

// Filter is a [history.Filter] as JSON.
type Filter struct {
	IDs           []string          `json:"ids,omitempty"`
	IDPrefix      string            `json:"id_prefix,omitempty"`
	Statuses      []round.Status    `json:"statuses,omitempty"`
	Name          string            `json:"name,omitempty"`
	Version       string            `json:"version,omitempty"`
	Parent        string            `json:"parent,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	CreatedAfter  time.Time         `json:"created_after,omitzero"`
	CreatedBefore time.Time         `json:"created_before,omitzero"`
	EndedAfter    time.Time         `json:"ended_after,omitzero"`
	EndedBefore   time.Time         `json:"ended_before,omitzero"`
	RootsOnly     bool              `json:"roots_only,omitempty"`
}

// Keep is a [history.Keep] as JSON.
type Keep struct {
	Last        int       `json:"last,omitempty"`
	EndedBefore time.Time `json:"ended_before,omitzero"`
}

// Deletion is a [history.Deletion] as JSON, without the prefix, which the store's process knows.
type Deletion struct {
	Force    bool `json:"force,omitempty"`
	Alone    bool `json:"alone,omitempty"`
	Children bool `json:"children,omitempty"`
}

// Instance is a [history.Info] as JSON.
type Instance struct {
	Instance            string            `json:"instance"`
	Name                string            `json:"name"`
	Version             string            `json:"version"`
	Status              round.Status      `json:"status"`
	Execution           int64             `json:"execution"`
	Incarnation         string            `json:"incarnation,omitempty"`
	Engine              int               `json:"engine,omitempty"`
	Parent              *events.Parent    `json:"parent,omitempty"`
	Attributes          map[string]string `json:"attributes,omitempty"`
	Trace               string            `json:"trace,omitempty"`
	StartMessage        string            `json:"start_message,omitempty"`
	CreatedAt           time.Time         `json:"created_at,omitzero"`
	StartedAt           time.Time         `json:"started_at,omitzero"`
	UpdatedAt           time.Time         `json:"updated_at,omitzero"`
	EndedAt             time.Time         `json:"ended_at,omitzero"`
	Output              codec.Payload     `json:"output,omitempty"`
	Error               *failure.Error    `json:"error,omitempty"`
	CustomStatus        codec.Payload     `json:"custom_status,omitempty"`
	CustomStatusVersion int64             `json:"custom_status_version,omitempty"`
	Fresh               bool              `json:"fresh,omitempty"`
	LastEvent           int64             `json:"last_event,omitempty"`
	HistoryBytes        int64             `json:"history_bytes,omitempty"`
	Unread              int               `json:"unread,omitempty"`
	WakeAt              time.Time         `json:"wake_at,omitzero"`
	Problem             *Problem          `json:"problem,omitempty"`
}

// Problem says which part of an instance cannot be read.
type Problem struct {
	Instance  string `json:"instance"`
	Execution int64  `json:"execution,omitempty"`
	Event     int64  `json:"event,omitempty"`
	Column    string `json:"column,omitempty"`
	Message   string `json:"message"`
}

// InstanceOf converts a [history.Info] to JSON.
func InstanceOf(i history.Info) Instance {
	r := i.Row
	return Instance{
		Instance: i.Instance, Name: r.Name, Version: r.Version, Status: r.Status, Execution: r.Execution,
		Incarnation: r.Incarnation,
		Engine:      r.Engine,
		Parent:      r.Parent, Attributes: r.Attributes, Trace: r.Trace, StartMessage: r.StartMessage,
		CreatedAt: i.CreatedAt, StartedAt: r.StartedAt, UpdatedAt: r.UpdatedAt, EndedAt: r.EndedAt,
		Output: r.Output, Error: r.Error, CustomStatus: r.CustomStatus, CustomStatusVersion: r.CustomStatusVersion,
		Fresh: r.Fresh, LastEvent: r.LastEvent, HistoryBytes: r.HistoryBytes, Unread: r.Unread, WakeAt: r.WakeAt,
		Problem: problemOf(i.Problem),
	}
}

// Info converts an instance back to a [history.Info].
func (i Instance) Info() history.Info {
	return history.Info{
		Instance: i.Instance, CreatedAt: i.CreatedAt, Problem: i.Problem.err(),
		Row: round.Row{
			Execution: i.Execution, Incarnation: i.Incarnation, Engine: i.Engine, Name: i.Name, Version: i.Version,
			Parent:     i.Parent,
			Attributes: i.Attributes,
			Trace:      i.Trace, StartMessage: i.StartMessage, Status: i.Status, Output: i.Output, Error: i.Error,
			CustomStatus: i.CustomStatus, CustomStatusVersion: i.CustomStatusVersion,
			StartedAt: i.StartedAt, UpdatedAt: i.UpdatedAt, EndedAt: i.EndedAt, Fresh: i.Fresh,
			LastEvent: i.LastEvent, HistoryBytes: i.HistoryBytes, Unread: i.Unread, WakeAt: i.WakeAt,
		},
	}
}

func problemOf(err error) *Problem {
	var u *history.UnreadableError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &u) || u.Err == nil:
		return &Problem{Message: err.Error()}
	}
	return &Problem{Instance: u.Instance, Execution: u.Execution, Event: u.Event, Column: u.Column,
		Message: u.Err.Error()}
}

func (p *Problem) err() error {
	switch {
	case p == nil:
		return nil
	case p.Column == "":
		return errors.New(p.Message)
	}
	return &history.UnreadableError{Instance: p.Instance, Execution: p.Execution, Event: p.Event, Column: p.Column,
		Err: errors.New(p.Message)}
}

// List is a page of instances as JSON.
type List struct {
	Instances []Instance `json:"instances"`
	Next      string     `json:"next,omitempty"`
}

// Count is the answer to [MethodCount].
type Count struct {
	Count int64 `json:"count"`
}

// Execution is a [history.ExecutionInfo] as JSON.
type Execution struct {
	Execution   int64          `json:"execution"`
	Incarnation string         `json:"incarnation,omitempty"`
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	Engine      int            `json:"engine,omitempty"`
	Status      round.Status   `json:"status"`
	Output      codec.Payload  `json:"output,omitempty"`
	Error       *failure.Error `json:"error,omitempty"`
	StartedAt   time.Time      `json:"started_at,omitzero"`
	EndedAt     time.Time      `json:"ended_at,omitzero"`
	Events      int64          `json:"events"`
	Bytes       int64          `json:"bytes"`
}

// Executions is a page of executions; More says that there are others behind it.
type Executions struct {
	Executions []Execution `json:"executions"`
	More       bool        `json:"more,omitempty"`
}

// Events is a page of a history: events as [events.EncodeEvent] writes them, and the execution that
// they are of. More says that there are others behind it.
type Events struct {
	Execution int64             `json:"execution"`
	Events    []json.RawMessage `json:"events"`
	More      bool              `json:"more,omitempty"`
}

// Stats is [history.Stats] as JSON.
type Stats struct {
	Execution    int64 `json:"execution"`
	Events       int64 `json:"events"`
	HistoryBytes int64 `json:"history_bytes"`
	Unread       int   `json:"unread"`
	Values       int   `json:"values"`
	ValueBytes   int64 `json:"value_bytes"`
}

// Value is a [history.Value] as JSON.
type Value struct {
	Data      codec.Payload `json:"data,omitempty"`
	Execution int64         `json:"execution"`
	Set       time.Time     `json:"set,omitzero"`
}

// Values is the answer to [MethodValues], and to [MethodValue]: then it has one at most.
type Values struct {
	Values map[string]Value `json:"values"`
}

// Status is a [history.CustomStatus] as JSON.
type Status struct {
	Data    codec.Payload `json:"data,omitempty"`
	Version int64         `json:"version"`
	Changed bool          `json:"changed"`
}

// Tree is an instance with all its descendants, parents before their children.
type Tree struct {
	Nodes []Node `json:"nodes"`
}

// Node is a [history.Node] as JSON.
type Node struct {
	Instance string       `json:"instance"`
	Parent   string       `json:"parent,omitempty"`
	Name     string       `json:"name"`
	Status   round.Status `json:"status"`
	Depth    int          `json:"depth"`
}

// Metrics is [history.Metrics] as JSON.
type Metrics struct {
	Instances     map[round.Status]int64 `json:"instances"`
	Executions    int64                  `json:"executions"`
	Events        int64                  `json:"events"`
	OutboxEntries int64                  `json:"outbox_entries"`
	Tombstones    int64                  `json:"tombstones"`
}

// Deleted is a [history.DeleteResultPage] as JSON.
type Deleted struct {
	Instances  int64  `json:"instances"`
	Executions int64  `json:"executions"`
	Events     int64  `json:"events"`
	Values     int64  `json:"values"`
	Skipped    int64  `json:"skipped,omitempty"`
	Next       string `json:"next,omitempty"`
	// Withdrawn counts what a deletion by force has withdrawn before. It is nil if all instances
	// had ended.
	Withdrawn *Withdrawn `json:"withdrawn,omitempty"`
}

// Withdrawn counts the messages withdrawn before a deletion.
type Withdrawn struct {
	// Instances were terminated before they were deleted. That has withdrawn so many activity Tasks
	// and Timers.
	Instances int64 `json:"instances"`
	Tasks     int64 `json:"tasks"`
	Timers    int64 `json:"timers"`
	// NotEnded counts the instances that did not end in time, and were deleted as they were: what
	// they have sent is not withdrawn. Uncounted counts those of which the tasks and timers could
	// not be counted in time.
	NotEnded  int64 `json:"not_ended,omitempty"`
	Uncounted int64 `json:"uncounted,omitempty"`
}

// marshal is json.Marshal without HTML escaping, so that payloads keep their bytes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// unmarshal reads one value. It reads requests strictly, and answers not.
func unmarshal(data []byte, v any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("there is something behind the value: %.20q", rest)
	}
	return nil
}
