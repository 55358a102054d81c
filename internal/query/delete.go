package query

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/x/backoff"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

const (
	// terminateWithin bounds the wait for instances to end that are deleted by force. To count what
	// they have withdrawn takes a third of it. Each takes half of the time of the request at most.
	terminateWithin = 3 * time.Second
	// deletionsAtOnce bounds the deletions that are answered at the same time: they may wait.
	deletionsAtOnce = 16
	// idsAtOnce bounds the ids in a question to the store.
	idsAtOnce = 500
	// deletedReason is the reason of the termination, which a parent that waits for a child gets.
	deletedReason = "it was deleted"
)

// lookAgain is how long a deletion waits before it looks again whether the instances have ended.
var lookAgain = backoff.Backoff{First: 10 * time.Millisecond, Most: 250 * time.Millisecond}

// Deletions deletes instances. Those that have not ended it terminates first, so that what they
// have sent is withdrawn: activity tasks, timers and children. It is safe for concurrent use.
type Deletions struct {
	Store Store
	// Publisher publishes the terminations. If it is nil, instances are deleted as they are.
	Publisher broker.Publisher
	// Prefix begins the subjects of messages; empty is [events.DefaultPrefix].
	Prefix string
	// Within bounds the wait for the instances to end: 3 s. Those that have not ended by then are
	// deleted as they are. A third of it bounds the counting.
	Within time.Duration
	// Logger gets warnings for operators; nil is slog.Default.
	Logger *slog.Logger

	whole chan struct{} // bounds the histories that are read at the same time; nil: no bound
}

// Delete deletes instances as [history.Remover] does, and counts the withdrawn messages. Also those
// count that an earlier deletion has withdrawn, if it was interrupted.
//
// A deletion that is refused terminates nothing, unless the reason for that comes up during the
// wait.
func (d *Deletions) Delete(ctx context.Context, ids []string, how history.Deletion) (Deleted, error) {
	var withdrawn *Withdrawn
	if how.Force && d.Publisher != nil {
		var err error
		if withdrawn, err = d.withdraw(ctx, ids, how); err != nil {
			return Deleted{}, err
		}
	}
	removed, err := d.Store.Delete(ctx, ids, how)
	out := deletedOf(removed)
	out.Withdrawn = withdrawn
	return out, err
}

// withdraw terminates the instances that a deletion would remove, and waits for their ends as long
// as it may. The error is that with which the deletion would refuse. It returns nil if nothing had
// to be withdrawn.
func (d *Deletions) withdraw(ctx context.Context, ids []string, how history.Deletion) (*Withdrawn, error) {
	family, err := d.Store.Family(ctx, ids, how)
	if err != nil {
		return nil, err
	}
	var ended []string // by a deletion that was interrupted, perhaps
	for _, n := range family {
		if n.Status == round.Terminated {
			ended = append(ended, n.Instance)
		}
	}
	asked := make(map[string]string)
	limit := cmp.Or(d.Within, terminateWithin)
	within, cancel := part(ctx, limit)
	left, err := d.terminate(within, family, asked, ids, how)
	late := within.Err() != nil
	cancel()
	if err != nil && !late {
		d.logger().Warn("query: instances could not be terminated before their deletion", "error", err)
	}
	w := Withdrawn{NotEnded: int64(len(left))}
	for _, id := range left {
		delete(asked, id)
	}
	within, cancel = part(ctx, limit/3)
	defer cancel()
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		if d.count(within, id, &w) != nil {
			w.Uncounted++
		}
	}
	for _, id := range ended {
		if d.count(within, id, &w) != nil {
			break // it is not known whether a deletion had terminated it
		}
	}
	if w == (Withdrawn{}) {
		return nil, nil
	}
	return &w, nil
}

// part bounds a context by a time limit, and by half of the time that it has.
func part(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until)/2)
	}
	return context.WithTimeout(ctx, limit)
}

// terminate terminates the members of a family that have not ended, and those that are born
// meanwhile, all at once, parents before their children. It notes their incarnations in asked, and
// returns those that have not ended, with the reason why it does not wait for them any more.
func (d *Deletions) terminate(ctx context.Context, family []history.Node, asked map[string]string, ids []string,
	how history.Deletion) (left []string, err error) {
	left = notEnded(family)
	for pause := time.Duration(0); len(left) > 0; {
		running, err := d.running(ctx, left)
		if err != nil {
			return left, err
		}
		left = slices.DeleteFunc(left, func(id string) bool { return running[id] == "" })
		if err := d.ask(ctx, left, running, asked); err != nil {
			return left, err
		}
		if len(left) == 0 { // a child may have been born before its parent has ended
			family, err := d.Store.Family(ctx, ids, how)
			if left = notEnded(family); err != nil || len(left) == 0 {
				return left, err
			}
		}
		pause = lookAgain.Next(pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return left, ctx.Err()
		}
	}
	return nil, nil
}

func notEnded(family []history.Node) (ids []string) {
	for _, n := range family {
		if !n.Status.Ended() {
			ids = append(ids, n.Instance)
		}
	}
	return ids
}

// running returns the incarnations of those instances that have not ended.
func (d *Deletions) running(ctx context.Context, ids []string) (map[string]string, error) {
	statuses := slices.DeleteFunc(round.Statuses(), round.Status.Ended)
	found := make(map[string]string, len(ids))
	for part := range slices.Chunk(ids, idsAtOnce) {
		f, page := history.Filter{IDs: part, Statuses: statuses}, history.Page{Limit: idsAtOnce}
		for {
			list, err := d.Store.Within(maxPage).List(ctx, f, page)
			if err != nil {
				return nil, err
			}
			for _, info := range list.Instances {
				found[info.Instance] = info.Incarnation
			}
			if page.Cursor = list.Next; list.Next == "" {
				break
			}
		}
	}
	return found, nil
}

// ask publishes the terminations of incarnations that were not asked to end yet. All terminations
// of an incarnation for its deletion are the same message.
func (d *Deletions) ask(ctx context.Context, ids []string, incarnations, asked map[string]string) error {
	var messages []events.Wire
	for _, id := range ids {
		incarnation := incarnations[id]
		if asked[id] == incarnation {
			continue
		}
		w, err := events.Encode(cmp.Or(d.Prefix, events.DefaultPrefix), events.Message{
			ID:       "delete/" + incarnation + "/" + events.EncodeToken(id),
			Instance: id, Internal: true,
			Content: &events.Control{How: events.Terminate, Reason: deletedReason, Incarnation: incarnation},
		})
		if err != nil {
			return err
		}
		asked[id] = incarnation
		messages = append(messages, w)
	}
	if len(messages) == 0 {
		return nil
	}
	return d.Publisher.Publish(ctx, messages...)
}

// count adds what an instance has withdrawn, if it was terminated for its deletion.
func (d *Deletions) count(ctx context.Context, instance string, w *Withdrawn) error {
	info, err := d.Store.Instance(ctx, instance)
	if errors.Is(err, history.ErrNoInstance) || err == nil && info.Status != round.Terminated {
		return nil
	}
	if err != nil {
		return err
	}
	last, err := d.Store.Events(ctx, instance, info.Execution, info.LastEvent-1, 1)
	if err != nil || len(last) == 0 {
		return err
	}
	if f, ok := last[0].Fact.(*events.Terminated); !ok || !f.Deletion {
		return nil
	}
	w.Instances++
	if d.whole != nil {
		select {
		case d.whole <- struct{}{}:
			defer func() { <-d.whole }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	list, err := historyOf(ctx, d.Store, info)
	if err != nil {
		return err
	}
	got, err := round.WithdrawnAtEnd(list)
	w.Tasks, w.Timers = w.Tasks+int64(got.Tasks), w.Timers+int64(got.Timers)
	return err
}

func (d *Deletions) logger() *slog.Logger {
	if d.Logger == nil {
		return slog.Default()
	}
	return d.Logger
}
