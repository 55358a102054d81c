package client

import (
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// ErrNoInstance is the error of a call about an instance that does not exist.
var ErrNoInstance = history.ErrNoInstance

// ErrNoExecution is the error of a call about an execution that does not exist; it may have been
// pruned.
var ErrNoExecution = history.ErrNoExecution

// ErrRunning is the error of a deletion of an instance that has not ended.
var ErrRunning = history.ErrRunning

// ErrHasParent is the error of a deletion of a child without its parent: see
// [DeleteOptions.Children].
var ErrHasParent = history.ErrHasParent

// ErrHasChildren is the error of a deletion of an instance that has children that were not named:
// see [DeleteOptions.Alone].
var ErrHasChildren = history.ErrHasChildren

// ErrBadCursor is the error of a page whose cursor no list of this kind has returned.
var ErrBadCursor = history.ErrBadCursor

// Status is the status of an instance, or of one of its executions.
type Status string

// The statuses.
const (
	Running    Status = "running"
	Suspended  Status = "suspended" // a client asked for it
	Halted     Status = "halted"    // the code does not match the history
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
	Terminated Status = "terminated"

	// ContinuedAsNew is the status of an execution that has a successor; no instance has it.
	ContinuedAsNew Status = "continued_as_new"
)

// Statuses lists the statuses that an instance can have.
func Statuses() []Status {
	return convert(round.Statuses(), func(s round.Status) Status { return Status(s) })
}

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s.round().Ended() }

func (s Status) round() round.Status { return round.Status(s) }

// Filter selects instances. An instance must match all fields that are set; the zero value selects
// all.
type Filter struct {
	// IDs and IDPrefix exclude each other. There are at most 1,000 IDs, 32 Statuses and 32
	// Attributes.
	IDs      []string
	IDPrefix string
	Statuses []Status
	// Name is the name of the orchestration, Version its version.
	Name    string
	Version string
	// Parent is the instance whose children are selected.
	Parent string
	// Attributes must be among those set at start.
	Attributes map[string]string
	// CreatedAfter and CreatedBefore bound when the incarnation of the instance began: not before,
	// and before.
	CreatedAfter, CreatedBefore time.Time
	// EndedBefore leaves out instances that have not ended, or ended later.
	EndedBefore time.Time
	// RootsOnly leaves out children.
	RootsOnly bool
}

// Check returns an error if the filter is not valid. Calls with the filter return it, too.
func (f Filter) Check() error { return f.history().Check() }

// Page selects a part of a list.
type Page struct {
	// Limit is the maximum length. Default: 100. Maximum: 1,000.
	Limit int
	// Cursor is the Next of the page before; "" for the first page.
	Cursor string
}

// InstanceList is a page of instances.
type InstanceList struct {
	Instances []Instance `json:"instances"`
	// Next is the cursor of the next page, "" if there is none.
	Next string `json:"next,omitempty"`
}

// Instance describes an instance, with its current execution.
type Instance struct {
	ID string `json:"instance"`
	// Name is the name of the orchestration, Version the version that the execution runs.
	Name    string `json:"name"`
	Version string `json:"version"`
	Status  Status `json:"status"`
	// Execution counts from 1. Incarnation tells this instance from earlier ones of its id.
	Execution   int64  `json:"execution"`
	Incarnation string `json:"incarnation,omitempty"`
	// Engine is the engine version to which the execution is pinned.
	Engine     int               `json:"engine,omitempty"`
	Parent     *events.Parent    `json:"parent,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Trace is the W3C traceparent of the execution, StartMessage the id of the message that
	// started the instance.
	Trace        string `json:"trace,omitempty"`
	StartMessage string `json:"start_message,omitempty"`
	// CreatedAt is when this incarnation began, StartedAt when the execution began. EndedAt is zero
	// before the end.
	CreatedAt time.Time `json:"created_at,omitzero"`
	StartedAt time.Time `json:"started_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Output is the result, Error the failure, or the reason why the instance is halted.
	Output              codec.Payload  `json:"output,omitempty"`
	Error               *failure.Error `json:"error,omitempty"`
	CustomStatus        codec.Payload  `json:"custom_status,omitempty"`
	CustomStatusVersion int64          `json:"custom_status_version,omitempty"`
	// Fresh means that the code of the execution has not run yet.
	Fresh bool `json:"fresh,omitempty"`
	// LastEvent is the number of the last event of the history, HistoryBytes the size of all.
	LastEvent    int64 `json:"last_event,omitempty"`
	HistoryBytes int64 `json:"history_bytes,omitempty"`
	// Unread counts the unread messages in mailboxes, and the kept events.
	Unread int `json:"unread,omitempty"`
	// WakeAt is when the next timer or time limit is due, zero if there is none.
	WakeAt time.Time `json:"wake_at,omitzero"`
	// Problem describes the part that cannot be read, if any; the rest is valid.
	Problem *Problem `json:"problem,omitempty"`
}

// Problem describes a part of an instance that cannot be read.
type Problem struct {
	Instance  string `json:"instance"`
	Execution int64  `json:"execution,omitempty"`
	Event     int64  `json:"event,omitempty"`
	Column    string `json:"column,omitempty"`
	Message   string `json:"message"`
}

// Execution describes one execution of an instance.
type Execution struct {
	Execution   int64  `json:"execution"`
	Incarnation string `json:"incarnation,omitempty"`
	Name        string `json:"name"`
	Version     string `json:"version"`
	// Engine is the engine version to which the execution is pinned.
	Engine    int            `json:"engine,omitempty"`
	Status    Status         `json:"status"`
	Output    codec.Payload  `json:"output,omitempty"`
	Error     *failure.Error `json:"error,omitempty"`
	StartedAt time.Time      `json:"started_at,omitzero"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	// Events counts the events of the history, Bytes is their size.
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}

// Stats measures the current execution of an instance.
type Stats struct {
	Execution    int64 `json:"execution"`
	Events       int64 `json:"events"`
	HistoryBytes int64 `json:"history_bytes"`
	// Unread counts the unread messages in mailboxes, and the kept events.
	Unread     int   `json:"unread"`
	Values     int   `json:"values"`
	ValueBytes int64 `json:"value_bytes"`
}

// Value is a value of an instance.
type Value struct {
	Data codec.Payload `json:"data,omitempty"`
	// Execution is the one that set the value, Set when it did.
	Execution int64     `json:"execution"`
	Set       time.Time `json:"set,omitzero"`
}

// Node is an instance in a tree of parents and children.
type Node struct {
	Instance string `json:"instance"`
	// Parent is empty for the root.
	Parent string `json:"parent,omitempty"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Depth is 0 for the root.
	Depth int `json:"depth"`
}

// Waiting lists the operations that an instance waits for.
type Waiting struct {
	Instance  string    `json:"instance"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Status    Status    `json:"status"`
	Execution int64     `json:"execution"`
	UpdatedAt time.Time `json:"updated_at"`
	// Waits are these operations, oldest first; after many, More counts the others.
	Waits []Wait `json:"waits"`
	More  int    `json:"more,omitempty"`
	// Notes explain the state of the instance to operators.
	Notes []string `json:"notes,omitempty"`
}

// Wait is an operation that an instance waits for.
type Wait struct {
	Kind WaitKind `json:"kind"`
	// Event is the number of the event that began the operation.
	Event int64 `json:"event"`
	// Name is that of the activity, event, mailbox or child orchestration. Instance is the id of a
	// child, Tag the tag of an activity.
	Name     string `json:"name,omitempty"`
	Instance string `json:"instance,omitempty"`
	Tag      string `json:"tag,omitempty"`
	// Since is when the operation began, Due when it fires or times out; zero if never.
	Since time.Time `json:"since"`
	Due   time.Time `json:"due,omitzero"`
	// What describes the operation to operators.
	What string `json:"what"`
}

// WaitKind is the kind of an operation.
type WaitKind string

// The kinds.
const (
	WaitsForActivity WaitKind = "activity"
	WaitsForTimer    WaitKind = "timer"
	WaitsForEvent    WaitKind = "event"
	WaitsForMailbox  WaitKind = "mailbox"
	WaitsForChild    WaitKind = "child"
)

// DeleteOptions are the options of [Instances.Delete]. The zero value deletes instances that have
// ended, with their children.
type DeleteOptions struct {
	// Force deletes instances that have not ended. It terminates them first, if an orchestrator
	// does that within some seconds.
	Force bool
	// Alone deletes nothing if one of the instances has a child that is not named.
	Alone bool
	// Children allows to delete a child without its parent, which gets an error that is
	// [orchestration.ErrTerminated].
	Children bool
}

// Keep selects the former executions that a pruning keeps.
type Keep struct {
	// Last is how many executions stay, the current one included; 0 and 1 both mean the current one
	// only.
	Last int
	// EndedBefore, if set, keeps the executions that ended later.
	EndedBefore time.Time
}

// Removed counts what a removal has removed.
type Removed struct {
	Instances  int64 `json:"instances"`
	Executions int64 `json:"executions"`
	Events     int64 `json:"events"`
	Values     int64 `json:"values"`
	// Skipped counts instances that matched the filter and were left alone.
	Skipped int64 `json:"skipped,omitempty"`
	// Withdrawn counts what [Instances.Delete] has withdrawn before, with [DeleteOptions.Force].
	Withdrawn Withdrawn `json:"withdrawn,omitzero"`
}

// Withdrawn counts what a deletion by force has withdrawn.
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

// Add adds the counts of another removal.
func (r *Removed) Add(x Removed) {
	r.Instances += x.Instances
	r.Executions += x.Executions
	r.Events += x.Events
	r.Values += x.Values
	r.Skipped += x.Skipped
	r.Withdrawn.Instances += x.Withdrawn.Instances
	r.Withdrawn.Tasks += x.Withdrawn.Tasks
	r.Withdrawn.Timers += x.Withdrawn.Timers
	r.Withdrawn.NotEnded += x.Withdrawn.NotEnded
	r.Withdrawn.Uncounted += x.Withdrawn.Uncounted
}
