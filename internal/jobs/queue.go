// Package jobs is durable queues with priorities and leases: what a queue is, what can be done to
// it, and what becomes of it then. It stores and serves nothing itself. The stores of
// [github.com/rondo-run/rondo/pkg/history] keep queues beside the histories, and
// [github.com/rondo-run/rondo/services/jobs] serves them over HTTP.
//
// # Where an item is
//
//	        ┌────────────────── returned, or its lock has expired ──────────────────┐
//	        ▼                                                                       │
//	push ──► ready ──────────── popped with a lock ──► locked ── acknowledged ──► gone
//	 │      ▲   └─ popped without ──► gone               │
//	 ▼      │ due                                        │ too many attempts
//	delayed ┴◄──────────── returned with a delay ────────┴──► dead ── requeued ──► ready
//
// An item is at one place at any time, and what moves it is one transaction. Within a priority,
// ready items are in the order of their positions, which are the order in which the transactions of
// the queue came; priority 0 goes first. An item that comes back from a lock keeps its position,
// and so it is in front of its priority again. A delayed item gets its position when it is due.
//
// # One at a time
//
// Each queue has a row with its [State], and who changes the queue holds that row until the end of
// the transaction. So all that happens to a queue happens in one order, whoever does it; queues do
// not know of each other. One transaction does many [Operation]s, in their order ([Machine.Do]): a
// server that gets several requests while a transaction is under way does them together in the
// next.
//
// # Locks
//
// A pop with a lock hands its items out for some time. An exclusive lock, the usual one, is the
// only one of its queue: until it ends, every other pop is refused with [LockedError]. Concurrent
// locks may be many, each with its own items; while there are some, exclusive pops and pops without
// a lock that are not concurrent are refused.
//
// Nobody watches the clock. A lock that has expired is found by whoever comes next, who puts its
// items back first. The time is the store's, which is the database's unless a test hands in
// another, and it never goes back within a queue.
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
)

// Store keeps queues. All methods may be called concurrently, honour their context, and retain
// nothing they were given.
type Store interface {
	// Do does operations in one transaction, in their order, each as if it came alone. The results
	// are in that order, too. It fails as a whole or not at all, except for the operations that are
	// refused, each for its own reason. It tries again by itself when the database says that it
	// may, and never does anything twice: a commit of unknown end is looked up. An error of which
	// the history's class is Ambiguous says that this was not possible in time.
	Do(ctx context.Context, queue string, operations ...Operation) ([]Result, error)
	// Look tells how a queue stands. The error wraps [ErrNoQueue] if there is none.
	Look(ctx context.Context, queue string) (Info, error)
	// List lists queues behind a name, in the order of their names, without Oldest.
	List(ctx context.Context, after string, limit int) ([]Info, error)
	// Dead lists dead items behind one, those that died first at the front. The zero value is
	// before the first.
	Dead(ctx context.Context, queue string, after DeadID, limit int) ([]Dead, error)
	// Starting lists the queues whose items start instances, in the order of their names.
	Starting(ctx context.Context) ([]Info, error)
}

// Item is what was pushed, and what is known of it.
type Item struct {
	// ID is the number of the item in its queue; none is used twice as long as the queue is there.
	ID       int64
	Priority int
	// Position is where it is within its priority.
	Position int64
	// Attempts counts the locks it was handed out with.
	Attempts int
	// PushedAt is when it was pushed, ReadyAt when it was first there to be popped.
	PushedAt, ReadyAt time.Time
	// Trace is the W3C trace context of who pushed it.
	Trace string
	// Data is the item itself.
	Data json.RawMessage
}

// Dead is an item that nobody gets any more.
type Dead struct {
	Item
	DiedAt time.Time
	Reason string
}

// DeadID finds a dead item.
type DeadID struct {
	// At is when it died, in microseconds since 1970.
	At       int64
	Position int64
}

// DeadID is the item's.
func (d Dead) DeadID() DeadID { return DeadID{d.DiedAt.UnixMicro(), d.Position} }

// String writes it as [ParseDeadID] reads it.
func (d DeadID) String() string { return fmt.Sprintf("%d-%d", d.At, d.Position) }

// ParseDeadID reads what String has written.
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

// Info is how a queue stands.
type Info struct {
	Queue    string
	Settings Settings
	// Ready counts the items that can be popped, by priority.
	Ready map[int]int
	// Locked, Delayed and Dead count the others. Locks are those that hold the locked ones.
	Locked, Locks, Delayed, Dead int
	// Exclusive is the lock that is the only one, if so.
	Exclusive *Lock
	// Oldest is since when the one that has been ready for longest is; the zero time if there is
	// none.
	Oldest time.Time
	// Totals count what has happened since the queue was made.
	Totals Totals
	// Incarnation tells two queues apart that had the same name.
	Incarnation string
	// At is the store's time.
	At time.Time
}

// Depth is how many items can be popped.
func (i Info) Depth() (n int) {
	for _, ready := range i.Ready {
		n += ready
	}
	return n
}

// Totals count what has happened to a queue.
type Totals struct {
	Pushed       int64 `json:"pushed,omitempty"`
	Popped       int64 `json:"popped,omitempty"`
	Acknowledged int64 `json:"acknowledged,omitempty"`
	Returned     int64 `json:"returned,omitempty"`
	Expired      int64 `json:"expired,omitempty"` // items whose lock has expired
	Died         int64 `json:"died,omitempty"`
}

// Lock is a lease on items.
type Lock struct {
	ID string `json:"lock_id"`
	// Number finds its items.
	Number    int64     `json:"number"`
	Items     int       `json:"items"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Returned says that it has expired and that its items are back already. Only concurrent locks
	// are remembered then.
	Returned bool `json:"-"`
}

// Expired reports whether it is over.
func (l Lock) Expired(now time.Time) bool { return l.Returned || !now.Before(l.ExpiresAt) }

// lockIDBytes is how many random bytes are in the id of a lock.
const lockIDBytes = 8

// LockID makes the id of a lock, 11 characters that need no escape in a URL, of bytes from a source
// that nobody can predict.
func LockID(random [lockIDBytes]byte) string { return base64.RawURLEncoding.EncodeToString(random[:]) }

// The bounds of what can be asked for.
const (
	MinTTL     = time.Second
	MaxTTL     = 300 * time.Second
	DefaultTTL = 30 * time.Second
	MaxDelay   = 365 * 24 * time.Hour
	// MaxCount bounds the items of one push or pop.
	MaxCount = 1000
	// MaxName bounds the length of the name of a queue.
	MaxName = 128
	// MaxKey bounds the length of an idempotency key.
	MaxKey = 255
	// MaxReason bounds the length of a reason; what is longer is cut.
	MaxReason = 1000
)

// TTL is the time of a lock that somebody asks for, as far as it may be.
func TTL(asked time.Duration) time.Duration { return min(max(asked, MinTTL), MaxTTL) }

// CheckName tells what is wrong with the name of a queue.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return &InvalidError{fmt.Sprintf("the name of a queue has 1 to %d characters, not %d", MaxName, len(name))}
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-', c == ':':
		default:
			return &InvalidError{fmt.Sprintf(
				"the name of a queue has letters from a to z, digits, and the characters . _ - : only, not %q", name)}
		}
	}
	return nil
}

// ---- Why something is refused.

var (
	// ErrNoLock: the queue has no lock.
	ErrNoLock = errors.New("the queue has no lock")
	// ErrWrongLock: the queue has locks, and none of that id.
	ErrWrongLock = errors.New("the queue has no lock of this id")
	// ErrLockExpired: the lock is over, and its items are back in the queue.
	ErrLockExpired = errors.New("the lock has expired, and its items are back in the queue")
	// ErrNoQueue: there is no such queue. The first push makes it, and so do settings.
	ErrNoQueue = errors.New("there is no such queue; the first push makes it")
	// ErrNotEmpty: there are items in it.
	ErrNotEmpty = errors.New("the queue has items; remove them first")
	// ErrKeyReused: another push had that key.
	ErrKeyReused = errors.New("another push had this idempotency key; use a key for one push only")
)

// LockedError says that a queue is locked, and for how long at most.
type LockedError struct{ Until time.Time }

func (*LockedError) Error() string { return "the queue is locked until its items are acknowledged" }

// FullError says that a queue has as many items as it may.
type FullError struct{ Items, Limit int }

func (e *FullError) Error() string {
	return fmt.Sprintf("the queue has %d items, and may have %d (max_items); pop some, or raise the limit",
		e.Items, e.Limit)
}

// InvalidError says what is wrong with an operation.
type InvalidError struct{ Problem string }

func (e *InvalidError) Error() string { return e.Problem }
