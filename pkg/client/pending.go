package client

import (
	"context"
	"iter"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/history"
)

// PendingStart is a start that waits in NATS: a delayed one until its time, and any other one until
// an orchestrator that has its code has committed its first round. The database does not have its
// instance yet, or has an earlier incarnation of it.
type PendingStart struct {
	Instance string `json:"instance"`
	// Orchestration is the name of the orchestration. Version is empty if the start names none.
	Orchestration string `json:"orchestration"`
	Version       string `json:"version,omitempty"`
	// Parent is the instance that has started it as its child, or empty.
	Parent string `json:"parent,omitempty"`
	// StoredAt is when NATS stored it.
	StoredAt time.Time  `json:"stored_at"`
	Why      PendingWhy `json:"why"`
	// Due is the time of a delayed start; otherwise it is zero.
	Due time.Time `json:"due,omitzero"`
}

// PendingWhy is the reason why a start is pending.
type PendingWhy string

// The reasons.
const (
	PendingScheduled PendingWhy = "scheduled" // its time has not come
	PendingWaiting   PendingWhy = "waiting"   // no orchestrator has committed its first round
)

// PendingFilter selects pending starts. A start must match all fields that are set; the zero value
// selects all.
type PendingFilter struct {
	// Instance is the id of the instance, IDPrefix begins it.
	Instance, IDPrefix string
	// Orchestration is the name of the orchestration.
	Orchestration string
}

// PendingList is a page of pending starts. Next is the cursor of the next page, "" if there is
// none.
type PendingList struct {
	Starts []PendingStart `json:"starts"`
	Next   string         `json:"next,omitempty"`
}

// Pending iterates over the starts that wait in NATS, in no particular order. The orchestrators
// read them from its streams, so a start is listed from a second after NATS has stored it until its
// commit is acknowledged: for a moment, its instance may exist already. A start may come twice if
// its time comes during the loop, or if NATS stores it twice, but not in one page.
func (x Instances) Pending(ctx context.Context, filter PendingFilter) iter.Seq2[PendingStart, error] {
	return paged(func(cursor string) ([]PendingStart, string, error) {
		list, err := x.PendingPage(ctx, filter, Page{Limit: pageSize, Cursor: cursor})
		return list.Starts, list.Next, err
	})
}

// PendingPage returns one page of what [Instances.Pending] iterates over. A page may be shorter
// than its limit, even empty, and still have a Next.
func (x Instances) PendingPage(ctx context.Context, filter PendingFilter, page Page) (PendingList, error) {
	list, err := query.NewReader(x.c.broker).Pending(ctx, query.PendingFilter{Instance: filter.Instance,
		IDPrefix: filter.IDPrefix, Name: filter.Orchestration}, history.Page(page))
	if err != nil {
		return PendingList{}, err
	}
	return PendingList{Starts: convert(list.Starts, pendingOf), Next: list.Next}, nil
}

// ErrStarted is the error of a withdrawal of a start that an orchestrator has taken: the database
// has the instance.
var ErrStarted = query.ErrStarted

// ErrPendingChild is the error of a withdrawal of the start of a child: its parent would wait for
// ever.
var ErrPendingChild = query.ErrPendingChild

// Withdraw removes the pending starts of an instance from NATS, and returns their number. It is for
// an instance that the database does not have: otherwise the error is [ErrStarted], also if an
// orchestrator has taken a start during the withdrawal. Without a pending start, it is
// [ErrNoInstance].
//
// A start that NATS stores later is another one and stays. A start that an orchestrator has just
// received may begin the instance after the withdrawal.
func (x Instances) Withdraw(ctx context.Context, instance string) (int, error) {
	w, err := query.NewReader(x.c.broker).Withdraw(ctx, instance)
	return w.Starts, err
}

func pendingOf(p query.Pending) PendingStart {
	return PendingStart{Instance: p.Instance, Orchestration: p.Name, Version: p.Version, Parent: p.Parent,
		StoredAt: p.StoredAt, Why: PendingWhy(p.Why), Due: p.Due}
}
