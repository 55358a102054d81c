// Package jobs implements durable job queues with priorities and leases: their state, the
// operations on them, and the effects of each operation. The code calls a job a job. The package
// stores and serves nothing itself. The stores of [github.com/rondo-run/rondo/pkg/history] store
// queues beside the histories, and [github.com/rondo-run/rondo/services/jobs] serves them over
// HTTP.
//
// # Places of a job
//
//	        ┌────────────────── returned, or its lock has expired ──────────────────┐
//	        ▼                                                                       │
//	push ──► ready ──────────── popped with a lock ──► locked ── acknowledged ──► gone
//	 │      ▲   └─ popped without ──► gone               │
//	 ▼      │ due                                        │ too many attempts
//	delayed ┴◄──────────── returned with a delay ────────┴──► dead ── requeued ──► ready
//
// A job is at one place at any time, and each move is one transaction. Within a priority, ready
// jobs are in the order of their positions, which is the order of the queue's transactions;
// priority 0 goes first. A job that comes back from a lock keeps its position, and so it is in
// front of its priority again. A delayed job gets its position when it is due.
//
// # One at a time
//
// Each queue has a row with its [State]. An operation that changes the queue holds that row until
// the end of the transaction. So all changes of a queue happen in one order, whichever process
// makes them; queues do not know of each other. One transaction does many [Operation]s, in their
// order ([Machine.Do]): a server that gets several requests while a transaction is in flight does
// them together in the next.
//
// # Locks
//
// A pop with a lock leases its jobs for some time. An exclusive lock, the default, is the only one
// of its queue: until it ends, every other pop is refused with [LockedError]. A queue can have many
// concurrent locks, each with its own jobs; while there are some, exclusive pops and pops without
// a lock that are not concurrent are refused.
//
// No process watches the clock. The next operation finds an expired lock, and first makes its jobs
// ready again. The time is the store's, which is the database's unless a test passes another, and
// it never goes back within a queue.
package jobs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/x/plural"
)

// Store stores queues. All methods may be called concurrently, honour their context, and retain
// nothing that they were given.
type Store interface {
	// Do does operations in one transaction, in their order, each as if it came alone. The results
	// are in that order, too. It fails as a whole or not at all, except for refused operations,
	// each with its own reason. It retries by itself when the database allows it, and never does
	// anything twice: it looks up a commit of unknown outcome. An error of the history's class
	// Ambiguous means that the look-up was not possible in time.
	Do(ctx context.Context, queue string, operations ...Operation) ([]Result, error)
	// Look returns the state of a queue. The error wraps [ErrNoQueue] if there is none.
	Look(ctx context.Context, queue string) (Info, error)
	// List lists queues after a name, in the order of their names, without Oldest.
	List(ctx context.Context, after string, limit int) ([]Info, error)
	// Dead lists dead jobs after one, those that died first at the front. The zero value is before
	// the first.
	Dead(ctx context.Context, queue string, after DeadID, limit int) ([]Dead, error)
	// Starting lists the queues whose jobs start instances, in the order of their names.
	Starting(ctx context.Context) ([]Info, error)
}

// Job is a job in a queue.
type Job struct {
	// ID is the number of the job in its queue; none is used twice as long as the queue is there.
	ID       int64
	Priority int
	// Position is its position within its priority.
	Position int64
	// Attempts counts the locks that it has had, without those of [Return].Uncounted.
	Attempts int
	// PushedAt is when it was pushed, ReadyAt when it could first be popped.
	PushedAt, ReadyAt time.Time
	// Trace is the W3C trace context of the client that pushed it.
	Trace string
	// Data is the JSON of the client.
	Data json.RawMessage
}

// Dead is a job that cannot be popped any more.
type Dead struct {
	Job
	DiedAt time.Time
	Reason string
}

// DeadID finds a dead job.
type DeadID struct {
	// At is when it died, in microseconds since 1970.
	At       int64
	Position int64
}

// DeadID is the job's.
func (d Dead) DeadID() DeadID { return DeadID{d.DiedAt.UnixMicro(), d.Position} }

// String formats the id for [ParseDeadID].
func (d DeadID) String() string { return fmt.Sprintf("%d-%d", d.At, d.Position) }

// ParseDeadID reads the output of String.
func ParseDeadID(s string) (d DeadID, err error) {
	at, position, ok := strings.Cut(s, "-")
	if ok {
		d.At, err = strconv.ParseInt(at, 10, 64)
	}
	if ok && err == nil {
		d.Position, err = strconv.ParseInt(position, 10, 64)
	}
	if !ok || err != nil {
		return DeadID{}, &InvalidError{fmt.Sprintf("%q is not the dead_id of an item", s)}
	}
	return d, nil
}

// Info is the state of a queue.
type Info struct {
	Queue    string
	Settings Settings
	// Ready counts the jobs that can be popped, by priority.
	Ready map[int]int
	// Locked, Delayed and Dead count the others. Locks counts the locks of the locked ones.
	Locked, Locks, Delayed, Dead int
	// Exclusive is the exclusive lock, or nil.
	Exclusive *Lock
	// Oldest is when the job that has been ready for longest became ready; zero if none is ready.
	Oldest time.Time
	// Totals count the changes since the queue was created.
	Totals Totals
	// Incarnation tells apart two queues that had the same name.
	Incarnation string
	// At is the store's time.
	At time.Time
}

// Depth is how many jobs can be popped.
func (i Info) Depth() (n int) {
	for _, ready := range i.Ready {
		n += ready
	}
	return n
}

// Totals count the changes of a queue.
type Totals struct {
	Pushed       int64 `json:"pushed,omitempty"`
	Popped       int64 `json:"popped,omitempty"`
	Acknowledged int64 `json:"acknowledged,omitempty"`
	Returned     int64 `json:"returned,omitempty"`
	Expired      int64 `json:"expired,omitempty"` // jobs whose lock has expired
	Died         int64 `json:"died,omitempty"`
}

// Lock is a lease on jobs.
type Lock struct {
	ID string `json:"lock_id"`
	// Number finds its jobs.
	Number    int64     `json:"number"`
	Items     int       `json:"items"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Returned says that the lock has expired and that its jobs are ready again. Only concurrent
	// locks are remembered then.
	Returned bool `json:"-"`
}

// Expired reports whether the lock has ended.
func (l Lock) Expired(now time.Time) bool { return l.Returned || !now.Before(l.ExpiresAt) }

// lockIDBytes is the number of random bytes in the id of a lock.
const lockIDBytes = 8

// LockID makes the id of a lock, 11 characters that need no escape in a URL, from bytes of a source
// that clients cannot predict.
func LockID(random [lockIDBytes]byte) string { return base64.RawURLEncoding.EncodeToString(random[:]) }

// The bounds of operations.
const (
	MinTTL     = time.Second
	MaxTTL     = 300 * time.Second
	DefaultTTL = 30 * time.Second
	MaxDelay   = 365 * 24 * time.Hour
	// MaxCount bounds the jobs of one push or pop.
	MaxCount = 1000
	// MaxName bounds the length of the name of a queue.
	MaxName = 128
	// MaxKey bounds the length of an idempotency key.
	MaxKey = 255
	// MaxReason bounds the length of a reason; longer ones are cut.
	MaxReason = 1000
)

// TTL returns the time of a lock that a client asks for, within the bounds.
func TTL(asked time.Duration) time.Duration { return min(max(asked, MinTTL), MaxTTL) }

// CheckName returns an error if the name of a queue is not valid.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return &InvalidError{fmt.Sprintf("the name of a queue has 1 to %d characters, not %d", MaxName, len(name))}
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-', c == ':':
		default:
			return &InvalidError{fmt.Sprintf(
				"the name of a queue has letters from a to z, small or capital, digits, and the characters . _ - : "+
					"only, not %q", name)}
		}
	}
	return nil
}

// ---- Reasons for refusals.

var (
	// ErrNoLock: the queue has no lock.
	ErrNoLock = errors.New("the queue has no lock")
	// ErrWrongLock: the queue has locks, and none of that id.
	ErrWrongLock = errors.New("the queue has no lock of this id")
	// ErrLockExpired: the lock is over, and its jobs are back in the queue.
	ErrLockExpired = errors.New("the lock has expired, and its items are back in the queue")
	// ErrNoQueue: there is no such queue. The first push creates it, and so do settings.
	ErrNoQueue = errors.New("there is no such queue; the first push makes it")
	// ErrNotEmpty: the queue has jobs.
	ErrNotEmpty = errors.New("the queue has items; remove them first")
	// ErrKeyReused: another push had that key.
	ErrKeyReused = errors.New("another push had this idempotency key; use a key for one push only")
)

// LockedError says that a queue is locked, and for how long at most.
type LockedError struct{ Until time.Time }

func (*LockedError) Error() string { return "the queue is locked until its items are acknowledged" }

// FullError says that a queue has as many jobs as it may.
type FullError struct{ Items, Limit int }

func (e *FullError) Error() string {
	return fmt.Sprintf("the queue has %s, and may have %d (max_items); pop some, or raise the limit",
		plural.Count(e.Items, "item"), e.Limit)
}

// InvalidError describes the problem of an operation that is not valid.
type InvalidError struct{ Problem string }

func (e *InvalidError) Error() string { return e.Problem }
