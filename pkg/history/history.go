// Package history is the contract of the store, and the common part of its implementations. There
// are two: [github.com/rondo-run/rondo/pkg/history/cockroach] for CockroachDB and PostgreSQL, and
// [github.com/rondo-run/rondo/pkg/history/sqlite] for one process. Both pass the same suite,
// [github.com/rondo-run/rondo/pkg/history/historytest]. docs/write-a-store.md explains how to write
// another one.
//
// # Tables
//
//	instances    one row for each instance: how it stands, and where its history ends
//	history      the events, only ever added; a row for those of each turn
//	executions   the last row of each execution that has a successor
//	values       the values of each instance, for readers; history has them too
//	attributes   those of the starts of instances, to find them by
//	outbox       messages of turns that are not yet known to be published
//	schedules    one row for each schedule
//	marks        below which a sweep finds nothing
//
// The store does not interpret events. What it knows about an instance, it was told in the
// [round.Row] of the last turn.
//
// # The commit
//
//	batch of turns ──► ONE transaction ──► outcome of each turn
//
// A turn carries the version that it expects ([round.RowVersion]). It is committed if the
// instance's row still has that version, and refused otherwise: that row is the fence between two
// orchestrators that both believe to own the instance, and history's primary key is a second one.
// Refused turns do not hold back the others of the batch; each [Outcome] says what became of it.
// For the turns that were taken, everything is there: events, rows, values and outbox entries. For
// the others, nothing is.
//
// When the connection breaks during a commit, its outcome is unknown. The store finds out by trying
// again and reading back: a turn whose events are in history, byte for byte, was taken.
// If it cannot find out in time, the error is of class [Ambiguous], and the caller must forget the
// instances, and NATS redelivers their messages.
//
// # Outbox
//
// The messages of a turn are stored with it, packed into as few outbox entries as possible. A
// process that has published the messages removes the entries by their keys. A sweep leases entries
// that were not removed ([Outbox.LeaseOutbox]) and publishes them again. That is harmless, because
// each message has an id and history takes each answer once.
//
// # Schedules
//
// A schedule is a row that the store does not interpret. A change names the version that it
// expects, and stores the messages of the runs that it starts in the outbox, in one transaction
// ([Schedules.ChangeSchedule]). So of several orchestrators that start the same run, one does.
//
// # Deleting
//
// Deleting leaves a tombstone: the row of the instance, emptied. It refuses turns that were decided
// before, and the start that began the deleted instance, if that comes again. A different start
// makes a new instance with a new incarnation, once the rows of the former one have been erased,
// which happens in bounded transactions. Tombstones are removed after [TombstoneTTL].
package history

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/round"
)

// Store is everything a store can do. Consumers take the part that they need. All methods may be
// called concurrently, honour their context, and retain nothing they were given. Errors have a
// class: see [ClassOf].
type Store interface {
	Rounds
	Outbox
	Wakes
	Updates
	Systems
	Schedules
	Reader
	Bounded
	Remover
	Families
	Audit
	io.Closer

	// Ping reports whether the store answers.
	Ping(ctx context.Context) error
	// Clock returns the time on the clock of the database.
	Clock(ctx context.Context) (time.Time, error)
}

// Observer is called at the end of each operation of a store. An operation is one call of a method
// of [Store], except Close, with all its attempts and transactions. op is the name of the method in
// snake case, such as "lease_outbox"; err is the error that the method returns. A store calls its
// observer concurrently, in the goroutine of the method, so an observer must not block.
type Observer func(op string, took time.Duration, err error)

// Rounds is what the orchestrator's loop needs.
type Rounds interface {
	// Load reads instances, in the order asked for; an instance that does not exist gives a Known
	// with nothing but its id. The rows are read first, and history only where admit says so (nil:
	// everywhere), so that the store does not even look at rows of a newer engine. Row and history
	// fit together, as of one moment. An unreadable row is the instance's Unreadable, and no
	// failure of the others.
	Load(ctx context.Context, instances []string,
		admit func(instance string, row round.Row) bool) ([]round.Known, error)

	// Commit stores a batch of turns in one transaction. It fails as a whole or not at all, except
	// for the turns that are refused, each for its own reason. It tries again by itself when the
	// database says that it may, until the context ends.
	Commit(ctx context.Context, batch Batch) (Result, error)
}

// Batch is the input of one transaction.
type Batch struct {
	// Turns are of different instances. A turn without events is not committed and must not be in
	// the batch.
	Turns []Decided
	// Published are rows of the outbox whose messages are on their way. They are removed along with
	// the commit, or soon after.
	Published []OutboxKey
}

// Decided is a turn with its messages as the broker takes them.
type Decided struct {
	Turn     *round.Turn
	Messages []events.Wire
}

// Result says what became of a batch.
type Result struct {
	// Outcomes are in the order of the turns.
	Outcomes []Outcome
	// Entries are the outbox entries of the committed turns.
	Entries []OutboxKey
}

// Outcome is the result of committing a turn.
type Outcome struct {
	Status CommitStatus
	// Actual is the stored version of the instance when it is not the expected one. It is zero if
	// the instance does not exist.
	Actual round.RowVersion
	// Err is set when the status is Unstorable.
	Err error
}

// CommitStatus is the outcome of a commit for one turn.
type CommitStatus uint8

// The statuses of a commit.
const (
	// Committed: it is stored.
	Committed CommitStatus = iota + 1
	// Conflict: the stored version is not the expected one: another process has committed a turn,
	// or the instance was deleted. Load the instance and decide again.
	Conflict
	// Deleted: the instance that this start began was deleted. The start does not begin it again.
	Deleted
	// ParentDeleted: the turn would start a child of a deleted parent.
	ParentDeleted
	// Deleting: the rows of a deleted instance of that id are still being removed. Retry with a
	// delay.
	Deleting
	// Unstorable: the database rejects the turn permanently. Err is the reason.
	Unstorable
)

func (v CommitStatus) String() string {
	names := [...]string{"", "committed", "conflict", "deleted", "parent_deleted", "deleting", "unstorable"}
	if int(v) < len(names) && v > 0 {
		return names[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Check validates a batch: such mistakes are the caller's.
func (b Batch) Check() error {
	seen := make(map[string]bool, len(b.Turns))
	for _, d := range b.Turns {
		switch {
		case d.Turn == nil || d.Turn.Instance == "":
			return fmt.Errorf("history: a batch with a turn of nobody")
		case len(d.Turn.Executions) == 0:
			return fmt.Errorf("history: the turn of %q has no events; a turn that changes nothing is not committed",
				d.Turn.Instance)
		case seen[d.Turn.Instance]:
			return fmt.Errorf("history: two turns of %q in one batch; commit one after the other", d.Turn.Instance)
		}
		seen[d.Turn.Instance] = true
		if err := checkDense(d.Turn); err != nil {
			return err
		}
	}
	return nil
}

// checkDense checks that a turn's events follow what it was decided on, without gaps.
func checkDense(t *round.Turn) error {
	execution, last := t.Expected.Execution, t.Expected.LastEvent
	for _, x := range t.Executions {
		if x.ID != execution {
			if x.ID <= execution {
				return fmt.Errorf("history: the turn of %q goes from execution %d back to %d", t.Instance,
					execution, x.ID)
			}
			execution, last = x.ID, 0
		}
		for _, e := range x.Events {
			if e.ID != last+1 {
				return fmt.Errorf("history: the turn of %q appends event %d of execution %d after event %d", t.Instance,
					e.ID, x.ID, last)
			}
			last = e.ID
		}
	}
	if t.Row.Execution != execution || t.Row.LastEvent != last {
		return fmt.Errorf("history: the turn of %q ends with event %d of execution %d, its row says %d of %d",
			t.Instance, last, execution, t.Row.LastEvent, t.Row.Execution)
	}
	return nil
}

// Outbox is what the publisher and its sweep need.
type Outbox interface {
	// LeaseOutbox leases outbox entries that were stored before a moment and are not leased,
	// oldest first, until a moment at which other sweepers may lease them again. It looks no
	// further back than to the last sweep's end, and that is remembered across restarts.
	LeaseOutbox(ctx context.Context, take Lease) ([]OutboxEntry, error)
	// RemoveOutbox removes published outbox entries. Unknown keys are not an error.
	RemoveOutbox(ctx context.Context, keys []OutboxKey) error
	// CountOutbox counts the outbox entries, for metrics. It stops counting at the limit. It looks
	// no further back than LeaseOutbox.
	CountOutbox(ctx context.Context, limit int) (int, error)
	// OldestOutbox tells when the oldest outbox entry was stored, for metrics; zero if there is
	// none. It looks no further back than LeaseOutbox.
	OldestOutbox(ctx context.Context) (time.Time, error)
}

// Wakes is what the sweep for overdue instances needs.
type Wakes interface {
	// LeaseOverdue leases instances whose wake time has passed, oldest first within a
	// shard, and postpones that time, so that others leave them alone until then.
	LeaseOverdue(ctx context.Context, take Lease) ([]Overdue, error)
}

// Updates is what the recovery of a broker that has lost everything needs.
type Updates interface {
	// LastUpdate tells when the last turn before a moment was taken; zero if there was none. It
	// reads all rows of instances, in several statements.
	LastUpdate(ctx context.Context, before time.Time) (time.Time, error)
}

// Systems is what keeps a database from being used with a broker that is not its own. The broker
// keeps the same id and count, and orchestrators compare them.
type Systems interface {
	// Identity returns the system that the database belongs to.
	Identity(ctx context.Context) (System, error)
	// SetIdentity replaces the id and the count, and returns what the database has then. It reports
	// false, and changes nothing, if they are not those of from any more.
	SetIdentity(ctx context.Context, from System, id string, beats int64) (now System, ok bool, err error)
}

// System is a database and a broker that belong together.
type System struct {
	// ID names it. It is empty in a database that no orchestrator has used yet.
	ID string
	// Beats counts how often an orchestrator has seen that the database and the broker agree, and
	// BeatAt is when it did last, on the clock of the database.
	Beats  int64
	BeatAt time.Time
	// Exclusive says that no process but this one can write to the database now.
	Exclusive bool
}

// Lease is what a sweep leases, and until when.
type Lease struct {
	// Before is the moment before which an instance must be due, or an outbox entry must have been
	// stored.
	Before time.Time
	// Until is when other sweepers may lease it again.
	Until time.Time
	// Limit bounds how much is leased.
	Limit int
	// Bytes bounds the size of the leased outbox entries together; the first one may be larger. 0
	// is no bound.
	Bytes int64
}

// Check validates it.
func (t Lease) Check() error {
	switch {
	case t.Limit < 1:
		return fmt.Errorf("history: a sweep that leases %d; lease at least 1", t.Limit)
	case !t.Until.After(t.Before):
		return fmt.Errorf("history: a sweep that leases until %v what was due before %v", t.Until, t.Before)
	}
	return nil
}

// OutboxKey finds a row of the outbox.
type OutboxKey struct {
	Shard int16
	ID    int64
}

// Made is when the outbox entry was stored.
func (k OutboxKey) Made() time.Time { return time.UnixMicro(k.ID>>outboxBits + outboxEpoch).UTC() }

// OutboxEntry is the messages of committed turns until they are published.
type OutboxEntry struct {
	Key      OutboxKey
	Messages []events.Wire
	// Err says why the messages cannot be read. Such a row stays where it is.
	Err error
}

// Overdue is an instance that must be looked at.
type Overdue struct {
	Instance   string
	RowVersion round.RowVersion
	// WakeAt is when it should have been looked at.
	WakeAt time.Time
}

// TombstoneTTL is how long the tombstone of a deleted instance stays. It must outlast every commit
// in flight, and the messages that are redelivered after a crash.
const TombstoneTTL = 24 * time.Hour
