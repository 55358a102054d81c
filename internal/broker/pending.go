package broker

import (
	"context"
	"time"
)

// PendingStarts lists the starts that the broker stores, and withdraws them.
type PendingStarts interface {
	// PendingStarts lists the stored starts that match a filter, delayed ones included, from a
	// cursor on. A page has at most limit starts, or fewer, even none; page.More says whether there
	// may be others behind it. Its cost does not depend on how many are stored.
	//
	// A start is listed from a second after it was stored at the latest until it is acknowledged,
	// so also while it is in delivery. A listing misses none that is stored during all of it. A
	// start that moves meanwhile, because its time has come, may be listed twice.
	PendingStarts(ctx context.Context, filter StartFilter, from StartCursor, limit int) (page StartPage, err error)
	// WithdrawStart removes a listed start, wherever it waits by now, with those of its subject
	// that are stored before it in the same place. Starts of the subject that are stored after it
	// stay. A missing start is not an error. A start that is in delivery may begin an instance all
	// the same.
	WithdrawStart(ctx context.Context, start PendingStart) error
}

// AwaitedStarts finds starts that messages of their instances wait for.
type AwaitedStarts interface {
	// StartWaits reports whether the broker has a start of an instance of which the watermark of a
	// partition does not tell. A replica may answer, which may be a little behind.
	StartWaits(ctx context.Context, instance string, q StartQuestion) (bool, error)
}

// StartQuestion selects starts that may not have been received: those that are delayed and due
// before a moment, which the broker stores for later or has moved to the inbox since another
// moment, and all starts in the inbox whose partition is not the given one, because the number of
// partitions was changed.
type StartQuestion struct {
	DueBefore, MovedSince time.Time
	Partition             int // [NoPartition]: starts of all partitions are selected
}

// NoPartition is the number of no partition.
const NoPartition = -1

// StartFilter selects starts. A start must match all fields that are set.
type StartFilter struct {
	// Name is the name of the orchestration, Instance the id in the subject of the start.
	Name, Instance string
}

// StartCursor is where a page of starts begins; the zero value is the beginning.
type StartCursor struct {
	// Place is one of the places where the broker stores starts, Sequence the first number there.
	Place    int
	Sequence uint64
}

// StartPage is a page of stored starts.
type StartPage struct {
	Starts []PendingStart
	Next   StartCursor
	More   bool
}

// PendingStart is a start that the broker stores. Its delivery has no Hold.
type PendingStart struct {
	Delivery
	// Key identifies the start under its subject, also after it has moved.
	Key string
}
