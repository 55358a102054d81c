package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// Reader answers the queries of clients and dashboards.
type Reader interface {
	// List gives a page of instances, the newest first (by id, where the filter has a prefix).
	// Pages are stable: an instance that is there all the time comes exactly once, whatever else is
	// created or deleted meanwhile. It may come twice or not at all if it changes what the filter
	// asks for.
	List(ctx context.Context, filter Filter, page Page) (InstanceList, error)
	// Count counts what List would give. It stops counting at the limit; 0 means that there is
	// none.
	Count(ctx context.Context, filter Filter, limit int64) (int64, error)

	// Instance gives the row of an instance, with more details.
	Instance(ctx context.Context, instance string) (Info, error)
	// Executions gives a page of an instance's executions that are still kept, oldest first; the
	// cursor is the last execution of the page before.
	Executions(ctx context.Context, instance string, after int64, limit int) ([]ExecutionInfo, error)
	// Events gives a page of the history of an execution (0: the current one), from behind an event
	// on.
	Events(ctx context.Context, instance string, execution, after int64, limit int) ([]events.Event, error)
	// Stats measures the current execution.
	Stats(ctx context.Context, instance string) (Stats, error)
	// Values gives an instance's values; none for one that does not exist.
	Values(ctx context.Context, instance string) (map[string]Value, error)
	// Value gives one of them.
	Value(ctx context.Context, instance, key string) (value Value, ok bool, err error)
	// CustomStatus gives the custom status if it has another version than the one that is known
	// already. An instance that does not exist has version 0.
	CustomStatus(ctx context.Context, instance string, known int64) (CustomStatus, error)
	// Tree gives an instance with all its descendants, parents before their children.
	Tree(ctx context.Context, instance string) ([]Node, error)
	// Metrics counts what there is.
	Metrics(ctx context.Context) (Metrics, error)
}

// Bounded reads no more rows than fit into memory that is set aside for them.
type Bounded interface {
	// Within gives a Reader whose pages of instances, executions, events and schedules also end
	// with the row that makes them as large as a number of bytes: outputs, errors, statuses,
	// attributes, events and the data of schedules count. So a page that is shorter than its limit
	// may be followed by others; after the last page, there is an empty one, or a list without
	// Next.
	Within(bytes int) BoundedReader
}

// BoundedReader is a Reader whose pages are bounded in bytes.
type BoundedReader interface {
	Reader
	// ListSchedules is that of [Schedules].
	ListSchedules(ctx context.Context, filter ScheduleFilter, page Page) (ScheduleList, error)
}

// Audit is the part of a store that a checker needs besides a [Reader] to prove that nothing was
// lost. It changes nothing.
type Audit interface {
	// ValuesOf gives the values of several instances, as of one moment. Instances that have none,
	// or do not exist, are left out.
	ValuesOf(ctx context.Context, instances []string) (map[string]map[string]Value, error)
	// Tombstones tells which of some instances were deleted not long ago and have not begun again.
	Tombstones(ctx context.Context, instances []string) ([]string, error)
	// OldOutbox gives outbox entries that were stored before a moment and not removed, oldest
	// first. It does not lease them. It searches the whole outbox, also where LeaseOutbox no longer
	// looks. It gives fewer than limit if their messages have many megabytes, and at least one.
	OldOutbox(ctx context.Context, before time.Time, limit int) ([]OutboxEntry, error)
}

// Remover is how things are removed. Each method works in bounded transactions and may be repeated
// after an error.
type Remover interface {
	// Delete removes instances for good, with all their executions, children, values and
	// attributes. They vanish all at once or not at all; what they leave behind is erased
	// afterwards. Their ids can be used again.
	Delete(ctx context.Context, instances []string, how Deletion) (DeleteResult, error)
	// DeleteEnded removes instances that have ended and fit the filter, with their descendants,
	// unless one of those has not ended.
	DeleteEnded(ctx context.Context, filter Filter, page Page) (DeleteResultPage, error)
	// Prune removes former executions of an instance. The current one always stays, and so do the
	// values.
	Prune(ctx context.Context, instance string, keep Keep) (DeleteResult, error)
	// PruneAll prunes the instances that fit the filter, running ones too.
	PruneAll(ctx context.Context, filter Filter, keep Keep, page Page) (DeleteResultPage, error)
	// Tidy erases what interrupted deletions have left behind, and removes old tombstones. It does
	// a bounded part of it, and reports whether there is more.
	Tidy(ctx context.Context) (more bool, err error)
}

// Families is what a caller needs that ends instances before it deletes them.
type Families interface {
	// Family gives the instances that Delete would remove, parents before their children, or the
	// error with which Delete would refuse. It changes and locks nothing.
	Family(ctx context.Context, instances []string, how Deletion) ([]Node, error)
}

// Filter says which instances are meant. All that is set must hold.
type Filter struct {
	IDs      []string
	IDPrefix string
	Statuses []round.Status
	Name     string
	Version  string
	Parent   string
	// Attributes must be among those set at start.
	Attributes map[string]string
	// CreatedAfter and CreatedBefore bound when the incarnation of the instance began: not before,
	// and before.
	CreatedAfter, CreatedBefore time.Time
	// EndedAfter and EndedBefore leave out instances that have not ended, and bound when they did:
	// not before, and before.
	EndedAfter, EndedBefore time.Time
	// RootsOnly leaves out children.
	RootsOnly bool
}

// Check validates a filter.
func (f Filter) Check() error {
	if f.IDPrefix != "" && len(f.IDs) > 0 {
		return errors.New("history: a filter has either ids or a prefix of them")
	}
	for _, s := range f.Statuses {
		if !knownStatus(s) {
			return fmt.Errorf("history: there is no status %q; there are %v", s, round.Statuses())
		}
	}
	if !f.CreatedAfter.IsZero() && !f.CreatedBefore.IsZero() && !f.CreatedAfter.Before(f.CreatedBefore) {
		return errors.New("history: the filter's range of times is empty")
	}
	if !f.EndedAfter.IsZero() && !f.EndedBefore.IsZero() && !f.EndedAfter.Before(f.EndedBefore) {
		return errors.New("history: the filter's range of ends is empty")
	}
	return nil
}

func knownStatus(s round.Status) bool {
	for _, k := range round.Statuses() {
		if s == k {
			return true
		}
	}
	return false
}

// Page says which part of a list is wanted.
type Page struct {
	// Limit is how many; 0 means 100, and more than 1,000 are not given at once.
	Limit int
	// Cursor is the Next of the page before.
	Cursor string
}

// Size is the limit within its bounds.
func (p Page) Size() int {
	switch {
	case p.Limit <= 0:
		return 100
	case p.Limit > 1000:
		return 1000
	}
	return p.Limit
}

// InstanceList is a page of instances.
type InstanceList struct {
	Instances []Info
	// Next is the cursor of the next page, "" if there is none.
	Next string
}

// Info describes an instance.
type Info struct {
	Instance  string
	CreatedAt time.Time // when this incarnation of it began
	round.Row
	// Problem says which part of it cannot be read; the rest can be relied on.
	Problem error
}

// ExecutionInfo describes an execution.
type ExecutionInfo struct {
	Execution     int64
	Incarnation   string
	Name, Version string
	Engine        int
	Status        round.Status
	Output        codec.Payload
	Error         *failure.Error
	StartedAt     time.Time
	EndedAt       time.Time
	Events        int64
	Bytes         int64
}

// Stats measures an instance.
type Stats struct {
	Execution    int64
	Events       int64
	HistoryBytes int64
	Unread       int
	Values       int
	ValueBytes   int64
}

// Value is a value of an instance.
type Value struct {
	Data codec.Payload
	// Execution is the one that set it, Set when.
	Execution int64
	Set       time.Time
}

// CustomStatus is what an instance says of itself.
type CustomStatus struct {
	Data    codec.Payload
	Version int64
	// Changed is false if the version is the one that was known already; Data is then left out.
	Changed bool
}

// Node is an instance in a tree.
type Node struct {
	Instance string
	Parent   string
	Name     string
	Status   round.Status
	Depth    int
}

// Metrics counts what there is.
type Metrics struct {
	Instances map[round.Status]int64
	// Executions counts the current and the former ones, Events those of the current executions and
	// of the former ones that are kept.
	Executions int64
	Events     int64
	// OutboxEntries counts the outbox entries, Tombstones the deleted instances that are not
	// removed yet.
	OutboxEntries int64
	Tombstones    int64
}

// Pooled is a store that can tell about its connections.
type Pooled interface{ Pool() Pool }

// Pool tells how the connections of a store are used.
type Pool struct {
	// Used and Idle connections are open; there may be as many as Limit says.
	Used, Idle, Limit int
	// Waits counts the calls that waited for one, Waited is the sum of their waits.
	Waits  int64
	Waited time.Duration
}

// Deletion says how to delete.
type Deletion struct {
	// Force deletes instances that have not ended.
	Force bool
	// Alone deletes nothing but the instances named: if one has a child that is not among them,
	// nothing is deleted.
	Alone bool
	// Children allows to delete a child without its parent. The transaction that deletes the child
	// stores its answer to the parent as an outbox entry.
	Children bool
	// Prefix begins the subjects of such answers; empty is [events.DefaultPrefix].
	Prefix string
}

// DeleteResult counts the removed rows.
type DeleteResult struct {
	Instances  int64
	Executions int64
	Events     int64
	Values     int64
}

// Add sums up.
func (d *DeleteResult) Add(x DeleteResult) {
	d.Instances += x.Instances
	d.Executions += x.Executions
	d.Events += x.Events
	d.Values += x.Values
}

// DeleteResultPage counts the removed rows of one page of a list.
type DeleteResultPage struct {
	DeleteResult
	// Skipped counts instances that fit the filter and were left alone.
	Skipped int64
	// Next is the cursor of the next page, "" if there is none.
	Next string
}

// Keep says which former executions to keep.
type Keep struct {
	// Last is how many executions stay, the current one included; 0 and 1 both mean the current one
	// only.
	Last int
	// EndedBefore, if set, keeps what ended later.
	EndedBefore time.Time
}

// Export reads the whole history of an execution (0: the current one) for replay tests.
func Export(ctx context.Context, r Reader, instance string, execution int64) (events.Export, error) {
	if execution == 0 {
		info, err := r.Instance(ctx, instance)
		if err != nil {
			return events.Export{}, err
		}
		execution = info.Execution
	}
	x := events.Export{Instance: instance, Execution: execution}
	const page = 1000
	for {
		var after int64
		if n := len(x.Events); n > 0 {
			after = x.Events[n-1].ID
		}
		got, err := r.Events(ctx, instance, execution, after, page)
		if err != nil {
			return events.Export{}, err
		}
		x.Events = append(x.Events, got...)
		if len(got) < page {
			return x, nil
		}
	}
}
