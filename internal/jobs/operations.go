package jobs

import (
	"encoding/json"
	"time"
)

// Operation is an operation on a queue: [Push], [Pop], [Acknowledge], [Return], [Extend],
// [Configure], [Requeue], [Remove], [Forget] or [Settle].
type Operation interface {
	// do validates and does the operation. An error of the store ends the transaction; the reason
	// for a refusal is in the result.
	do(m *Machine) (Result, error)
	// makes reports whether the operation creates a missing queue.
	makes() bool
}

// Result is the outcome of an operation.
type Result struct {
	// Refused is the reason for the refusal; nil: the operation was done.
	Refused error
	// Items are the popped jobs.
	Items []Job
	// Lock is the lock that was created, extended or ended. A pop of nothing creates none.
	Lock *Lock
	// Count is how many jobs were pushed, popped, acknowledged, returned, requeued or removed.
	Count int
	// Again says that the queue has taken this push before, by its key.
	Again bool
	// More says that a removal has done as much as one transaction may: the caller repeats it.
	More bool
	// Expired counts jobs whose lock has expired. Died counts those of them, and of the returned
	// jobs, that are dead now.
	Expired, Died int
	// Incarnation is that of the queue from which jobs were popped. Start describes the instances
	// to start for them, if any: see [Info] and [Settings].
	Incarnation string
	Start       *Start
}

// Push adds jobs, all or none of them, in their order.
type Push struct {
	Jobs []NewJob
	// Key makes a repeated push a duplicate, for as long as KeyFor; "" for none. Digest tells one
	// push from another.
	Key    string
	KeyFor time.Duration
	Digest string
	// MaxJob bounds the bytes of a job; 0 for no bound. A repeated push is a duplicate in any case.
	MaxJob int
}

// NewJob is a job to push.
type NewJob struct {
	Data     json.RawMessage
	Priority int
	// Delay is the time until the job can be popped.
	Delay time.Duration
	Trace string
}

// Pop takes jobs from the front.
type Pop struct {
	// Count bounds the jobs. Bytes bounds their size in a pop of more than 16, but one job is
	// taken in any case; 0 for no bound.
	Count, Bytes int
	// LockID is the id of the lock that holds them, "" to pop without one. TTL is its time; 0 for
	// that of the queue's settings.
	LockID string
	TTL    time.Duration
	// Mode is the lock's; empty for that of the queue's settings.
	Mode Mode
}

// Acknowledge ends a lock, and removes its jobs.
type Acknowledge struct{ LockID string }

// Return ends a lock. Its jobs are ready again, at once or after a delay, or dead if they have had
// too many attempts.
type Return struct {
	LockID string
	Delay  time.Duration
	// Reason is stored with jobs that die.
	Reason string
	// Uncounted is for a lock that ends for no fault of its jobs, such as an outage: it does not
	// count as an attempt, and no job dies.
	Uncounted bool
	// Only are the ids of the jobs to return: the others are acknowledged. None: all of them.
	Only []int64
}

// Extend gives a lock more time, from now on.
type Extend struct {
	LockID string
	TTL    time.Duration
}

// Configure creates or changes a queue.
type Configure struct{ Settings Settings }

// Requeue puts dead jobs back into the queue, at the end, like new ones.
type Requeue struct {
	// IDs are those of the dead jobs; none for any.
	IDs []DeadID
	// Limit bounds the number of jobs.
	Limit int
}

// Remove removes jobs.
type Remove struct {
	// Dead removes only dead jobs. Otherwise all jobs are removed, locked ones included.
	Dead bool
	// Limit bounds the jobs that this transaction removes. Count is their number; a caller that
	// removes all repeats the operation as long as the result has More.
	Limit int
}

// Forget removes a queue that has no jobs. If the queue has many locks and keys, it removes a part
// of them, the result has More, and the queue is there until a later one has removed the rest.
type Forget struct{}

// Settle ends expired locks, and makes due jobs ready. Push, Pop and Requeue do that first, too.
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

// FirstThatMakes returns the index of the first operation that creates a missing queue; their
// number if none does.
func FirstThatMakes(operations []Operation) int {
	for n, o := range operations {
		if o.makes() {
			return n
		}
	}
	return len(operations)
}
