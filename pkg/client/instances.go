package client

import (
	"context"
	"iter"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Instances reads and removes instances: see [Client.Instances]. It is safe for concurrent use.
//
// Methods that return an iterator send nothing before the loop begins, fetch the next page when the
// loop has used up the one before, and stop when the loop ends. An error ends the loop.
type Instances struct{ c *Client }

// Instances returns the part of the client that reads and removes instances.
func (c *Client) Instances() Instances { return Instances{c} }

// Get returns an instance, or [ErrNoInstance].
func (x Instances) Get(ctx context.Context, instance string) (Instance, error) {
	i, err := x.c.data.reader().Instance(ctx, instance)
	if err != nil {
		return Instance{}, err
	}
	return instanceOf(i), nil
}

// All iterates over the instances that match a filter, newest first (by id, if the filter has a
// prefix of ids). An instance that exists during the whole loop comes exactly once, unless the
// filter begins or ceases to match it meanwhile.
func (x Instances) All(ctx context.Context, filter Filter) iter.Seq2[Instance, error] {
	return paged(func(cursor string) ([]Instance, string, error) {
		list, err := x.List(ctx, filter, Page{Limit: pageSize, Cursor: cursor})
		return list.Instances, list.Next, err
	})
}

// List returns one page of what [Instances.All] iterates over. A page may be shorter than its limit
// and still have a Next.
func (x Instances) List(ctx context.Context, filter Filter, page Page) (InstanceList, error) {
	list, err := x.c.data.reader().List(ctx, filter.history(), history.Page(page))
	if err != nil {
		return InstanceList{}, err
	}
	return InstanceList{Instances: convert(list.Instances, instanceOf), Next: list.Next}, nil
}

// Count counts the instances that match a filter. It stops at the limit; 0 means no limit.
func (x Instances) Count(ctx context.Context, filter Filter, limit int64) (int64, error) {
	return x.c.data.reader().Count(ctx, filter.history(), limit)
}

// Tree returns an instance with all its descendants, parents before their children.
func (x Instances) Tree(ctx context.Context, instance string) ([]Node, error) {
	nodes, err := x.c.data.reader().Tree(ctx, instance)
	return convert(nodes, nodeOf), err
}

// Waiting returns the operations that an instance waits for, and explains its state.
func (x Instances) Waiting(ctx context.Context, instance string) (Waiting, error) {
	var w query.Waiting
	var err error
	if asker, ok := x.c.data.reader().(*query.Reader); ok {
		w, err = asker.Waiting(ctx, instance)
	} else {
		w, err = query.WaitingOf(ctx, x.c.data.reader(), instance)
	}
	return waitingOf(w), err
}

// Stats measures the current execution of an instance.
func (x Instances) Stats(ctx context.Context, instance string) (Stats, error) {
	s, err := x.c.data.reader().Stats(ctx, instance)
	return Stats(s), err
}

// ---- Executions and their histories.

// Executions iterates over the executions of an instance that are still kept, oldest first.
func (x Instances) Executions(ctx context.Context, instance string) iter.Seq2[Execution, error] {
	return numbered(0, func(e Execution) int64 { return e.Execution }, func(after int64) ([]Execution, error) {
		list, err := x.c.data.reader().Executions(ctx, instance, after, pageSize)
		return convert(list, executionOf), err
	})
}

// Events iterates over the history of an execution from behind an event on (0: from the first one).
// Execution 0 is the current one at the beginning of the loop.
func (x Instances) Events(ctx context.Context, instance string, execution,
	after int64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		if execution == 0 {
			i, err := x.c.data.reader().Instance(ctx, instance)
			if err != nil {
				yield(events.Event{}, err)
				return
			}
			execution = i.Execution
		}
		numbered(after, func(e events.Event) int64 { return e.ID }, func(after int64) ([]events.Event, error) {
			return x.c.data.reader().Events(ctx, instance, execution, after, pageSize)
		})(yield)
	}
}

// History returns the whole history of an execution, 0 for the current one, as replay tests read
// it.
func (x Instances) History(ctx context.Context, instance string, execution int64) (events.Export, error) {
	return history.Export(ctx, x.c.data.reader(), instance, execution)
}

// ---- Values and the custom status.

// Value returns a value of an instance; ok is false if there is none. See also
// [orchestration.Value.Read].
func (x Instances) Value(ctx context.Context, instance, key string) (value Value, ok bool, err error) {
	v, ok, err := x.c.data.reader().Value(ctx, instance, key)
	return Value(v), ok, err
}

// Values returns all values of an instance; none for one that does not exist.
func (x Instances) Values(ctx context.Context, instance string) (map[string]Value, error) {
	all, err := x.c.data.reader().Values(ctx, instance)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Value, len(all))
	for k, v := range all {
		out[k] = Value(v)
	}
	return out, nil
}

// CustomStatus returns the custom status of an instance if its version is not the known one;
// otherwise changed is false, and the status has no data. An instance that does not exist has
// version 0. See also [orchestration.Status.Read] and [Client.WatchStatus].
func (x Instances) CustomStatus(ctx context.Context, instance string, known int64) (
	s orchestration.CustomStatus, changed bool, err error) {
	got, err := x.c.data.reader().CustomStatus(ctx, instance, known)
	return orchestration.CustomStatus{Data: got.Data, Version: got.Version}, got.Changed, err
}

// ---- Removal.

// Delete deletes instances for good, with their executions, children, values and attributes: all of
// them or none, and 1,000 at most. Their ids can be used again. It may be repeated after an error.
//
// An instance that has not ended is [ErrRunning] without [DeleteOptions.Force]. With it, Delete
// terminates the instances first, all at once, and waits for some seconds until they have ended:
// then their activity tasks, timers and children are withdrawn, and [Removed.Withdrawn] counts
// them. An instance that does not end in time, because no orchestrator runs it, is deleted as it
// is.
func (x Instances) Delete(ctx context.Context, instances []string, how DeleteOptions) (Removed, error) {
	d, err := x.c.data.delete(ctx, x.c.broker, instances,
		history.Deletion{Force: how.Force, Alone: how.Alone, Children: how.Children, Prefix: x.c.broker.Prefix()})
	out := Removed{Instances: d.Instances, Executions: d.Executions, Events: d.Events, Values: d.Values}
	if d.Withdrawn != nil {
		out.Withdrawn = Withdrawn(*d.Withdrawn)
	}
	return out, err
}

// DeleteEnded deletes the instances that have ended and match the filter, with their descendants,
// unless one of those has not ended. Each step of the loop deletes a batch of them, and gives its
// counts: without a loop, nothing is deleted.
//
//	var all client.Removed
//	for batch, err := range c.Instances().DeleteEnded(ctx, filter) {
//		if err != nil {
//			return err
//		}
//		all.Add(batch)
//	}
func (x Instances) DeleteEnded(ctx context.Context, filter Filter) iter.Seq2[Removed, error] {
	return batches(func(page history.Page) (history.DeleteResultPage, error) {
		return x.c.data.remover().DeleteEnded(ctx, filter.history(), page)
	})
}

// Prune removes former executions of an instance. The current one and the values stay.
func (x Instances) Prune(ctx context.Context, instance string, keep Keep) (Removed, error) {
	d, err := x.c.data.remover().Prune(ctx, instance, history.Keep(keep))
	return removedOf(history.DeleteResultPage{DeleteResult: d}), err
}

// PruneAll prunes the instances that match the filter, running ones too. Each step of the loop
// prunes a batch of them, and gives its counts: without a loop, nothing is removed.
func (x Instances) PruneAll(ctx context.Context, filter Filter, keep Keep) iter.Seq2[Removed, error] {
	return batches(func(page history.Page) (history.DeleteResultPage, error) {
		return x.c.data.remover().PruneAll(ctx, filter.history(), history.Keep(keep), page)
	})
}

// ---- Pages.

const (
	// pageSize is how many elements an iterator fetches at once, batchSize how many instances one
	// request removes.
	pageSize  = 500
	batchSize = 200
)

// Collect returns all elements of an iterator of this package. Its error is the one that has ended
// the iteration, if any; the elements before it are returned, too.
func Collect[T any](all iter.Seq2[T, error]) (list []T, err error) {
	for x, err := range all {
		if err != nil {
			return list, err
		}
		list = append(list, x)
	}
	return list, nil
}

// paged iterates over pages that are found by the cursor of the page before.
func paged[T any](fetch func(cursor string) (list []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			list, next, err := fetch(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, x := range list {
				if !yield(x, nil) {
					return
				}
			}
			if cursor = next; next == "" {
				return
			}
		}
	}
}

// numbered iterates over pages that begin behind a number. A short page is the last one.
func numbered[T any](after int64, number func(T) int64, fetch func(after int64) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for behind := after; ; {
			list, err := fetch(behind)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, x := range list {
				if behind = number(x); !yield(x, nil) {
					return
				}
			}
			if len(list) < pageSize {
				return
			}
		}
	}
}

// batches iterates over the counts of a removal in batches.
func batches(remove func(history.Page) (history.DeleteResultPage, error)) iter.Seq2[Removed, error] {
	return paged(func(cursor string) ([]Removed, string, error) {
		d, err := remove(history.Page{Limit: batchSize, Cursor: cursor})
		return []Removed{removedOf(d)}, d.Next, err
	})
}

// convert converts each element of a list.
func convert[From, To any](list []From, to func(From) To) []To {
	if list == nil {
		return nil
	}
	out := make([]To, 0, len(list))
	for _, x := range list {
		out = append(out, to(x))
	}
	return out
}

// ---- Conversions.

func (f Filter) history() history.Filter {
	h := history.Filter{IDs: f.IDs, IDPrefix: f.IDPrefix, Name: f.Name, Version: f.Version, Parent: f.Parent,
		Attributes: f.Attributes, CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore,
		EndedBefore: f.EndedBefore, RootsOnly: f.RootsOnly}
	h.Statuses = convert(f.Statuses, Status.round)
	return h
}

func instanceOf(info history.Info) Instance {
	i := query.InstanceOf(info)
	return Instance{
		ID: i.Instance, Name: i.Name, Version: i.Version, Status: Status(i.Status), Execution: i.Execution,
		Incarnation: i.Incarnation, Engine: i.Engine, Parent: i.Parent, Attributes: i.Attributes, Trace: i.Trace,
		StartMessage: i.StartMessage, CreatedAt: i.CreatedAt, StartedAt: i.StartedAt, UpdatedAt: i.UpdatedAt,
		EndedAt: i.EndedAt, Output: i.Output, Error: i.Error, CustomStatus: i.CustomStatus,
		CustomStatusVersion: i.CustomStatusVersion, Fresh: i.Fresh, LastEvent: i.LastEvent,
		HistoryBytes: i.HistoryBytes, Unread: i.Unread, WakeAt: i.WakeAt, Problem: (*Problem)(i.Problem),
	}
}

func executionOf(x history.ExecutionInfo) Execution {
	return Execution{Execution: x.Execution, Incarnation: x.Incarnation, Name: x.Name, Version: x.Version,
		Engine: x.Engine, Status: Status(x.Status), Output: x.Output, Error: x.Error, StartedAt: x.StartedAt,
		EndedAt: x.EndedAt, Events: x.Events, Bytes: x.Bytes}
}

func nodeOf(n history.Node) Node {
	return Node{Instance: n.Instance, Parent: n.Parent, Name: n.Name, Status: Status(n.Status), Depth: n.Depth}
}

func waitingOf(w query.Waiting) Waiting {
	out := Waiting{Instance: w.Instance, Name: w.Name, Version: w.Version, Status: Status(w.Status),
		Execution: w.Execution, UpdatedAt: w.UpdatedAt, More: w.More, Notes: w.Notes}
	out.Waits = convert(w.Waits, func(x query.Wait) Wait {
		return Wait{Kind: WaitKind(x.Kind), Event: x.Event, Name: x.Name, Instance: x.Instance, Tag: x.Tag,
			Since: x.Since, Due: x.Due, What: x.What}
	})
	return out
}

func removedOf(d history.DeleteResultPage) Removed {
	return Removed{Instances: d.Instances, Executions: d.Executions, Events: d.Events, Values: d.Values,
		Skipped: d.Skipped}
}
