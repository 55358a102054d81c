package jobs

import (
	"encoding/json"
	"time"
)

// Operation is something that is done to a queue: [Push], [Pop], [Acknowledge], [Return], [Extend],
// [Configure], [Requeue], [Remove], [Forget] or [Settle].
type Operation interface {
	// do decides and does it. An error of what it did with the items ends the transaction; why it
	// was refused is in the result.
	do(m *Machine) (Result, error)
	// makes says that it makes the queue if there is none.
	makes() bool
}

// Result is what became of an operation.
type Result struct {
	// Refused is why nothing was done, nil if it was.
	Refused error
	// Items are those that were popped.
	Items []Item
	// Lock is the one that was made, extended or ended. A pop of nothing makes none.
	Lock *Lock
	// Count is how many items were pushed, popped, acknowledged, returned, requeued or removed.
	Count int
	// Again says that this push was there before, by its key.
	Again bool
	// Expired counts items that were put back because their lock has expired, Died those of them,
	// and of the returned ones, that are dead now.
	Expired, Died int
	// Incarnation is that of the queue from which items were popped, and Start what is to be
	// started for each of them, if so: see [Info] and [Settings].
	Incarnation string
	Start       *Start
}

// Push adds items, all or none of them, in their order.
type Push struct {
	Items []NewItem
	// Key makes a push that comes again one that was there already, for as long as KeyFor; "" for
	// none. Digest tells one push from another.
	Key    string
	KeyFor time.Duration
	Digest string
}

// NewItem is an item that is pushed.
type NewItem struct {
	Data     json.RawMessage
	Priority int
	// Delay is how long nobody gets it.
	Delay time.Duration
	Trace string
}

// Pop takes items from the front.
type Pop struct {
	// Count is how many at most. Bytes bounds the size of those of a pop that asks for more than
	// 16, but one is taken in any case; 0 for no bound.
	Count, Bytes int
	// LockID is the id of the lock that holds them, "" to pop without one. TTL is its time; 0 for
	// what the queue says.
	LockID string
	TTL    time.Duration
	// Mode is the lock's; empty for what the queue says.
	Mode Mode
}

// Acknowledge ends a lock, and its items are gone.
type Acknowledge struct{ LockID string }

// Return ends a lock, and its items are back in the queue, at once or after a delay, or dead if
// they were handed out too often.
type Return struct {
	LockID string
	Delay  time.Duration
	// Reason is told of those that are dead.
	Reason string
	// Only are the ids of the items that come back: the others are acknowledged. None: all of them
	// come back.
	Only []int64
}

// Extend gives a lock more time, from now on.
type Extend struct {
	LockID string
	TTL    time.Duration
}

// Configure makes or changes a queue.
type Configure struct{ Settings Settings }

// Requeue puts dead items back into the queue, at the end, as if they had just been pushed.
type Requeue struct {
	// IDs are those of the dead items; none for any.
	IDs []DeadID
	// Limit bounds how many of any.
	Limit int
}

// Remove removes items.
type Remove struct {
	// Dead removes only those that are dead. Otherwise everything goes, locked items included.
	Dead bool
	// Limit bounds how many are removed in this transaction. Count says how many were; who wants
	// all goes on until it is less than the limit.
	Limit int
}

// Forget removes a queue that has no items.
type Forget struct{}

// Settle does what is due: it puts back what has expired, and makes ready what was delayed. Push,
// Pop and Requeue do that first, too.
type Settle struct{}

func (Push) makes() bool        { return true }
func (Configure) makes() bool   { return true }
func (Pop) makes() bool         { return false }
func (Acknowledge) makes() bool { return false }
func (Return) makes() bool      { return false }
func (Extend) makes() bool      { return false }
func (Requeue) makes() bool     { return false }
func (Remove) makes() bool      { return false }
func (Forget) makes() bool      { return false }
func (Settle) makes() bool      { return false }

// FirstThatMakes finds the first of the operations that makes the queue if there is none; their
// number if none does.
func FirstThatMakes(operations []Operation) int {
	for n, o := range operations {
		if o.makes() {
			return n
		}
	}
	return len(operations)
}
